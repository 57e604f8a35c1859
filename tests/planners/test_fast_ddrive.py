"""True outputs in Fast-dDrive's language, for windows whose facts are known."""

from __future__ import annotations

import numpy as np
import pytest

from planners.fast_ddrive import UNKNOWN, direction, fast_ddrive_language, fast_ddrive_values
from planners.observation import PAST_STATES, Intent, Observation
from planners.published import COMMANDS, CRITICAL_OBJECTS, SPEEDS, fast_ddrive
from planners.slots import Choice
from planners.tokens import Tokenizer
from planners.training.tokenizer import (
    FAST_DDRIVE_VOCABULARY,
    train_fast_ddrive_tokenizer,
)
from runtime.errors import SlipstreamError
from runtime.schema import schema_blocks

AHEAD = np.arange(1, 21) / 4.0


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer(train_fast_ddrive_tokenizer())


def observe(
    speed: float = 10.0, gain: float = 0.0, yaw: float = 0.0, **more: Intent
) -> Observation:
    ages = np.arange(-PAST_STATES + 1, 1) / 4.0
    speeds, ones = speed + gain * ages, np.ones(PAST_STATES)
    along = speed * ages + gain * ages**2 / 2
    positions = np.stack([along, np.zeros(PAST_STATES)], -1)
    return Observation(positions, yaw * ages, speeds, gain * ones, yaw * ones, **more)


def path(speed: float, gain: float = 0.0, yaw: float = 0.0, aside: float = 0.0) -> np.ndarray:
    lengths = speed * AHEAD + gain * AHEAD**2 / 2
    steps = np.diff(lengths, prepend=0.0)
    angles = yaw * (AHEAD - 0.125)
    points = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], -1) * steps[:, None], 0)
    points[:, 1] += aside * (3 * (AHEAD / 5) ** 2 - 2 * (AHEAD / 5) ** 3)
    return np.asarray(points)


def test_published_flags_stay_yes_and_no() -> None:
    plain, open_ = fast_ddrive(), fast_ddrive_language()
    flag, third = (x.sections[0].slots["pedestrian"] for x in (plain, open_))
    assert isinstance(flag, Choice)
    assert isinstance(third, Choice)
    assert flag.options == ("yes", "no")
    assert third.options == ("yes", "no", "unknown")
    assert plain.sections[1:] == open_.sections[1:]


def test_280_values_in_eleven_blocks_with_the_trained_tokenizer(words: Tokenizer) -> None:
    scaffold = fast_ddrive_language().compile(words)
    assert words.vocab <= FAST_DDRIVE_VOCABULARY
    assert int(scaffold.is_value.sum()) == 280
    assert int(schema_blocks(scaffold, 32).max()) + 1 == 11


@pytest.mark.parametrize("intent", list(Intent))
def test_outputs_come_back_and_fill_a_fair_part_of_the_text(
    words: Tokenizer, intent: Intent
) -> None:
    language = fast_ddrive_language()
    future = path(10.0, -1.0, 0.05)
    said = fast_ddrive_values(observe(10.0, 0.5, 0.02, intent=intent), future)
    tokens = language.encode(said, words)
    parsed = language.parse(tokens, words)
    assert parsed["explanation"]["text"] == said["explanation"]["text"]
    assert language.waypoints(parsed) == pytest.approx(future[3::4], abs=0.0051)
    assert 64 < len(words.encode(str(said["explanation"]["text"]))) <= 192


def test_the_text_says_what_was_and_what_comes() -> None:
    left = observe(10.0, 0.5, 0.1, intent=Intent.LEFT)
    text = str(fast_ddrive_values(left, path(10.0, -1.0, 0.1))["explanation"]["text"])
    for fact in (
        "Gaining speed in a left bend, braking for a left turn.",
        "The speed is 10.0 m/s, 1.5 m/s more than 3 seconds ago.",
        "The heading has changed by 17 degrees to the left.",
        "The command is to go left.",
        "Nothing is known about other road users.",
        "In 2 seconds the path leads 18 m ahead and 1.7 m to the left, at a speed of 8 m/s.",
        "In 5 seconds",
    ):
        assert fact in text


def test_a_standing_vehicle_has_words_too() -> None:
    said = fast_ddrive_values(observe(0.0), np.zeros((20, 2)))
    text = str(said["explanation"]["text"])
    assert "Stopped, waiting. The vehicle stands, as it was 3 seconds ago." in text
    assert "the path leads 0 m ahead and straight on, at a speed of 0 m/s." in text
    assert said["future_meta_behavior"] == {"longitudinal": "stop", "lateral": "straight"}


def test_known_flags_are_said() -> None:
    flags = [UNKNOWN] * 12
    flags[0], flags[1], flags[6] = "no", "yes", "yes"
    said = fast_ddrive_values(observe(), path(10.0), flags)
    assert list(said["critical_objects"].values()) == flags
    assert list(said["critical_objects"]) == list(CRITICAL_OBJECTS)
    assert "To be watched: pedestrian, road hazard." in str(said["explanation"]["text"])
    calm = fast_ddrive_values(observe(), path(10.0), ["no", *flags[3:6], *[UNKNOWN] * 8])
    assert "No known road user is near." in str(calm["explanation"]["text"])


@pytest.mark.parametrize(
    ("future", "phrases"),
    [
        (path(10.0), ("keep", "straight")),
        (path(10.0, 1.0), ("accelerate", "straight")),
        (path(10.0, -1.0), ("decelerate", "straight")),
        (path(10.0, 0.0, 0.1), ("keep", "left_turn")),
        (path(10.0, 0.0, -0.1), ("keep", "right_turn")),
        (path(10.0, 0.0, 0.04), ("keep", "lane_follow")),
        (path(10.0, 0.0, -0.04), ("keep", "lane_follow")),
        (path(15.0, 0.0, 0.0, 3.5), ("keep", "lane_change_left")),
        (path(15.0, 0.0, 0.0, -3.5), ("keep", "lane_change_right")),
    ],
)
def test_phrases(future: np.ndarray, phrases: tuple[str, str]) -> None:
    speed = 15.0 if abs(future[-1, 1]) == 3.5 else 10.0
    said = fast_ddrive_values(observe(speed), future)["future_meta_behavior"]
    assert (said["longitudinal"], said["lateral"]) == phrases
    assert phrases[0] in SPEEDS
    assert phrases[1] in COMMANDS


def test_backing_up_is_reverse() -> None:
    back = np.stack([-AHEAD, np.zeros(20)], -1)
    assert direction(0.0, back) == "reverse"
    said = fast_ddrive_values(observe(0.0), back)
    assert said["future_meta_behavior"] == {"longitudinal": "other", "lateral": "reverse"}
    assert "the path leads 5 m back" in str(said["explanation"]["text"])


def test_far_points_are_clipped_and_bad_ones_refused(words: Tokenizer) -> None:
    far = fast_ddrive_values(observe(), path(900.0))
    assert far["trajectory"]["x5"] == 999.99
    assert len(fast_ddrive_language().encode(far, words)) > 280
    for future in (np.zeros((5, 2)), np.full((20, 2), np.nan)):
        with pytest.raises(SlipstreamError):
            fast_ddrive_values(observe(), future)
