"""Labels of the tiny planner: what recorded motion is called, and that all of it can be said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.language import Language
from planners.manoeuvres import explain, heading_change, lateral, longitudinal, sentences
from planners.observation import Intent
from planners.presets import tiny_values
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError

from .conftest import FUTURE, arc, observe


@pytest.mark.parametrize(
    ("speed", "acceleration", "expected"),
    [
        (0.0, 0.0, "wait"),
        (0.1, 0.0, "wait"),
        (0.0, 0.8, "start"),
        (8.0, -2.0, "stop"),
        (8.0, -0.5, "slow down"),
        (8.0, 0.0, "keep speed"),
        (8.0, 0.5, "speed up"),
        (30.0, -0.5, "keep speed"),  # 2.3 m/s is less than a tenth
        (-2.0, 0.0, "back up"),
    ],
)
def test_longitudinal(speed: float, acceleration: float, expected: str) -> None:
    assert longitudinal(speed, arc(FUTURE, speed, acceleration, 0.0)) == expected


@pytest.mark.parametrize(
    ("yaw_rate", "expected"),
    [(0.2, "left"), (0.03, "leftward"), (0.0, "straight"), (-0.03, "rightward"), (-0.2, "right")],
)
def test_lateral(yaw_rate: float, expected: str) -> None:
    assert lateral(arc(FUTURE, 8.0, 0.0, yaw_rate)) == expected


def test_lane_change_is_told_by_its_offset() -> None:
    shift = 3.5 * (1 - np.cos(np.pi * FUTURE / 5)) / 2
    path = np.stack([20 * FUTURE, shift], axis=-1)
    assert lateral(path) == "leftward"
    assert lateral(path * [1, -1]) == "rightward"


def test_a_u_turn_counts_past_half_a_circle() -> None:
    assert heading_change(arc(FUTURE, 8.0, 0.0, 0.8)) == pytest.approx(4.0, abs=0.15)


def test_jitter_at_standstill_has_no_direction() -> None:
    jitter = np.random.default_rng(1).normal(0, 0.1, (20, 2))
    assert lateral(jitter) == "straight"
    assert longitudinal(0.0, np.cumsum(jitter * 0.05, axis=0)) == "wait"


def test_backing_up_straight_is_straight() -> None:
    assert heading_change(arc(FUTURE, -2.0, 0.0, 0.0)) == pytest.approx(0.0)
    assert lateral(arc(FUTURE, -2.0, 0.0, 0.0)) == "straight"


@pytest.mark.parametrize(
    ("now", "then", "sentence"),
    [
        ((8, 0, 0.1, Intent.LEFT), (-1, 0.2), "Cruising in a left bend, braking for a left turn."),
        ((0, 0, 0, Intent.RIGHT), (0, 0), "Stopped before a right turn, waiting."),
        ((0, 0, 0, Intent.UNKNOWN), (1, 0), "Stopped, setting off straight ahead."),
        ((9, -2, 0, Intent.STRAIGHT), (-2, 0), "Braking, braking to a stop."),
        ((9, 1, 0, Intent.STRAIGHT), (0, 0), "Gaining speed, keeping speed on a straight road."),
        ((9, 0, -0.1, Intent.STRAIGHT), (0.5, -0.03),
         "Cruising in a right bend, gaining speed in a bend to the right."),
        ((-2, 0, 0, Intent.UNKNOWN), (0, 0), "Backing up, backing up."),
    ],
)  # fmt: skip
def test_explanations(
    now: tuple[float, float, float, Intent], then: tuple[float, float], sentence: str
) -> None:
    speed, acceleration, yaw_rate, intent = now
    future = arc(FUTURE, speed, then[0], then[1])
    assert explain(observe(speed, acceleration, yaw_rate, intent), future) == sentence


motion = st.tuples(
    st.one_of(st.just(0.0), st.floats(-5, 50)), st.floats(-8, 4), st.floats(-0.7, 0.7)
)


@given(now=motion, then=motion, intent=st.sampled_from(Intent))
@settings(deadline=None)
def test_whatever_happens_can_be_said(
    language: Language,
    tokenizer: Tokenizer,
    now: tuple[float, float, float],
    then: tuple[float, float, float],
    intent: Intent,
) -> None:
    observation = observe(*now, intent)
    future = arc(FUTURE, now[0], then[1], then[2])
    said = tiny_values(observation, future)
    assert said["explanation"]["text"] in sentences()
    tokens = language.encode(said, tokenizer)
    assert len(tokens) == len(language.compile(tokenizer))
    waypoints = language.waypoints(language.parse(tokens, tokenizer))
    inside = np.clip(future[3::4], [-999.9, -99.9], [999.9, 99.9])
    np.testing.assert_allclose(waypoints, inside, atol=0.05 + 1e-9)


def test_mirrored_motion_has_mirrored_labels() -> None:
    for yaw_rate in (0.03, 0.2):
        left = tiny_values(observe(8.0, 0.0, yaw_rate), arc(FUTURE, 8.0, 0.0, yaw_rate))
        right = tiny_values(observe(8.0, 0.0, -yaw_rate), arc(FUTURE, 8.0, 0.0, -yaw_rate))
        for section, slot in (("meta", "lateral"), ("explanation", "text")):
            said = str(left[section][slot])
            assert said.replace("left", "right") == right[section][slot] != said
        assert left["motion"]["yaw_rate"] == yaw_rate == -float(right["motion"]["yaw_rate"])


def test_facts_are_the_prompts_digits(language: Language, tokenizer: Tokenizer) -> None:
    said = tiny_values(observe(12.3449, 0.149, 0.0004), arc(FUTURE, 12.3, 0.1, 0.0))
    facts = language.parse(language.encode(said, tokenizer), tokenizer)["motion"]
    # 12.3449 is +1234 in the prompt; 0.149 is +015, which reads as 0.15 and rounds up
    assert facts == {"speed": 12.3, "acceleration": 0.2, "yaw_rate": 0.0}


def test_every_sentence_fits(language: Language, tokenizer: Tokenizer) -> None:
    width = language.sections[1].slots["text"].width
    longest = max(len(tokenizer.encode(sentence)) for sentence in sentences())
    assert longest <= width


@pytest.mark.parametrize("future", [np.full((20, 2), math.nan), np.zeros((19, 2))])
def test_a_bad_future_is_refused(future: np.ndarray) -> None:
    with pytest.raises(SlipstreamError, match="makes no training example"):
        tiny_values(observe(5.0), future)
