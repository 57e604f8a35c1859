"""Observations that no plan can be made from are refused where they are made."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from planners.observation import Intent, Observation
from planners.prompt import prompt_text
from runtime.errors import SlipstreamError

STILL = Observation(np.zeros((16, 2)), *np.zeros((4, 16)), intent=Intent.LEFT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("positions", np.zeros((16, 3))),
        ("positions", np.zeros((15, 2))),
        ("positions", [[0.0, 0.0]] * 16),
        ("speeds", np.zeros((16, 1))),
        ("speeds", None),
        ("speeds", np.array(["fast"] * 16)),
        ("headings", np.array([np.nan, *[0.0] * 15])),
        ("accelerations", np.array([np.inf, *[0.0] * 15])),
        ("yaw_rates", np.full(16, np.nan)),
        ("speeds", np.full(16, 1e308)),
        ("speeds", np.full(16, np.longdouble("1e400"))),
        ("speeds", np.zeros(16, bool)),
        ("speeds", np.ma.array(np.zeros(16), mask=[True, *[False] * 15])),
        ("intent", 7),
        ("intent", True),
        ("frame", True),
        ("time", True),
        ("time", 10**400),
        ("intent", "left"),
        ("frame", -1),
        ("frame", 1.5),
        ("frame", None),
        ("time", None),
        ("time", "now"),
        ("time", float("nan")),
    ],
)
def test_a_bad_observation_is_refused(name: str, value: object) -> None:
    with pytest.raises(SlipstreamError, match=name) as caught:
        replace(STILL, **{name: value})
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.found not in caught.value.expected
    assert "\n" not in caught.value.found


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["u1", "i1", "u2", "i4", "u8", "f2", "f4", "g", ">f8"])
def test_arrays_of_any_numbers_are_planned_from_as_they_are(kind: str) -> None:
    """Of the array's own type a small integer wraps around, and a short float overflows."""
    low = 0 if kind.startswith("u") else -40
    series = np.linspace(100, low, 16).round()
    given = (np.stack([series, series[::-1]], axis=1), *[series] * 4)
    whole = [values.astype(kind) for values in given]
    assert prompt_text(Observation(*whole)) == prompt_text(Observation(*given))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_an_array() -> None:
    moving = np.linspace([-30.0, 1.0], [0.0, 0.0], 16)
    given = replace(STILL, positions=np.asmatrix(moving))
    assert prompt_text(given) == prompt_text(replace(STILL, positions=moving))


def test_speeds_of_bytes_are_told_to_the_model() -> None:
    fast = replace(STILL, speeds=np.full(16, 40, np.uint8))
    assert "v400" in prompt_text(fast)
    assert "v144" not in prompt_text(fast)


def test_what_was_checked_can_not_be_written_over() -> None:
    mine = np.zeros(16)
    observation = replace(STILL, headings=mine)
    mine[-1] = np.nan
    assert observation.headings[-1] == 0.0
    for name in ("positions", "headings", "speeds", "accelerations", "yaw_rates"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(observation, name)[-1] = np.nan


def test_observations_are_compared_by_identity() -> None:
    twin = replace(STILL)
    assert STILL == STILL
    assert twin != STILL
    assert len({STILL, twin, STILL}) == 2
    assert twin in [STILL, twin]


def test_the_number_of_an_intent_is_that_intent() -> None:
    assert replace(STILL, intent=2).intent is Intent.LEFT


@pytest.mark.parametrize("room", ["planners", "drives"])
def test_whatever_holds_arrays_can_be_compared_and_hashed(room: str) -> None:
    """The generated `==` of a dataclass asks arrays for one truth and fails."""
    checked = 0
    for found in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        if found.name.startswith(("planners.nets", "planners.training")):  # need torch
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if not is_dataclass(value) or value.__module__ != module.__name__:
                continue
            kinds = " ".join(str(field.type) for field in fields(value))
            if re.search(
                r"NDArray|\bFloats\b|\bInts\b|Tensor", kinds.replace("Callable[[NDArray", "")
            ):
                checked += 1
                assert value.__eq__ is object.__eq__, value
                assert value.__hash__ is object.__hash__, value
    assert checked >= 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("positions", np.ones((16, 2))),
        ("headings", np.ones(16)),
    ],
)
def test_a_history_in_another_frame_is_refused(name: str, value: object) -> None:
    STILL.check_frame()
    with pytest.raises(SlipstreamError, match="not in the ego frame"):
        replace(STILL, **{name: value}).check_frame()
