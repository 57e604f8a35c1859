"""Oriented boxes against geometry worked by hand, and steps that can't be judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.collision import (
    NUSCENES_EGO,
    Collisions,
    EgoBox,
    agents_at,
    collisions,
    ego_boxes,
    overlap,
)
from drives.drive import AgentFrame
from drives.open import open_drive
from drives.windows import Window, windows
from planners.observation import Observation
from runtime.errors import SlipstreamError

AHEAD = np.stack([np.arange(1, 21) * 2.5, np.zeros(20)], axis=1)  # 10 m/s
EGO = EgoBox(4.0, 2.0, 1.0)


def observed(time: float = 10.0) -> Observation:
    past = np.zeros((16, 2))
    zeros = np.zeros(16)
    return Observation(past, zeros, zeros, zeros, zeros, time=time)


def window(future: np.ndarray | None = AHEAD, pose: tuple[float, ...] = (0, 0, 0)) -> Window:
    return Window(observed(), future, 0, "drive", np.array(pose, float))


def labels(time: float, *boxes: tuple[float, ...], kind: str = "Car") -> AgentFrame:
    array = np.array(boxes, float).reshape(-1, 5)
    return AgentFrame(
        time=time,
        ids=tuple(str(i) for i in range(len(array))),
        kinds=(kind,) * len(array),
        positions=np.column_stack([array[:, :2], np.zeros(len(array))]),
        headings=array[:, 2],
        sizes=np.column_stack([array[:, 3:5], np.ones(len(array))]),
    )


def steady(*boxes: tuple[float, ...], kind: str = "Car") -> list[AgentFrame]:
    return [labels(t, *boxes, kind=kind) for t in np.arange(10.0, 15.6, 0.5)]


def test_boxes_by_hand() -> None:
    own = np.array([0.0, 0.0, 0.0, 4.0, 2.0])
    others = np.array(
        [
            [3.9, 0, 0, 4, 2],  # 0.1 m into it
            [4.0, 0, 0, 4, 2],  # touches
            [0, 2.1, 0, 4, 2],  # beside
            [0, 0, 1.0, 0.5, 0.5],  # within
            # corner to corner: a turned square whose bounding box reaches in, but it does not
            [2.9, 1.9, np.pi / 4, 2, 2],
            [2.6, 1.6, np.pi / 4, 2, 2],
        ]
    )
    assert overlap(own, others).tolist() == [True, False, False, True, False, True]
    assert overlap(own, np.empty((0, 5))).tolist() == []


@given(st.integers(0, 2**32 - 1))
def test_overlap_is_symmetric_rigid_and_agrees_with_sampled_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (
        np.r_[rng.uniform(-4, 4, 2), rng.uniform(-4, 4), rng.uniform(0.5, 6, 2)] for _ in range(2)
    )
    found = bool(overlap(a, b[None])[0])
    assert found == bool(overlap(b, a[None])[0])
    angle, shift = rng.uniform(-3, 3), rng.uniform(-50, 50, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = [np.r_[turn @ box[:2] + shift, box[2] + angle, box[3:]] for box in (a, b)]
    spot = np.stack(np.meshgrid(*[np.linspace(-0.499, 0.499, 41)] * 2), axis=-1).reshape(-1, 2)
    cos, sin = np.cos(b[2]), np.sin(b[2])
    world = spot * b[3:] @ np.array([[cos, sin], [-sin, cos]]) + b[:2]
    cos, sin = np.cos(a[2]), np.sin(a[2])
    local = (world - a[:2]) @ np.array([[cos, -sin], [sin, cos]])
    if (np.abs(local) < a[3:] / 2 - 1e-6).all(axis=1).any():
        assert found
        assert bool(overlap(moved[0], moved[1][None])[0])
    if not found:
        grown = a.copy()
        grown[3:] += 1e-6
        assert bool(overlap(moved[0], moved[1][None])[0]) <= bool(overlap(grown, b[None])[0])


def test_the_ego_box_follows_the_path_and_the_axle_offset() -> None:
    boxes = ego_boxes(AHEAD, np.array([100.0, 50.0, np.pi / 2]), EGO)
    assert boxes[0] == pytest.approx([100, 50 + 2.5 + 1, np.pi / 2, 4, 2])
    back = ego_boxes(-AHEAD, np.zeros(3), EGO)  # reversing does not turn the vehicle around
    assert back[:, 2] == pytest.approx(np.zeros(20), abs=1e-12)
    assert back[0, 0] == pytest.approx(-1.5)
    still = ego_boxes(np.zeros((20, 2)), np.array([0.0, 0.0, 0.7]), EGO)
    assert still[:, 2] == pytest.approx(np.full(20, 0.7))


def test_rates_by_hand() -> None:
    # a parked car over x 18 .. 22; the ego box reaches from x - 1 to x + 3: hits x from 15 to 23
    found = collisions(AHEAD[None], [window(future=None)], steady((20, 0, 0, 4, 2)), EGO)
    steps = np.flatnonzero(found.hits[0]) + 1
    assert steps.tolist() == [7, 8, 9]  # x = 17.5, 20, 22.5; at 15 they touch
    assert found.judged.all()
    assert [found.at(t)[0] for t in (1, 2, 3)] == [0, 1, 0]
    # at 2 Hz the steps are 2, 4, 6, 8 (x = 20), 10, 12: one of them hits
    assert found.share_up_to(1)[0] == 0
    assert found.share_up_to(2)[0] == pytest.approx(1 / 4)
    assert found.share_up_to(3)[0] == pytest.approx(1 / 6)
    assert [found.any_up_to(t)[0] for t in (1, 2, 3)] == [0, 1, 1]


def test_steps_where_the_log_itself_collides_are_skipped() -> None:
    found = collisions(AHEAD[None], [window()], steady((20, 0, 0, 4, 2)), EGO)
    assert found.logged == 3
    assert not found.hits.any()
    assert np.isnan(found.at(2)[0])
    assert found.share_up_to(3)[0] == 0
    assert np.isnan(found.any_up_to(3)[0])
    assert found.any_up_to(1)[0] == 0


def test_without_labels_and_without_a_plan_nothing_is_claimed() -> None:
    plans = np.stack([AHEAD, np.full((20, 2), np.nan)])
    few = [labels(10.0, (20, 0, 0, 4, 2)), labels(10.5, (20, 0, 0, 4, 2))]
    found = collisions(plans, [window(None), window(None)], few, EGO)
    assert found.judged.sum() == 2  # 0.25 s and 0.5 s
    assert (found.unlabelled, found.without_plan) == (18, 1)
    assert np.isnan(found.at(3)).all()
    assert found.share_up_to(3).tolist()[0] == 0
    assert np.isnan(found.share_up_to(3)[1])
    none = collisions(plans, [window(None), window(None)], [], EGO)
    assert not none.judged.any()
    apart = [labels(9.0, (0, 0, 0, 1, 1)), labels(16.0, (0, 0, 0, 1, 1))]  # too far to carry across
    assert not collisions(AHEAD[None], [window(None)], apart, EGO).judged.any()


def test_agents_move_between_labels_and_only_while_they_are_seen() -> None:
    first = labels(0.0, (0, 0, 3.0, 4, 2), (9, 9, 0, 1, 1))
    second = labels(0.5, (10, 4, -3.0, 4, 2))  # turns through pi, the shorter way
    stamps = np.array([0.0, 0.5])
    boxes = agents_at([first, second], stamps, 0.25, None)
    assert boxes is not None
    assert boxes[:, :2] == pytest.approx(np.array([[5.0, 2.0]]))
    assert abs(boxes[0, 2]) == pytest.approx(np.pi, abs=1e-9)
    exactly = agents_at([first, second], stamps, 0.0, None)
    assert exactly is not None
    assert len(exactly) == 2


def test_kinds_choose_who_counts() -> None:
    walkers = steady((20, 0, 0, 1, 1), kind="Pedestrian")
    assert collisions(AHEAD[None], [window(None)], walkers, EGO).hits.any()
    found = collisions(AHEAD[None], [window(None)], walkers, EGO, kinds={"Car"})
    assert not found.hits.any()
    assert found.judged.all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(SlipstreamError, match="4 Hz"):
        collisions(AHEAD[None, :5], [window()], [], EGO)
    with pytest.raises(SlipstreamError, match="increasing"):
        collisions(AHEAD[None], [window()], steady()[::-1], EGO)
    with pytest.raises(SlipstreamError, match="metres"):
        EgoBox(4084, 1850, 500)
    empty = Collisions(np.zeros((1, 20), bool), np.zeros((1, 20), bool), 0, 0, 0)
    with pytest.raises(ValueError, match="horizon"):
        empty.at(6)


def test_a_recorded_drive_does_not_collide_with_its_own_road_users(shared_drives: Path) -> None:
    drive = open_drive(shared_drives / "boreas" / "boreas-objects-v1")
    cut = windows(drive, 0.5)
    if drive.agents is None or not len(cut):
        pytest.skip("no labelled windows")
    logs = np.stack([each.future for each in cut if each.future is not None])
    blind = [Window(w.observation, None, w.drive_index, w.drive, w.pose) for w in cut]
    found = collisions(logs, blind, drive.agents, NUSCENES_EGO)
    assert found.judged.any()
    assert not found.hits.any()
