"""A figure over the seeds of a training: its mean and what three seeds can say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from drives.bootstrap import Interval
from slipstream.compare.results import Acceptance, Entry, Measured, Shape

# Student's t, two-sided 95 %, by degrees of freedom; beyond them the normal's 1.96 is near enough
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
_NORMAL = 1.96

Reading = Callable[[Measured], float]


def over_seeds(values: Sequence[float]) -> Interval:
    """Mean of independent runs with Student's 95 % interval; a single run has none."""
    known = np.array(values, np.float64)
    mean = float(known.mean())
    if len(known) < 2:
        return Interval(mean, float("nan"), float("nan"))
    freedom = len(known) - 1
    t = _T95[freedom - 1] if freedom <= len(_T95) else _NORMAL
    half = t * float(known.std(ddof=1)) / len(known) ** 0.5
    return Interval(mean, mean - half, mean + half)


def pooled(entry: Entry, reading: Reading) -> Interval:
    """A reading of an entry over its seeds."""
    return over_seeds([reading(measured) for measured in entry.seeds])


def change(entry: Entry, base: Entry, reading: Reading) -> Interval:
    """Relative change against another entry, paired by seed: 0.1 is 10 % more."""
    other = {measured.seed: reading(measured) for measured in base.seeds}
    both = [measured for measured in entry.seeds if measured.seed in other]
    if not both:
        return Interval(float("nan"), float("nan"), float("nan"))
    return over_seeds([reading(each) / other[each.seed] - 1.0 for each in both])


def tau(shape: Shape, temperature: float) -> Reading:
    """Acceptance length over the whole output."""
    return lambda measured: measured.of(shape, temperature).tau


def section_tau(shape: Shape, temperature: float, section: str) -> Reading:
    """Acceptance length in one section; NaN where no round began in it."""

    def read(measured: Measured) -> float:
        found = measured.of(shape, temperature).by_section.get(section)
        return float("nan") if found is None or found.tau is None else found.tau

    return read


def passes(shape: Shape, temperature: float) -> Reading:
    """Target passes a frame."""
    return lambda measured: measured.of(shape, temperature).target_passes


def position_rates(entry: Entry, shape: Shape, temperature: float) -> dict[int, float]:
    """Place in the block -> share of the tokens drafted there that stood, over all seeds."""
    drafted: dict[int, int] = {}
    accepted: dict[int, int] = {}
    for each in entry.seeds:
        found: Acceptance = each.of(shape, temperature)
        for place in found.by_position:
            drafted[place.position] = drafted.get(place.position, 0) + place.drafted
            accepted[place.position] = accepted.get(place.position, 0) + place.accepted
    return {place: accepted[place] / count for place, count in sorted(drafted.items()) if count}
