"""What one trajectory a frame scores in every metric, frame by frame, so that it can be pooled.

Columns are [W] or [W, n]; NaN stands where a frame has no such figure: no plan, no rating, no
label near. Nothing here is averaged; `drives.leaderboards` does that, over the same frames for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from drives.calibration import best_of, brier, energy_score, spread
from drives.collision import EgoBox, collisions
from drives.comfort import (
    MAX_ACCELERATION,
    MAX_JERK,
    MAX_JERK_MAGNITUDE,
    MAX_LATERAL_ACCELERATION,
    MAX_YAW_ACCELERATION,
    MAX_YAW_RATE,
    MIN_ACCELERATION,
    Comfort,
    comfort,
)
from drives.conventions import NUSCENES_HORIZONS, at_two_hertz, nuscenes_l2, wod_ade
from drives.drive import AgentFrame
from drives.metrics import ade, distances, fde
from drives.rater import rater_feedback_score
from drives.windows import Window

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

HORIZON = 5  # s, of what rollouts are read at
MAX_CURVATURE = 0.2  # 1/m: a radius of 5 m, the tightest that a car turns
MAX_REVERSE = 0.2  # m; less is noise of a standing vehicle


@dataclass(frozen=True)
class Bound:
    """A limit of comfort: what it says, and which trajectories are outside of it.

    Attributes:
        text: the limit with its unit.
        outside: comfort series [W] -> [W].
        nuplan: whether it is one of nuPlan's six.
    """

    text: str
    outside: Callable[[Comfort], Bools]
    nuplan: bool = True


def _beyond(series: Floats, low: float, high: float) -> Bools:
    return np.asarray(((series < low) | (series > high)).any(axis=-1))


BOUNDS = {
    "acceleration": Bound(
        f"−{-MIN_ACCELERATION:.2f} to {MAX_ACCELERATION:.2f} m/s²",
        lambda c: _beyond(c.accelerations, MIN_ACCELERATION, MAX_ACCELERATION),
    ),
    "lateral acceleration": Bound(
        f"±{MAX_LATERAL_ACCELERATION:.2f} m/s²",
        lambda c: _beyond(
            c.lateral_accelerations, -MAX_LATERAL_ACCELERATION, MAX_LATERAL_ACCELERATION
        ),
    ),
    "jerk": Bound(f"±{MAX_JERK:.2f} m/s³", lambda c: _beyond(c.jerks, -MAX_JERK, MAX_JERK)),
    "jerk magnitude": Bound(
        f"{MAX_JERK_MAGNITUDE:.2f} m/s³",
        lambda c: _beyond(c.jerk_magnitudes, 0.0, MAX_JERK_MAGNITUDE),
    ),
    "yaw rate": Bound(
        f"±{MAX_YAW_RATE:.2f} rad/s", lambda c: _beyond(c.yaw_rates, -MAX_YAW_RATE, MAX_YAW_RATE)
    ),
    "yaw acceleration": Bound(
        f"±{MAX_YAW_ACCELERATION:.2f} rad/s²",
        lambda c: _beyond(c.yaw_accelerations, -MAX_YAW_ACCELERATION, MAX_YAW_ACCELERATION),
    ),
    "curvature": Bound(
        f"±{MAX_CURVATURE:.2f} 1/m",
        lambda c: _beyond(c.curvatures, -MAX_CURVATURE, MAX_CURVATURE),
        nuplan=False,
    ),
    "reverse": Bound(
        f"{MAX_REVERSE:.2f} m", lambda c: np.asarray(c.reverse > MAX_REVERSE), nuplan=False
    ),
}


@dataclass(frozen=True, eq=False)
class Scores:
    """W frames of one decoder, one baseline, or the log.

    Attributes:
        ade_3s, ade_5s, fde_5s: [W] m, against the log.
        top_ade_3s, top_ade_5s: [W] m, against the trajectory that the raters scored highest.
        rfs: [W] Rater Feedback Score.
        l2_at, l2_up_to: [W, 3] m, nuScenes L2 at and up to 1, 2, 3 s.
        collision_at: [W, 3] 1 or 0 at 1, 2, 3 s.
        collision_up_to: [W, 3] share of the judged steps up to 1, 2, 3 s that collide.
        discomfort: [W, len(BOUNDS)] 1 outside of a bound, 0 inside.
    """

    ade_3s: Floats
    ade_5s: Floats
    fde_5s: Floats
    top_ade_3s: Floats
    top_ade_5s: Floats
    rfs: Floats
    l2_at: Floats
    l2_up_to: Floats
    collision_at: Floats
    collision_up_to: Floats
    discomfort: Floats


@dataclass(frozen=True, eq=False)
class RolloutScores:
    """W frames of one decoder's rollouts at 5 s; a single trajectory is one rollout.

    Attributes:
        min_ade, min_fde: [W] m, of the best usable rollout, chosen each by itself.
        brier_min_fde: [W] m, minFDE + (1 - 1/N)², all N rollouts being alike, unusable ones too.
        missed: [W] 1 where every usable rollout ends over 2 m away, else 0.
        spread: [W] m, root mean square distance from the mean.
        energy_score: [W] m.
    """

    min_ade: Floats
    min_fde: Floats
    brier_min_fde: Floats
    missed: Floats
    spread: Floats
    energy_score: Floats


def path_scores(
    paths: Floats,
    windows: Sequence[Window],
    truth: Floats,
    agents: Sequence[AgentFrame] | None,
    ego: EgoBox,
) -> Scores:
    """Score one trajectory a frame.

    Steps at which the logged ego box overlaps an agent's are not judged, unless the windows have no
    future: so the log itself is scored.

    Args:
        paths: [W, 20, 2] m; NaN rows are frames without a plan.
        windows: W windows of one drive.
        truth: [W, 20, 2] m, their logged futures.
        agents: the drive's label frames, or None.
        ego: outline of the vehicle.
    """
    distance = distances(paths, truth)
    l2 = nuscenes_l2(at_two_hertz(paths), at_two_hertz(truth), "drop-frame")
    wod = wod_ade(paths, truth, [window.rated for window in windows])
    none = np.full((len(paths), len(NUSCENES_HORIZONS)), np.nan)
    at = up_to = none
    if agents is not None:
        struck = collisions(paths, windows, agents, ego)
        at = np.stack([struck.at(t) for t in NUSCENES_HORIZONS], axis=1)
        up_to = np.stack([struck.share_up_to(t) for t in NUSCENES_HORIZONS], axis=1)
    return Scores(
        ade_3s=ade(distance, 3),
        ade_5s=ade(distance, 5),
        fde_5s=fde(distance, 5),
        top_ade_3s=wod.top_rater[3],
        top_ade_5s=wod.top_rater[5],
        rfs=np.array([_rfs(path, window) for path, window in zip(paths, windows, strict=True)]),
        l2_at=l2.at,
        l2_up_to=l2.up_to,
        collision_at=at,
        collision_up_to=up_to,
        discomfort=_discomfort(paths, windows),
    )


def rollout_scores(rollouts: Sequence[Floats], truth: Floats) -> RolloutScores:
    """Score W frames of rollouts [N, 20, 2] m, NaN where unusable, against [W, 20, 2] m."""
    frames = []
    for paths, log in zip(rollouts, truth, strict=True):
        usable = int(np.isfinite(paths).all(axis=(1, 2)).sum())
        best = best_of(paths, log, max(usable, 1), HORIZON)
        frames.append(
            (
                best.min_ade,
                best.min_fde,
                brier(paths, log, HORIZON).brier_min_fde,
                best.miss_rate,
                float(spread(paths)[-1]),
                energy_score(paths, log, HORIZON),
            )
        )
    return RolloutScores(*np.array(frames, np.float64).reshape(-1, len(fields(RolloutScores))).T)


def usable_rollouts(rollouts: Sequence[Floats]) -> Floats:
    """[W] usable rollouts of W frames of [N, 20, 2] m, NaN where unusable."""
    return np.array([np.isfinite(paths).all(axis=(1, 2)).sum() for paths in rollouts], np.float64)


def compared_frames(errors: Mapping[str, Floats]) -> Bools:
    """[W] frames on which every decoder has a plan; one that never has any is not asked.

    Args:
        errors: decoder -> [W], NaN where it has no plan.
    """
    planned = np.array([np.isfinite(column) for column in errors.values()])
    return np.asarray(planned[planned.any(axis=1)].all(axis=0))


def _rfs(path: Floats, window: Window) -> float:
    if window.rated is None:
        return float("nan")
    speed = abs(float(window.observation.speeds[-1]))
    return rater_feedback_score(path, window.rated, speed).score


def _discomfort(paths: Floats, windows: Sequence[Window]) -> Floats:
    felt = comfort(paths, np.array([float(window.observation.speeds[-1]) for window in windows]))
    outside = np.stack([bound.outside(felt) for bound in BOUNDS.values()], axis=1)
    planned = np.asarray(np.isfinite(paths).all(axis=(1, 2)))
    return np.where(planned[:, None], outside, np.nan)
