"""Displacement errors as two benchmarks define them, each convention under its own name.

nuScenes open loop has two that share a table all too often: L2 *at* t (UniAD) and L2 averaged *up
to* t (ST-P3, VAD), and three ways to treat frames whose future is cut off by the end of the scene.
WOD-E2E scores validation runs against the log, but its test server against the trajectory that the
raters liked best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from drives.metrics import ade, distances
from drives.rater import Rated
from planners.observation import FUTURE_STATES, RATE_HZ
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

MaskPolicy = Literal["drop-frame", "zero-error", "known-steps"]
NUSCENES_RATE_HZ = 2.0
NUSCENES_POINTS = 6  # 0.5 s .. 3 s
NUSCENES_HORIZONS = (1, 2, 3)  # s
WOD_HORIZONS = (3, 5)  # s


@dataclass(frozen=True, eq=False)
class NuscenesL2:
    """L2 in m under one mask policy. A figure is the mean of its column over the frames.

    Attributes:
        policy: how cut-off futures were treated; see `nuscenes_l2`.
        at: [W, 3] the error at 1, 2, 3 s of each frame; NaN where the frame has none.
        up_to: [W, 3] the mean error of the points up to 1, 2, 3 s.
        frames: [3] frames in the means at 1, 2, 3 s.
        cut_off: frames whose future is not complete.
        without_plan: frames without a finite prediction; they are in no mean.
    """

    policy: MaskPolicy
    at: Floats
    up_to: Floats
    frames: tuple[int, int, int]
    cut_off: int
    without_plan: int

    @property
    def means_at(self) -> tuple[float, float, float, float]:
        """L2 at 1, 2, 3 s and the average of the three (UniAD's table)."""
        return _row(self.at)

    @property
    def means_up_to(self) -> tuple[float, float, float, float]:
        """L2 up to 1, 2, 3 s and the average of the three: averaged twice (ST-P3's, VAD's)."""
        return _row(self.up_to)


def nuscenes_l2(
    trajectories: Floats, truth: Floats, policy: MaskPolicy = "drop-frame"
) -> NuscenesL2:
    """L2 of nuScenes open-loop planning in both conventions.

    drop-frame: a frame with any unknown future point is left out (VAD, and most that follow it).
    zero-error: an unknown point counts as no error and its frame stays in the mean, which is what
    UniAD's mask does; it flatters. known-steps: a frame counts at t if its point at t is known, and
    up to t with the mean of its known points.

    Args:
        trajectories: [W, 6, 2] m at 2 Hz from t+0.5 s; rows with a NaN are frames without a plan.
        truth: [W, 6, 2] m; NaN where the future is not known.
        policy: of unknown future points.

    Raises:
        SlipstreamError: other shapes (4 Hz plans: `at_two_hertz`), or an unknown policy.
    """
    for name, given in (("trajectories", trajectories), ("truth", truth)):
        if given.ndim != 3 or given.shape[1:] != (NUSCENES_POINTS, 2):
            expected = f"shape [W, {NUSCENES_POINTS}, 2] at 2 Hz from t+0.5 s"
            raise _bad(name, expected, given.shape, "thin 4 Hz points with `at_two_hertz`")
    if len(trajectories) != len(truth):
        expected = f"as many as the {len(trajectories)} trajectories"
        raise _bad("truth", expected, len(truth), "give both for the same frames")
    if policy not in get_args(MaskPolicy):
        raise _bad("policy", " or ".join(get_args(MaskPolicy)), policy, "name one of them")
    planned = np.asarray(np.isfinite(trajectories).all(axis=(1, 2)))
    known = np.asarray(np.isfinite(truth).all(axis=2))
    complete = np.asarray(known.all(axis=1))
    error = np.linalg.norm(trajectories - truth, axis=2)
    if policy == "drop-frame":
        error[~complete] = np.nan
    elif policy == "zero-error":
        error[~known] = 0.0
    error[~planned] = np.nan
    steps = [round(t * NUSCENES_RATE_HZ) for t in NUSCENES_HORIZONS]
    at = error[:, [step - 1 for step in steps]]
    up_to = np.stack([_mean_known(error[:, :step]) for step in steps], axis=1)
    counts = np.isfinite(at).sum(axis=0)
    return NuscenesL2(
        policy=policy,
        at=at,
        up_to=up_to,
        frames=(int(counts[0]), int(counts[1]), int(counts[2])),
        cut_off=int((~complete).sum()),
        without_plan=int((~planned).sum()),
    )


def at_two_hertz(points: Floats) -> Floats:
    """The six points 0.5 s .. 3 s of [..., 20, 2] at 4 Hz: [..., 6, 2]."""
    if points.shape[-2:] != (FUTURE_STATES, 2):
        expected = f"shape [..., {FUTURE_STATES}, 2] at 4 Hz"
        raise _bad("points", expected, points.shape, "resample them to 4 Hz first")
    every = round(RATE_HZ / NUSCENES_RATE_HZ)
    return np.asarray(points[..., every - 1 : every * NUSCENES_POINTS : every, :])


@dataclass(frozen=True, eq=False)
class WodAde:
    """ADE of WOD-E2E in m, horizon in s -> [W]; NaN where a frame has none. Never mix the columns.

    Attributes:
        log: against the recorded future, all frames that have one.
        top_rater: against the trajectory with the highest score, rated frames (the test server's).
        log_of_rated: against the recorded future on just the frames of `top_rater`, so that the
            two can be compared.
    """

    log: dict[int, Floats]
    top_rater: dict[int, Floats]
    log_of_rated: dict[int, Floats]

    def frames(self) -> dict[str, int]:
        """Column, e.g. "log ADE@5s" -> frames in its mean."""
        return {
            f"{name} ADE@{t}s": int(np.isfinite(column[t]).sum())
            for name, column in (
                ("log", self.log),
                ("top-rater", self.top_rater),
                ("log of rated", self.log_of_rated),
            )
            for t in WOD_HORIZONS
        }


def wod_ade(trajectories: Floats, log: Floats, rated: Sequence[Rated | None]) -> WodAde:
    """ADE@3s and ADE@5s against the log and against the top-rated trajectory.

    A frame without a plan, or whose reference does not reach the horizon, has NaN there: a short
    trajectory of a rater is not continued, since its end would count as a stopped car.

    Args:
        trajectories: [W, 20, 2] m at 4 Hz; NaN rows are frames without a plan.
        log: [W, 20, 2] m; NaN where the future is not known.
        rated: [W] ratings, None where a frame has none.

    Raises:
        SlipstreamError: arrays that don't fit together.
    """
    count = len(trajectories)
    for name, given in (("trajectories", trajectories), ("log", log)):
        if given.shape != (count, FUTURE_STATES, 2):
            expected = f"shape [{count}, {FUTURE_STATES}, 2] at 4 Hz"
            raise _bad(name, expected, given.shape, "give both for the same frames")
    if len(rated) != count:
        raise _bad("rated", f"{count} entries", len(rated), "give None for unrated frames")
    top = np.full(log.shape, np.nan)
    for points, frame in zip(top, rated, strict=True):
        if frame is not None:
            length = min(len(frame.top), FUTURE_STATES)
            points[:length] = frame.top[:length]
    to_log, to_top = distances(trajectories, log), distances(trajectories, top)
    against_log = {t: ade(to_log, t) for t in WOD_HORIZONS}
    against_top = {t: ade(to_top, t) for t in WOD_HORIZONS}
    return WodAde(
        log=against_log,
        top_rater=against_top,
        log_of_rated={
            t: np.where(np.isfinite(against_top[t]), against_log[t], np.nan) for t in WOD_HORIZONS
        },
    )


def _mean_known(errors: Floats) -> Floats:
    """[W, n] -> [W] mean over the known ones; NaN where there is none."""
    known = np.isfinite(errors)
    count = known.sum(axis=1)
    total = np.where(known, errors, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _row(values: Floats) -> tuple[float, float, float, float]:
    first, second, third = (float(value) for value in _mean_known(values.T))
    return first, second, third, (first + second + third) / 3.0


def _bad(name: str, expected: str, found: object, fix: str) -> SlipstreamError:
    return SlipstreamError(
        f"{name} can't be compared", expected=expected, found=str(found)[:200], fix=fix
    )
