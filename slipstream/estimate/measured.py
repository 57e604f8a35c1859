"""A report's fastest drafting decoders, if their figures are ones that a replay can give."""

from __future__ import annotations

import math
from pathlib import Path

from drives.results import Decoder, Report, read_report
from runtime.errors import SlipstreamError
from runtime.settings import BY_SCHEMA, DRAFTING

WIDEST = 1 << 20  # of a block and of rollouts, as for --block and --rollouts
_RUN = "slipstream run BUNDLE --drive DRIVE --decoder dflash -o DIR"


def fastest_drafting(path: Path) -> tuple[Report, dict[int, Decoder]]:
    """A report and, for each number of rollouts, its drafting decoder with the least mean latency.

    Raises:
        SlipstreamError: no report, no drafting decoder in it, or a figure that no replay gives.
    """
    report = read_report(path)
    if report.frames < 1:
        raise _impossible(path, "frames", "at least 1", report.frames)
    timed: dict[int, list[tuple[float, Decoder]]] = {}
    for i, found in enumerate(report.decoders):
        # under a deadline rollouts are no number
        if found.settings.method in DRAFTING and found.settings.budget_ms is None:
            mean = _checked(path, f"decoders.{i}", found, report.output_tokens)
            timed.setdefault(found.settings.rollouts, []).append((mean, found))
    if not timed:
        raise SlipstreamError(
            f"{path} compares no drafting decoder",
            expected=f"one of {', '.join(DRAFTING)}, without a deadline",
            found=", ".join(found.name for found in report.decoders),
            fix=_RUN,
        )
    fastest = {n: min(pairs, key=lambda pair: pair[0])[1] for n, pairs in timed.items()}
    return report, dict(sorted(fastest.items()))


def _checked(path: Path, where: str, found: Decoder, most: int) -> float:
    """Its mean latency in ms."""
    block, length = found.settings.block, found.acceptance_length
    least = 1 if found.settings.method in BY_SCHEMA else 2
    if block is not None and not least <= block <= WIDEST:
        raise _impossible(path, f"{where}.settings.block", f"{least} to {WIDEST}, or null", block)
    if not 1 <= found.settings.rollouts <= WIDEST:
        rollouts = f"{where}.settings.rollouts"
        raise _impossible(path, rollouts, f"1 to {WIDEST}", found.settings.rollouts)
    if not 1.0 <= length <= most:
        expected = f"1 to {most}, the output's tokens"
        raise _impossible(path, f"{where}.acceptance_length", expected, length)
    mean = found.latency_ms.mean.value
    if mean is None or not 0.0 < mean < math.inf:
        raise _impossible(path, f"{where}.latency_ms.mean.value", "ms above 0", mean)
    return mean


def _impossible(path: Path, where: str, expected: str, found: float | None) -> SlipstreamError:
    return SlipstreamError(
        f"{path}: {where} is out of range",
        expected=expected,
        found="null" if found is None else str(found)[:40],
        fix=_RUN,
    )
