"""Collision rate: does the ego box, carried along a plan, overlap a labelled road user's box?

Boxes are oriented rectangles seen from above and tested exactly (separating axes), without a grid.
Agents stand where they were recorded: they don't react (open loop), so a plan that lags is hit from
behind; read the rate beside that of the baselines on the same frames.

Missing data: an instant is judged only if labels bracket it within MAX_LABEL_GAP; others are in no
rate, and neither are frames without a plan. Steps at which the *logged* ego box overlaps an agent's
are label noise and are skipped, as UniAD and VAD do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame
from drives.frames import to_world
from drives.windows import Window
from planners.observation import FUTURE_STATES, RATE_HZ
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MAX_LABEL_GAP = 0.6  # s between label frames that an agent is carried across; nuScenes has 0.5
EVERY = 2  # steps from one of nuScenes' 2 Hz to the next
STANDING = 0.05  # m in a step; below it the ego box keeps its heading
_ROUNDING = 1e-6  # s


@dataclass(frozen=True)
class EgoBox:
    """The vehicle's outline.

    Attributes:
        length, width: m.
        center: m from the rear axle forward to the middle of the box.
    """

    length: float
    width: float
    center: float

    def __post_init__(self) -> None:
        if not (0 < self.length < 50 and 0 < self.width < 10 and abs(self.center) < 25):
            raise SlipstreamError(
                "the ego box has no vehicle's size",
                expected="length, width and center in m, such as 4.084, 1.85 and 1.37",
                found=f"{self.length}, {self.width}, {self.center}",
                fix="give metres",
            )


# Renault Zoe of nuScenes; UniAD and VAD shift it by 0.5 m only, as their lidar frame is ahead.
NUSCENES_EGO = EgoBox(4.084, 1.85, 1.37)


@dataclass(frozen=True, eq=False)
class Collisions:
    """Overlaps of W frames at the 20 steps of their plans.

    Attributes:
        hits: [W, 20] the ego box overlaps an agent's.
        judged: [W, 20] where `hits` means something.
        logged: steps skipped since the logged ego box overlaps an agent's.
        unlabelled: steps without labels near them.
        without_plan: frames without a plan.
    """

    hits: Bools
    judged: Bools
    logged: int
    unlabelled: int
    without_plan: int

    def at(self, horizon: float) -> Floats:
        """[W] 1 or 0 at the step of a horizon in s (UniAD); NaN where it is not judged."""
        step = _steps(horizon) - 1
        return np.where(self.judged[:, step], self.hits[:, step], np.nan)

    def share_up_to(self, horizon: float) -> Floats:
        """[W] share of the judged steps up to a horizon that collide (ST-P3, VAD).

        Their steps are 0.5 s apart, so every second one counts.
        """
        steps = slice(EVERY - 1, _steps(horizon), EVERY)
        judged, hits = self.judged[:, steps], self.hits[:, steps]
        count = judged.sum(axis=1)
        share = (hits & judged).sum(axis=1) / np.maximum(count, 1)
        return np.where(count > 0, share, np.nan)

    def any_up_to(self, horizon: float) -> Floats:
        """[W] 1 where a judged step up to a horizon collides, 0 where all are judged and none does.

        A frame with steps that are not judged and no collision at the others has NaN.
        """
        judged, hits = self.judged[:, : _steps(horizon)], self.hits[:, : _steps(horizon)]
        struck = (hits & judged).any(axis=1)
        return np.where(struck, 1.0, np.where(judged.all(axis=1), 0.0, np.nan))


def collisions(
    trajectories: Floats,
    windows: Sequence[Window],
    agents: Sequence[AgentFrame],
    ego: EgoBox = NUSCENES_EGO,
    kinds: Collection[str] | None = None,
) -> Collisions:
    """Judge the plans of W windows of one drive.

    Between label frames an agent moves in a straight line and turns the shorter way; it is only
    there while its track is in both. Boxes that just touch do not overlap.

    Args:
        trajectories: [W, 20, 2] m, each in its window's ego frame; NaN rows are frames without a
            plan.
        windows: W windows of the drive.
        agents: the drive's label frames, in the order of time.
        ego: the vehicle's outline.
        kinds: classes that count; None takes all.

    Raises:
        SlipstreamError: arrays that don't fit together, or label frames out of order.
    """
    if trajectories.shape != (len(windows), FUTURE_STATES, 2):
        expected = f"shape [{len(windows)}, {FUTURE_STATES}, 2] at 4 Hz"
        raise _bad("trajectories", expected, trajectories.shape)
    stamps = np.array([frame.time for frame in agents])
    if len(stamps) and not (np.diff(stamps) > 0).all():
        raise _bad("label frames", "increasing times", "repeated or reversed ones")
    planned = np.asarray(np.isfinite(trajectories).all(axis=(1, 2)))
    shape = (len(windows), FUTURE_STATES)
    hits, judged = np.zeros(shape, bool), np.zeros(shape, bool)
    logged = unlabelled = 0
    for row, window in enumerate(windows):
        if not planned[row]:
            continue
        plan = ego_boxes(trajectories[row], window.pose, ego)
        log = None if window.future is None else ego_boxes(window.future, window.pose, ego)
        for step in range(FUTURE_STATES):
            instant = window.observation.time + (step + 1) / RATE_HZ
            boxes = agents_at(agents, stamps, instant, kinds)
            if boxes is None:
                unlabelled += 1
            elif log is not None and overlap(log[step], boxes).any():
                logged += 1
            else:
                judged[row, step] = True
                hits[row, step] = overlap(plan[step], boxes).any()
    return Collisions(hits, judged, logged, unlabelled, int((~planned).sum()))


def ego_boxes(trajectory: Floats, pose: Floats, ego: EgoBox) -> Floats:
    """[20, 5] boxes (center x, y, heading, length, width) in the world along an ego-frame path.

    The heading follows the path; a step of more than 90° is driven backwards, and while standing
    the heading stays.
    """
    world = to_world(trajectory, pose[:2], float(pose[2]))
    boxes, heading, before = np.empty((len(world), 5)), float(pose[2]), pose[:2]
    for box, point in zip(boxes, world, strict=True):
        step = point - before
        if np.hypot(*step) >= STANDING:
            turn = (np.arctan2(step[1], step[0]) - heading + np.pi) % (2 * np.pi) - np.pi
            heading += turn if abs(turn) <= 0.5 * np.pi else turn - np.copysign(np.pi, turn)
        center = point + ego.center * np.array([np.cos(heading), np.sin(heading)])
        box[:] = (*center, heading, ego.length, ego.width)
        before = point
    return boxes


def agents_at(
    agents: Sequence[AgentFrame], stamps: Floats, instant: float, kinds: Collection[str] | None
) -> Floats | None:
    """[k, 5] boxes (x, y, heading, length, width) in the world at an instant; None: no labels near.

    Args:
        stamps: [m] s, the times of `agents`.
    """
    above = int(np.searchsorted(stamps, instant - _ROUNDING))
    if above < len(stamps) and abs(stamps[above] - instant) <= _ROUNDING:
        return _boxes(agents[above], kinds)[1]
    if above in (0, len(stamps)) or stamps[above] - stamps[above - 1] > MAX_LABEL_GAP:
        return None
    share = (instant - stamps[above - 1]) / (stamps[above] - stamps[above - 1])
    ids, first = _boxes(agents[above - 1], kinds)
    later, second = _boxes(agents[above], kinds)
    rows = {name: row for row, name in enumerate(later)}
    pairs = [(row, rows[name]) for row, name in enumerate(ids) if name in rows]
    if not pairs:
        return np.empty((0, 5))
    from_, to = (np.array(column) for column in zip(*pairs, strict=True))
    change = second[to] - first[from_]
    change[:, 2] = (change[:, 2] + np.pi) % (2 * np.pi) - np.pi
    return np.asarray(first[from_] + share * change)


def overlap(box: Floats, others: Floats) -> Bools:
    """[k] whether a box [5] overlaps others [k, 5] (x, y, heading, length, width).

    Two rectangles are apart if some side of one of them separates them (separating axis theorem).
    """
    reach = 0.5 * (np.hypot(*box[3:]) + np.hypot(others[:, 3], others[:, 4]))
    near = np.hypot(others[:, 0] - box[0], others[:, 1] - box[1]) <= reach
    hit = np.zeros(len(others), bool)
    if near.any():
        hit[near] = _overlap(box, others[near])
    return hit


def _overlap(box: Floats, others: Floats) -> Bools:
    corners, theirs = _corners(box[None])[0], _corners(others)  # [4, 2], [k, 4, 2]
    apart = np.zeros(len(others), bool)
    for heading in (np.broadcast_to(box[2], len(others)), others[:, 2]):
        for angle in (heading, heading + 0.5 * np.pi):
            axis = np.stack([np.cos(angle), np.sin(angle)], axis=-1)  # [k, 2]
            own, other = axis @ corners.T, (theirs @ axis[:, :, None])[..., 0]  # [k, 4]
            apart |= (own.max(axis=1) <= other.min(axis=1)) | (other.max(axis=1) <= own.min(axis=1))
    return ~apart


def _corners(boxes: Floats) -> Floats:
    """[k, 4, 2]"""
    along = np.stack([np.cos(boxes[:, 2]), np.sin(boxes[:, 2])], axis=-1) * boxes[:, 3:4] / 2
    left = np.stack([-np.sin(boxes[:, 2]), np.cos(boxes[:, 2])], axis=-1) * boxes[:, 4:5] / 2
    center = boxes[:, :2]
    return np.stack(
        [
            center + along + left,
            center + along - left,
            center - along - left,
            center - along + left,
        ],
        axis=1,
    )


def _boxes(frame: AgentFrame, kinds: Collection[str] | None) -> tuple[list[str], Floats]:
    """Names and [k, 5] boxes of the classes that count and whose numbers are finite."""
    headings = frame.headings[:, None]
    boxes = np.concatenate([frame.positions[:, :2], headings, frame.sizes[:, :2]], axis=1)
    counts = np.array([kinds is None or kind in kinds for kind in frame.kinds], bool)
    rows = np.flatnonzero(counts & np.isfinite(boxes).all(axis=1))
    return [frame.ids[row] for row in rows], boxes[rows]


def _steps(horizon: float) -> int:
    steps = round(horizon * RATE_HZ)
    if not 1 <= steps <= FUTURE_STATES:
        raise ValueError(f"horizon {horizon} s is outside of 0.25..5 s")
    return steps


def _bad(name: str, expected: str, found: object) -> SlipstreamError:
    return SlipstreamError(
        f"{name} can't be checked for collisions",
        expected=expected,
        found=str(found),
        fix="see the docstring of `drives.collision.collisions`",
    )
