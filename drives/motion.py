"""Interpolated states and causal derivatives of a drive's motion.

Both are local: a state depends on the two samples around it, a derivative on the samples up to its
own. So nothing that is computed for an instant changes when the drive goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class States:
    """States at given instants, shaped [...] like them (positions [..., 2 or 3])."""

    positions: Floats
    headings: Floats
    speeds: Floats


def interpolate(
    times: Floats, positions: Floats, headings: Floats, speeds: Floats, at: Floats
) -> States:
    """States between samples; an instant that is a sample gives exactly that sample.

    x and y by cubic Hermite whose tangents are the velocities along the heading; z, heading and
    speed linearly. Instants outside the samples are held at the first or last one.

    Args:
        times: [n] s; positions: [n, 2 or 3] m; headings: [n] rad; speeds: [n] m/s.
        at: [...] s.
    """
    below = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 1)
    above = np.minimum(below + 1, len(times) - 1)
    step = times[above] - times[below]
    share = np.clip((at - times[below]) / np.where(step > 0.0, step, 1.0), 0.0, 1.0)
    start, end = positions[below], positions[above]
    out = start + (end - start) * share[..., None]
    for axis, unit in enumerate((np.cos(headings), np.sin(headings))):
        velocity = speeds * unit
        out[..., axis] = _hermite(
            start[..., axis], end[..., axis], velocity[below], velocity[above], step, share
        )
    return States(
        positions=out,
        headings=headings[below] + (headings[above] - headings[below]) * share,
        speeds=speeds[below] + (speeds[above] - speeds[below]) * share,
    )


def linear(times: Floats, values: Floats, at: Floats) -> Floats:
    """Values [n] at instants `at` [...], linearly; exactly the sample where an instant is one."""
    below = np.clip(np.searchsorted(times, at, side="right") - 1, 0, len(times) - 1)
    above = np.minimum(below + 1, len(times) - 1)
    step = times[above] - times[below]
    share = np.clip((at - times[below]) / np.where(step > 0.0, step, 1.0), 0.0, 1.0)
    return np.asarray(values[below] + (values[above] - values[below]) * share)


def causal_derivative(
    times: Floats, values: Floats, starts: Ints, span: float, degree: int = 1
) -> Floats:
    """Time derivative at each sample from that sample and those up to `span` before it.

    Least squares of a line (degree 1) or a parabola (degree 2), differentiated at the sample. A
    line lags by about half the span and is calm; a parabola hardly lags and is noisier. With too
    few samples the degree goes down; a segment's first sample takes the second's derivative.

    Args:
        times: [n] s.
        values: [n].
        starts: [n] index of the first sample that may be used with each sample.
        span: s.
        degree: 1 or 2.

    Returns:
        [n], in the unit of `values` per second; 0 for a segment of a single sample.
    """
    index = np.arange(len(times))
    first = np.maximum(np.searchsorted(times, times - span - 1e-6), starts)
    reach = int((index - first).max(initial=0))
    # Sums over the past samples, added one by one so that their order is the same for every row.
    s0, s1, s2, s3, s4 = np.zeros((5, len(times)))
    v0, v1, v2 = np.zeros((3, len(times)))
    for back in range(reach + 1):
        past = np.maximum(index - back, 0)
        taken = index - back >= first
        used = taken.astype(np.float64)
        x = (times[past] - times) / span
        v = np.where(taken, values[past] - values, 0.0)
        s0, s1, s2 = s0 + used, s1 + used * x, s2 + used * x * x
        s3, s4 = s3 + used * x * x * x, s4 + used * x * x * x * x
        v0, v1, v2 = v0 + v, v1 + v * x, v2 + v * x * x
    line = _ratio(s0 * v1 - s1 * v0, s0 * s2 - s1 * s1)
    slope = line
    if degree == 2:
        # Cramer's rule for the linear coefficient of the parabola.
        whole = s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2)
        part = s0 * (v1 * s4 - s3 * v2) - v0 * (s1 * s4 - s2 * s3) + s2 * (s1 * v2 - v1 * s2)
        slope = np.where(s0 >= 3, _ratio(part, whole), line)
    slope = slope / span
    lonely = (index == starts) & (index + 1 < len(times))
    following = np.minimum(index + 1, len(times) - 1)
    lonely &= starts[following] == starts
    return np.where(lonely, slope[following], slope)


def segment_starts(broken: NDArray[np.bool_]) -> Ints:
    """[n] index of the first sample of each sample's unbroken stretch.

    Args:
        broken: [n - 1] True where the step from a sample to the next can't be trusted.
    """
    index = np.arange(len(broken) + 1)
    opens = np.concatenate([[True], broken])
    return np.asarray(np.maximum.accumulate(np.where(opens, index, 0)))


def _hermite(
    start: Floats, end: Floats, start_rate: Floats, end_rate: Floats, step: Floats, share: Floats
) -> Floats:
    square, cube = share * share, share * share * share
    return np.asarray(
        start
        + (end - start) * (3.0 * square - 2.0 * cube)
        + step * (start_rate * (share - 2.0 * square + cube) + end_rate * (cube - square))
    )


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    safe = denominator > 1e-12
    return np.where(safe, numerator / np.where(safe, denominator, 1.0), 0.0)
