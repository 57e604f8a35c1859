"""Acceptance lengths by number of rollouts: given, or measured by a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle import Bundle
from slipstream.estimate.measured import fastest_drafting


@dataclass(frozen=True)
class Acceptance:
    """Tokens committed a round with a drafted block, and where the figure comes from."""

    length: float
    block: int
    source: str


class Acceptances:
    """An acceptance for every number of rollouts.

    Args:
        known: number of rollouts -> acceptance; at least one.
        measured: whether they were measured with just that number.
    """

    def __init__(self, known: Mapping[int, Acceptance], *, measured: bool) -> None:
        self._known, self._measured = dict(known), measured

    def of(self, rollouts: int) -> Acceptance:
        """That of the number, or else of the nearest by ratio (the larger of two)."""
        return self._known[self._nearest(rollouts)]

    def text(self, counts: Sequence[int]) -> str:
        """What is taken for each number, in words."""
        taken: dict[int, list[int]] = {}
        for n in counts:
            taken.setdefault(self._nearest(n), []).append(n)
        return "; ".join(self._part(at, ns, len(taken) > 1) for at, ns in taken.items())

    def _part(self, at: int, counts: Sequence[int], of_several: bool) -> str:
        known = self._known[at]
        text = f"block {known.block}, acceptance length {known.length:.2f} ({known.source}"
        others = [str(n) for n in counts if n != at]
        if self._measured and others:
            text += f", taken for N = {', '.join(others)} too"
        return f"N = {', '.join(map(str, counts))}: {text})" if of_several else f"{text})"

    def _nearest(self, rollouts: int) -> int:
        return min(self._known, key=lambda n: (abs(math.log(n / rollouts)), -n))


def given(length: float, block: int) -> Acceptances:
    """One figure for every number of rollouts."""
    return Acceptances({1: Acceptance(length, block, "given")}, measured=False)


def measured(path: Path, bundle: Bundle | None, block: int) -> Acceptances:
    """Those of a report's fastest drafting decoder for each number of rollouts in it.

    Args:
        bundle: that is estimated; a report of another one is said to be so.
        block: for decoders whose width the cost gate chose.

    Raises:
        SlipstreamError: as `slipstream.estimate.measured.fastest_drafting`.
    """
    report, fastest = fastest_drafting(path)
    known = {}
    for n, decoder in fastest.items():
        width = decoder.settings.block or block
        source = f"measured: {decoder.name} at N = {n}, "
        source += f"{report.frames} frames of {report.drive.name}"
        if bundle and report.bundle.key != bundle.key:
            source += f", ANOTHER BUNDLE ({report.bundle.name} {report.bundle.key})"
        if decoder.settings.block is None:
            source += ", widths by the cost gate"
        known[n] = Acceptance(min(decoder.acceptance_length, float(width)), width, source)
    return Acceptances(known, measured=True)
