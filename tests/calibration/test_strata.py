"""Kinds of driving, and windows drawn evenly from all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.strata import STRATA, counts, stratified, stratum_of
from drives.windows import Window
from planners.observation import PAST_STATES, Observation
from runtime.errors import SlipstreamError
from tests.calibration.recorded import windows


def observation(speed: float, turned: float = 0.0) -> Observation:
    """One that keeps its speed, and turned by an angle (rad) in the last second."""
    headings = np.zeros(PAST_STATES)
    headings[:-4] = -turned
    headings[-4:] = -turned * np.array([0.75, 0.5, 0.25, 0.0])
    return Observation(
        positions=np.zeros((PAST_STATES, 2)),
        headings=headings,
        speeds=np.full(PAST_STATES, speed),
        accelerations=np.zeros(PAST_STATES),
        yaw_rates=np.zeros(PAST_STATES),
    )


def drive_of(kinds: str) -> list[Window]:
    """A window a letter: 0 stands, s slow, t turning, h highway, c cruising."""
    of = {"0": (0.0, 0.0), "s": (3.0, 0.0), "t": (8.0, 0.2), "h": (30.0, 0.0), "c": (12.0, 0.0)}
    return [
        Window(replace(observation(*of[kind]), frame=i), None, i, "drive", np.zeros(3))
        for i, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("speed", "turned", "stratum"),
    [
        (0.0, 0.0, "stopped"),
        (0.29, 0.5, "stopped"),  # whatever its heading does, it stands
        (-0.29, 0.0, "stopped"),
        (0.31, 0.0, "slow"),
        (-2.0, 0.0, "slow"),
        (4.99, 0.069, "slow"),
        (4.99, -0.071, "turning"),
        (25.0, 0.071, "turning"),
        (10.0, 2 * np.pi + 0.01, "cruising"),  # a full turn of the number is none of the vehicle
        (5.0, 0.0, "cruising"),
        (21.9, 0.0, "cruising"),
        (22.0, 0.0, "highway"),
    ],
)
def test_the_stratum_of_an_observation(speed: float, turned: float, stratum: str) -> None:
    assert stratum_of(observation(speed, turned)) == stratum


def test_counts_name_every_stratum() -> None:
    found = counts(drive_of("00stccc"))
    assert found == {"stopped": 2, "slow": 1, "turning": 1, "highway": 0, "cruising": 3}
    assert tuple(found) == STRATA


@given(st.text("0sthc", min_size=1, max_size=60), st.integers(1, 80), st.integers(0, 5))
def test_shares_are_as_even_as_the_drive_allows(kinds: str, count: int, seed: int) -> None:
    drive = drive_of(kinds)
    chosen = stratified(drive, count, seed)
    frames = [window.observation.frame for window in chosen]
    assert len(frames) == min(count, len(drive))
    assert frames == sorted(set(frames))  # none twice, in their order
    assert chosen == stratified(drive, count, seed)
    there, taken = counts(drive), counts(chosen)
    most = max(taken.values())
    # a stratum that gives less than another by more than one has nothing left
    assert all(taken[each] >= most - 1 or taken[each] == there[each] for each in STRATA)


def test_windows_of_a_stratum_are_spread_over_the_drive() -> None:
    drive = drive_of("c" * 100)
    frames = [window.observation.frame for window in stratified(drive, 10, seed=3)]
    assert [frame // 10 for frame in frames] == list(range(10))


def test_the_seed_chooses_other_windows() -> None:
    drive = drive_of("c" * 100)
    drawn = {tuple(w.observation.frame for w in stratified(drive, 5, seed)) for seed in range(8)}
    assert len(drawn) == 8


def test_a_real_drive_gives_all_it_has() -> None:
    chosen = stratified(windows(), 20, seed=0)
    assert counts(chosen) == {"stopped": 5, "slow": 5, "turning": 5, "highway": 0, "cruising": 5}
    at_random = Counter(stratum_of(w.observation) for w in windows()[::46])
    assert at_random["cruising"] > 10  # what an even choice is for


@pytest.mark.parametrize(("kinds", "count", "seed"), [("", 1, 0), ("c", 0, 0), ("c", 1, -1)])
def test_nothing_to_draw_is_refused(kinds: str, count: int, seed: int) -> None:
    with pytest.raises(SlipstreamError, match="no windows can be drawn") as caught:
        stratified(drive_of(kinds), count, seed)
    assert f"{len(kinds)} windows, count {count}, seed {seed}" in caught.value.found
