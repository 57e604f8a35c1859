"""Does a comparison repeat another one, within what the seeds of both leave open?"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from pydantic import ValidationError

from drives.bootstrap import Interval
from runtime.errors import SlipstreamError
from slipstream.compare.pooled import pooled, tau
from slipstream.compare.results import COMPARE_VERSION, Comparison

SLACK = 0.02  # of the value: other machines round otherwise, which moves single tokens


@dataclass(frozen=True)
class Agreement:
    """One figure in both; `agrees` when the intervals, widened by SLACK, meet."""

    drafter: str
    figure: str
    here: Interval
    there: Interval

    @property
    def agrees(self) -> bool:
        (low, high), (other_low, other_high) = _ends(self.here), _ends(self.there)
        return low <= other_high and other_low <= high


def agreements(here: Comparison, there: Comparison) -> list[Agreement]:
    """Acceptance lengths of the entries that both have."""
    names = {entry.name for entry in there.entries}
    found = []
    for entry in here.entries:
        if entry.name not in names:
            continue
        other = there.entry(entry.name)
        known = {(each.shape, each.temperature) for each in other.seeds[0].acceptance}
        for each in entry.seeds[0].acceptance:
            if (each.shape, each.temperature) in known:
                read = tau(each.shape, each.temperature)
                figure = f"tau, {each.shape} T={each.temperature:g}"
                found.append(
                    Agreement(entry.name, figure, pooled(entry, read), pooled(other, read))
                )
    return found


def read_comparison(path: Path) -> Comparison:
    """Read `compare.json`.

    Raises:
        SlipstreamError: no file, or not of this schema.
    """
    try:
        return Comparison.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise SlipstreamError(
            f"{path} is no comparison of this slipstream",
            expected=f"compare.json of version {COMPARE_VERSION}",
            found=str(error).splitlines()[0],
            fix="slipstream compare CONFIG -o DIR",
        ) from error


def _ends(interval: Interval) -> tuple[float, float]:
    slack = SLACK * abs(interval.value)
    if not isfinite(interval.low):
        return interval.value - slack, interval.value + slack
    return interval.low - slack, interval.high + slack
