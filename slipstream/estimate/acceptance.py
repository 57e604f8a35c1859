"""Acceptance lengths by number of rollouts: given, or measured by a replay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.bundle import Bundle
from runtime.settings import BY_SCHEMA
from slipstream.estimate.measured import fastest_drafting


@dataclass(frozen=True)
class Acceptance:
    """Tokens committed a round with a drafted block, and where the figure comes from.

    Attributes:
        block: its rows, or with `schema` the values of a block of the output's schema.
    """

    length: float
    block: int
    source: str
    schema: bool = False


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

    def borrowed(self, counts: Sequence[int]) -> list[int]:
        """The numbers for which the acceptance of another one was measured and is taken."""
        return [n for n in counts if self._measured and n not in self._known]

    def text(self, counts: Sequence[int]) -> str:
        """What is taken for each number, in words."""
        taken: dict[int, list[int]] = {}
        for n in counts:
            taken.setdefault(self._nearest(n), []).append(n)
        return "; ".join(self._part(at, ns, len(taken) > 1) for at, ns in taken.items())

    def _part(self, at: int, counts: Sequence[int], of_several: bool) -> str:
        known = self._known[at]
        of = "schema's blocks of" if known.schema else "block"
        text = f"{of} {known.block}, acceptance length {known.length:.2f} ({known.source}"
        others = [str(n) for n in counts if n != at]
        if self._measured and others:
            text += f", taken for N = {', '.join(others)} too"
        return f"N = {', '.join(map(str, counts))}: {text})" if of_several else f"{text})"

    def _nearest(self, rollouts: int) -> int:
        return min(self._known, key=lambda n: (abs(math.log(n / rollouts)), -n))


def given(length: float, block: int, *, schema: bool = False, source: str = "given") -> Acceptances:
    """One figure for every number of rollouts."""
    return Acceptances({1: Acceptance(length, block, source, schema)}, measured=False)


def measured(paths: Sequence[Path], bundle: Bundle | None, block: int) -> Acceptances:
    """Those of the reports' fastest drafting decoders, for each number of rollouts in them.

    Of several reports with a number the last is taken.

    Args:
        bundle: that is estimated; a report of another one is said to be so.
        block: for decoders whose width the cost gate or the drafter chose.

    Raises:
        SlipstreamError: as `slipstream.estimate.measured.fastest_drafting`.
    """
    known = {}
    for path in paths:
        report, fastest = fastest_drafting(path)
        for n, decoder in fastest.items():
            width, schema = decoder.settings.block or block, decoder.settings.method in BY_SCHEMA
            source = f"measured: {decoder.name} at N = {n}, "
            source += f"{report.frames} frames of {report.drive.name}"
            if bundle and report.bundle.key != bundle.key:
                source += f", ANOTHER BUNDLE ({report.bundle.name} {report.bundle.key})"
            if decoder.settings.block is None:
                source += ", widths by the cost gate"
            # a block of the schema holds fixed tokens besides its values
            length = decoder.acceptance_length
            known[n] = Acceptance(length if schema else min(length, width), width, source, schema)
    return Acceptances(known, measured=True)
