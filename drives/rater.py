"""Rater Feedback Score of the Waymo Open Dataset end-to-end challenge (WOD-E2E, arXiv 2510.26125).

Human raters drew and scored up to three trajectories of a frame. A prediction gets the score of the
best rater whose trust region it is in at 3 s and at 5 s; outside, the score decays tenfold for each
further size of the region, but not below 4.

Missing data: a prediction with a NaN has the score NaN. It is never scored as standing still, and
averages count how many frames they left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planners.observation import FUTURE_STATES
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

FLOOR = 4.0  # the least score outside of every trust region
RATERS = 3  # the official score reads no more
BEST, WORST = 10.0, 0.0  # scores that raters give
_CHECKED = np.array([11, 19])  # points at 3 s and 5 s
_LATERAL = np.array([1.0, 1.8])  # m, at 3 s and 5 s, before scaling
_LONGITUDINAL = 4.0 * _LATERAL
_DECAY = 0.1


@dataclass(frozen=True, eq=False)
class Rated:
    """What raters said about one frame.

    Attributes:
        trajectories: one [k, 2] m for each rater, k of at least 1, at 4 Hz from t+0.25 s in the
            frame's ego frame.
        scores: as many, 0 to 10.

    Raises:
        SlipstreamError: no trajectory, an empty one, a NaN, or a score outside of 0 to 10 (WOD-E2E
            marks frames without a rating with -1: leave those out).
    """

    trajectories: tuple[Floats, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.trajectories or len(self.trajectories) != len(self.scores):
            found = f"{len(self.trajectories)} trajectories, {len(self.scores)} scores"
            raise _bad("the ratings of a frame", "a score for each of at least one", found)
        for points in self.trajectories:
            if points.ndim != 2 or points.shape[1] != 2 or not len(points):
                raise _bad("a rated trajectory", "shape [k, 2], k at least 1", points.shape)
            if not np.isfinite(points).all():
                raise _bad("a rated trajectory", "finite numbers", "a NaN or an infinity")
        for score in self.scores:
            if not WORST <= score <= BEST:
                raise _bad("a rater's score", f"{WORST:g} to {BEST:g}", score)

    @property
    def top(self) -> Floats:
        """[k, 2] m, the trajectory with the highest score; of equals the first."""
        return self.trajectories[int(np.argmax(self.scores))]


@dataclass(frozen=True, eq=False)
class RaterScore:
    """The score of one frame.

    Attributes:
        score: of the frame: the predictions' scores weighted with their probabilities.
        each: [M] every prediction alone.
        inside: [M] whether one rater's region holds it at both times.
    """

    score: float
    each: Floats
    inside: Bools


def rater_feedback_score(
    predictions: ArrayLike,
    rated: Rated,
    v0: float,
    probabilities: ArrayLike | None = None,
    *,
    floor: float = FLOOR,
) -> RaterScore:
    """Score the predictions of one frame as the official metric does.

    Regions scale with s = clip(0.5 + 0.5 (v0 - 1.4) / 9.6, 0.5, 1); beside the path 1.0 s and
    1.8 s m at 3 s and 5 s, along it four times as much. Different raters may win at the two times.
    Only the first three raters count; their trajectories are cut to 20 points or continued by
    their last one.

    Args:
        predictions: [20, 2] or [M, 20, 2] m at 4 Hz, ego frame.
        rated: the frame's ratings.
        v0: m/s, the speed now.
        probabilities: [M], used as they are, not renormalised; one prediction has 1, several need
            them.
        floor: least score of a prediction outside of every region.

    Raises:
        SlipstreamError: other than 20 points, a v0 that is negative or not finite, or
            probabilities that don't fit.
    """
    paths = np.asarray(predictions, np.float64)
    paths = paths[None] if paths.ndim == 2 else paths
    if paths.ndim != 3 or not len(paths) or paths.shape[1:] != (FUTURE_STATES, 2):
        raise _bad("predictions", f"shape [M, {FUTURE_STATES}, 2] at 4 Hz", paths.shape)
    if not 0.0 <= v0 < float("inf"):
        raise _bad("v0", "a speed of at least 0 m/s", v0)
    weights = _weights(probabilities, len(paths))
    error = _region_errors(paths, rated, v0)  # [M, R, 2]
    scores = np.array(rated.scores[:RATERS])[:, None]
    decayed = scores * _DECAY ** np.maximum(error - 1.0, 0.0)
    inside = np.asarray(error.max(axis=2).min(axis=1) <= 1.0)
    each = decayed.max(axis=1).mean(axis=1)
    each = np.where(inside, each, np.maximum(each, floor))
    each[~np.isfinite(paths).all(axis=(1, 2))] = np.nan
    return RaterScore(float(weights @ each), each, inside)


@dataclass(frozen=True)
class ClusterAverage:
    """Scores of many frames.

    Attributes:
        value: unweighted mean over the clusters, the leaderboard's figure.
        frame_mean: mean over the frames, whatever their cluster.
        clusters: cluster -> (mean, frames).
        frames: scored frames.
        missing: frames without a score; they are in no mean.
    """

    value: float
    frame_mean: float
    clusters: dict[str, tuple[float, int]]
    frames: int
    missing: int


def cluster_average(scores: ArrayLike, clusters: Sequence[str]) -> ClusterAverage:
    """Average frames' scores [W] by scenario cluster [W]; NaN scores are left out and counted.

    A cluster without any scored frame is left out of the mean, so compare figures only where the
    clusters are the same.

    Raises:
        SlipstreamError: another number of clusters than of scores.
    """
    values = np.asarray(scores, np.float64)
    if values.shape != (len(clusters),):
        raise _bad("clusters", f"one for each of the {values.shape} scores", len(clusters))
    known = np.isfinite(values)
    names = np.array(clusters, dtype=object)
    table = {
        name: (float(values[known & (names == name)].mean()), int((known & (names == name)).sum()))
        for name in sorted(set(names[known]))
    }
    nothing = float("nan")
    return ClusterAverage(
        value=float(np.mean([mean for mean, _ in table.values()])) if table else nothing,
        frame_mean=float(values[known].mean()) if known.any() else nothing,
        clusters=table,
        frames=int(known.sum()),
        missing=int((~known).sum()),
    )


def trust_scale(v0: float) -> float:
    """How much of the full trust region a speed in m/s gets: 0.5 below 1.4, 1 from 11 on."""
    return min(max(0.5 + 0.5 * (v0 - 1.4) / 9.6, 0.5), 1.0)


def _region_errors(paths: Floats, rated: Rated, v0: float) -> Floats:
    """[M, R, 2] distance from each rater at 3 s and 5 s in sizes of the region: <= 1 is inside."""
    raters = np.stack([_twenty(points) for points in rated.trajectories[:RATERS]])  # [R, 20, 2]
    along = np.stack([_directions(points) for points in raters])[:, _CHECKED]  # [R, 2, 2]
    across = np.stack([-along[..., 1], along[..., 0]], axis=-1)
    offset = paths[:, None, _CHECKED] - raters[None][:, :, _CHECKED]  # [M, R, 2, 2]
    scale = trust_scale(v0)
    longitudinal = np.abs((offset * along).sum(axis=-1)) / (_LONGITUDINAL * scale)
    lateral = np.abs((offset * across).sum(axis=-1)) / (_LATERAL * scale)
    return np.asarray(np.maximum(longitudinal, lateral))


def _twenty(points: Floats) -> Floats:
    tail = np.repeat(points[-1:], max(FUTURE_STATES - len(points), 0), axis=0)
    return np.concatenate([points[:FUTURE_STATES], tail])


def _directions(points: Floats) -> Floats:
    """[20, 2] unit directions; a point that did not move keeps the one before, at first +x."""
    direction, found = np.array([1.0, 0.0]), []
    for step in np.diff(points, axis=0, prepend=np.zeros((1, 2))):
        length = math.hypot(*step)
        direction = step / length if length > 0.0 else direction
        found.append(direction)
    return np.stack(found)


def _weights(probabilities: ArrayLike | None, count: int) -> Floats:
    if probabilities is None and count == 1:
        return np.ones(1)
    given = np.empty(0) if probabilities is None else np.asarray(probabilities, np.float64)
    if given.shape != (count,) or not (np.isfinite(given) & (given >= 0)).all():
        found = "none" if probabilities is None else given
        raise _bad("probabilities", f"{count} numbers of at least 0, one a prediction", found)
    return given


def _bad(name: str, expected: str, found: object) -> SlipstreamError:
    return SlipstreamError(
        f"{name} can't be scored",
        expected=expected,
        found=str(found)[:200],
        fix="leave the frame out, or mend its data; see `drives.rater`",
    )
