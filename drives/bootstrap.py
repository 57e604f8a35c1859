"""95 % intervals for figures of recorded drives, by resampling whole stretches of them.

Windows a quarter second apart share most of their future, so frames are not independent. The drive
is cut into contiguous segments and those are resampled (block bootstrap, Künsch 1989). Few segments
make percentile intervals too narrow; their percentiles are expanded to Student's t
(Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 3.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEGMENT_S = 20.0
RESAMPLES = 2000
LEAST_SEGMENTS = 5
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; the ends are NaN with fewer than LEAST_SEGMENTS segments."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


class BlockBootstrap:
    """One set of resamples of a drive's segments, shared by every figure so that they pair up.

    Args:
        times: [W] s on the drive's clock, one a frame.
        drives: [W] names, where the frames come from several drives; no segment spans two.
        segment_s: length of a segment; longer than the stretch over which errors are correlated.
        resamples: how many resampled drives.
        seed: of the resampling.
    """

    def __init__(
        self,
        times: Floats,
        drives: Sequence[str] | None = None,
        *,
        segment_s: float = SEGMENT_S,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        names, drive = np.unique(drives or [""] * len(times), return_inverse=True)
        starts = np.array([times[drive == each].min() for each in range(len(names))])
        numbers = np.floor((times - starts[drive]) / segment_s) if len(times) else times
        labels, self._segment = np.unique(
            drive * (numbers.max(initial=0.0) + 1.0) + numbers, return_inverse=True
        )
        self.segments = len(labels)
        rng = np.random.default_rng(seed)
        even = np.full(self.segments, 1.0 / max(self.segments, 1))
        # how often each segment is drawn: [resamples, segments]
        self._draws = rng.multinomial(self.segments, even, size=resamples).astype(np.float64)

    def mean(self, values: Floats) -> Interval:
        """Mean of per-frame values [W]; NaN frames are left out."""
        known = np.isfinite(values)
        return self._ratio(np.where(known, values, 0.0), known.astype(np.float64))

    def difference(self, values: Floats, baseline: Floats) -> Interval:
        """Mean of values - baseline over the frames that have both [W]: a paired comparison."""
        return self.mean(values - baseline)

    def ratio(self, values: Floats, baseline: Floats) -> Interval:
        """Mean of values over mean of baseline, on the frames that have both [W]."""
        both = np.isfinite(values) & np.isfinite(baseline)
        return self._ratio(np.where(both, values, 0.0), np.where(both, baseline, 0.0))

    def median(self, values: Floats) -> Interval:
        """Median of per-frame values [W], one that was measured; NaN frames are left out."""
        known = np.flatnonzero(np.isfinite(values))
        if not len(known):
            return Interval(float("nan"), float("nan"), float("nan"))
        order = known[np.argsort(values[known], kind="stable")]
        ordered, segment = values[order], self._segment[order]
        value = float(ordered[(len(ordered) - 1) // 2])
        used = len(np.unique(segment))
        if used < LEAST_SEGMENTS:
            return Interval(value, float("nan"), float("nan"))
        medians = []
        for drawn in self._draws:  # one resample at a time: a long drive must not fill the memory
            counts = drawn[segment].cumsum()
            if counts[-1]:
                medians.append(ordered[np.searchsorted(counts, counts[-1] / 2)])
        tail = expanded_tail(used)
        low, high = np.quantile(medians, [tail, 1 - tail])
        return Interval(value, float(low), float(high))

    def _ratio(self, above: Floats, below: Floats) -> Interval:
        sums = np.zeros((self.segments, 2))
        np.add.at(sums, self._segment, np.stack([above, below], axis=1))
        total = sums.sum(axis=0)
        if total[1] == 0:
            return Interval(float("nan"), float("nan"), float("nan"))
        value = float(total[0] / total[1])
        used = int((sums[:, 1] != 0).sum())
        if used < LEAST_SEGMENTS:
            return Interval(value, float("nan"), float("nan"))
        drawn = self._draws @ sums  # [resamples, 2]
        filled = drawn[drawn[:, 1] != 0]
        tail = expanded_tail(used)
        low, high = np.quantile(filled[:, 0] / filled[:, 1], [tail, 1 - tail])
        return Interval(value, float(low), float(high))


def expanded_tail(segments: int) -> float:
    """Tail probability to read percentiles at, so that K segments give a nominal LEVEL interval.

    Phi(-sqrt(K / (K - 1)) t_{K-1}): the bootstrap's spread lacks the factor sqrt(K / (K - 1)) and
    its shape lacks Student's tails. t comes from the Cornish-Fisher series (Abramowitz and Stegun
    26.7.5), good to 1 % from 4 degrees of freedom on.
    """
    normal = NormalDist()
    z, n = normal.inv_cdf((1 + LEVEL) / 2), segments - 1
    t = (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
    return normal.cdf(-((segments / n) ** 0.5) * t)
