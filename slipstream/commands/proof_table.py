"""A proof in the terminal: one row for each decoder and kind of check, then the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.proof.results import Check, Control, Proof
from slipstream.commands.screen import banner

_ASKED = {
    "greedy": "greedy = ar",
    "seed by seed": "sampled = ar, seed by seed",
    "cache": "cache = fresh prefill",
}
_BLUNTED = (
    "\nThe drafter agrees with its target too often to tell a wrong rule from a right one, so the "
    "rules were given drafts from flatter distributions, for which they must be exact as well."
)
DISTRIBUTION = "distribution = the target's"


def show_proof(proof: Proof, console: Console) -> None:
    """Print the table, every difference that was found, and one sentence."""
    if proof.drive.startswith("synthetic"):
        console.print(banner("SYNTHETIC DRIVE", "the proof is of tokens, not of roads"))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("decoder", "check", "verdict", "seen"):
        table.add_column(heading, no_wrap=heading != "seen")
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in proof.checks:
        groups.setdefault((check.decoder, _ASKED.get(check.name, DISTRIBUTION)), []).append(check)
    for (decoder, asked), checks in groups.items():
        passed = all(check.passed for check in checks)
        table.add_row(decoder, asked, _mark("pass" if passed else "FAIL", passed), _seen(checks))
    table.add_section()
    for control in proof.controls:
        verdict = _mark("caught" if control.caught else "MISSED", control.caught)
        table.add_row(control.decoder, f"planted: {control.name}", verdict, _seen_control(control))
    console.print(table)
    _show_differences(proof, console)
    console.print(_sentence(proof), highlight=False)


def _seen(checks: Sequence[Check]) -> str:
    first = checks[0]
    notes = "; ".join(dict.fromkeys(check.note for check in checks if check.note))
    if first.name == "cache":
        worst = max(check.figure or 0.0 for check in checks)
        rounds = sum(check.samples for check in checks)
        return f"largest difference {worst:.1e} in {rounds} rounds" + (notes and f"; {notes}")
    if first.identical is not None:
        return "; ".join(
            f"{check.identical} of {check.samples} identical ({check.condition})"
            for check in checks
        )
    values = ", ".join(
        f"{check.name} {check.p_value:.2g}" for check in checks if check.p_value is not None
    )
    return f"{first.samples:,} outputs; p: {values}" + (notes and f"; {notes}")


def _seen_control(control: Control) -> str:
    p = "" if control.p_value is None else f", p {control.p_value:.1e}"
    if not control.caught:
        return f"no check failed in {control.samples:,} outputs{p}"
    return f"by {control.by} after {control.samples:,}{p}"


def _show_differences(proof: Proof, console: Console) -> None:
    for check in proof.checks:
        for each in check.differences:
            what = "near tie" if each.near_tie else "NO NEAR TIE"
            console.print(
                f"{check.decoder} ({check.condition}), frame {each.frame}, rollout {each.rollout}, "
                f"token {each.index}: differs by a margin of {each.margin:.1e}: {what}",
                highlight=False,
                soft_wrap=True,
            )


def _frames(proof: Proof) -> str:
    if proof.windows is not None:
        return f"{proof.frames:,} of {proof.windows:,} windows"
    return f"{proof.frames} frame{'s' * (proof.frames != 1)}"


def _sentence(proof: Proof) -> Text:
    failed = sum(not check.passed for check in proof.checks)
    missed = sum(not control.caught for control in proof.controls)
    tests = (
        f"{_frames(proof)} of {proof.drive}, temperature {proof.temperature:g}; a test fails "
        f"below p = {proof.threshold:.1e}, so that all together fail a sound engine with "
        f"probability {proof.alpha:g}; {proof.seconds:.0f} s" + (_BLUNTED if proof.blunted else "")
    )
    if failed:
        verdict, style = f"Not proven: {failed} checks failed.", "bold red"
    elif missed:
        style = "bold red"
        verdict = (
            f"Not proven: {missed} planted faults were missed, so passing says little. "
            "Raise --samples, or take other frames."
        )
    else:
        style = "bold green"
        verdict = "Proven: drafting changes nothing, and the checks can tell."
    return Text.assemble((verdict, style), "\n", (tests, "dim"))


def _mark(text: str, good: bool) -> Text:
    return Text(text, "green" if good else "bold red")
