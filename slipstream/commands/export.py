"""`slipstream export`: checkpoints to a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from export.bundle import export_bundle
from runtime.bundle import MANIFEST, Limits, Manifest
from runtime.errors import SlipstreamError
from runtime.files import check_writable
from slipstream.commands.screen import Screen


def run_export(
    target: Path,
    draft: Path | None,
    out: Path,
    limits: tuple[int, int, int, int],
    name: str | None,
    data: Sequence[str] | None,
    licences: Sequence[str] | None,
    parity: bool,
) -> None:
    """Export and say where the bundle is; limits are trunk, branch, rollouts, max_position.

    With data or licences None, those of an earlier bundle of the same weights are kept.

    Raises:
        SlipstreamError: bad limits, a folder that is no bundle in the way, or a failed export.
    """
    checked = _limits(limits)
    _check_out(out)
    console = Screen()
    with console.status("exporting, and checking parity" if parity else "exporting"):
        manifest = export_bundle(
            target,
            draft,
            out,
            limits=checked,
            name=name,
            data=data,
            licences=licences,
            check_parity=parity,
        )
    if gaps := manifest.provenance.parity:
        worst = max(gaps.values())
        console.print(
            f"parity with torch: {len(gaps)} checks, largest difference {worst:.0e}",
            highlight=False,
        )
    _show_record(manifest, console)
    console.print(f"bundle: {out}", highlight=False, soft_wrap=True)


def _show_record(manifest: Manifest, console: Console) -> None:
    """The name, and what the bundle says of its training; silence there must not go unsaid."""
    known = manifest.provenance
    record = [("name", [manifest.name]), ("trained on", known.data), ("licences", known.licences)]
    options = {"trained on": "--data", "licences": "--licence"}
    for what, entries in record:
        if entries:
            console.print(f"{what}: {'; '.join(entries)}", highlight=False)
        else:
            console.print(f"{what}: not recorded; say it with {options[what]}", style="yellow")


def _limits(limits: tuple[int, int, int, int]) -> Limits:
    names = ("trunk", "branch", "rollouts", "max_position")
    try:
        return Limits.model_validate(dict(zip(names, limits, strict=True)))
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise SlipstreamError(
            f"--{option} is out of range",
            expected=first["msg"],
            found=str(first["input"]),
            fix="see `slipstream export --help`",
        ) from error


def _check_out(out: Path) -> None:
    """An earlier bundle is replaced; anything else is left alone."""
    if not out.exists() or (out / MANIFEST).is_file() or (out.is_dir() and not any(out.iterdir())):
        check_writable(out, folder=True)
        return
    raise SlipstreamError(
        f"{out} is not replaced by a bundle",
        expected="a new folder, an empty one, or an earlier bundle",
        found="a folder with other files" if out.is_dir() else "a file",
        fix="name another folder with -o",
    )
