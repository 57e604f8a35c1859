"""Replay: equal frames for every decoder, rotating order, warm-up apart; and the selection."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from drives.open import open_drive
from drives.replay import is_greedy, reference_of, replay
from drives.selection import Selection
from drives.windows import Window, windows
from planners.observation import Observation
from planners.plan import Aggregate, Plan
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from tests.drives.kinematic_planner import KinematicPlanner

WINDOWS = windows(open_drive("synthetic")).windows


@dataclass
class Listening(KinematicPlanner):
    """A kinematic planner that remembers what it was asked."""

    asked: list[tuple[str, int, int, str]] = field(default_factory=list)

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        self.asked.append((settings.method, observation.frame, settings.frame, rule))
        return super().plan(observation, settings, rule)


SETTINGS = {method: DecodeSettings(method=method) for method in ("ar", "ar-scaffold", "dflash")}


def test_every_decoder_sees_every_frame_and_the_first_place_rotates() -> None:
    planner, chosen = Listening(), WINDOWS[10:16]
    done: list[int] = []
    result = replay(planner, chosen, SETTINGS, "medoid", warmup=2, progress=done.append)
    counted = planner.asked[3 * 2 :]
    assert [frame for _, frame, _, _ in counted] == [f for f in range(10, 16) for _ in SETTINGS]
    assert [method for method, *_ in counted[::3]] == ["ar", "ar-scaffold", "dflash"] * 2
    assert Counter(method for method, *_ in counted) == dict.fromkeys(SETTINGS, 6)
    assert all(own == frame and rule == "medoid" for _, own, frame, rule in planner.asked)
    assert done == [1, 2, 3, 4, 5, 6]
    assert all(len(plans) == 6 for plans in result.plans.values())
    assert all(len(seconds) == 2 for seconds in result.warmup.values())


def test_nothing_to_replay_is_said() -> None:
    with pytest.raises(SlipstreamError, match="nothing to replay"):
        replay(KinematicPlanner(), [], SETTINGS)
    with pytest.raises(SlipstreamError, match="nothing to replay"):
        replay(KinematicPlanner(), WINDOWS[:1], {})


def test_a_window_without_its_future_is_refused() -> None:
    blind: Window = replace(WINDOWS[3], future=None)
    with pytest.raises(SlipstreamError, match="what happened next"):
        replay(KinematicPlanner(), [WINDOWS[0], blind], SETTINGS)


def test_a_decoder_is_compared_with_ar_under_the_same_conditions() -> None:
    hot = Sampling(0.5)
    settings = {
        "dflash": DecodeSettings(),
        "ar": DecodeSettings(method="ar"),
        "many": DecodeSettings(rollouts=8, sampling=hot),
        "many ar": DecodeSettings(method="ar", rollouts=8, sampling=hot),
        "seeded": DecodeSettings(seed=3),
    }
    found = {name: reference_of(name, settings) for name in settings}
    assert found == {
        "dflash": "ar",
        "ar": "ar",
        "many": "many ar",
        "many ar": "many ar",
        "seeded": "seeded",
    }
    assert is_greedy(settings["ar"])
    assert not is_greedy(settings["many"])


def test_nothing_is_compared_with_what_is_not_lossless() -> None:
    settings = {
        "fills": DecodeSettings("section-diffusion"),
        "dflash": DecodeSettings(),
        "ar-scaffold": DecodeSettings("ar-scaffold"),
    }
    assert {reference_of(name, settings) for name in settings} == {"dflash"}
    alone = {"fills": settings["fills"]}
    assert reference_of("fills", alone) == "fills"
    assert not is_greedy(settings["fills"])


def test_evenly_spread_frames_reach_from_the_first_to_the_last() -> None:
    frames = [w.observation.frame for w in Selection.parse("5").of(WINDOWS, "d")]
    assert (frames[0], frames[-1], len(frames)) == (0, len(WINDOWS) - 1, 5)
    gaps = [b - a for a, b in pairwise(frames)]
    assert max(gaps) - min(gaps) <= 1
    assert len(Selection.parse(str(len(WINDOWS))).of(WINDOWS, "d")) == len(WINDOWS)


def test_ranges_count_windows() -> None:
    frames = [w.observation.frame for w in Selection.parse("4:12:3").of(WINDOWS, "d")]
    assert frames == [4, 7, 10]
    assert len(Selection.parse("0:7").of(WINDOWS, "d")) == 7


@pytest.mark.parametrize("text", ["", "0", "-3", "x", "5:5", "9:2", "1:9:0", "1:2:3:4", "1.5", ":"])
def test_bad_selections_are_refused_without_a_drive(text: str) -> None:
    with pytest.raises(SlipstreamError, match="--frames"):
        Selection.parse(text)


@pytest.mark.parametrize("count", [len(WINDOWS) + 1, 99999])
def test_a_count_takes_at_most_what_the_drive_has(count: int) -> None:
    assert Selection.parse(str(count)).of(WINDOWS, "d") == list(WINDOWS)


@pytest.mark.parametrize("text", ["1", "0:3"])
def test_a_drive_without_windows_is_told_by_what_opens_it(text: str) -> None:
    with pytest.raises(SlipstreamError, match="has no window") as caught:
        Selection.parse(text).of([], "my drives/allnan.csv")
    assert "--frames" not in str(caught.value)
    assert caught.value.fix.startswith("slipstream drives info 'my drives/allnan.csv'")


@pytest.mark.parametrize("text", ["0:99999", "99998:99999"])
def test_ranges_beyond_the_drive_name_its_length(text: str) -> None:
    with pytest.raises(SlipstreamError, match=f"{len(WINDOWS)} windows of drive loop"):
        Selection.parse(text).of(WINDOWS, "loop")
