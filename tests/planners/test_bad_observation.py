"""Observations that no plan can be made from are refused where they are made."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from planners.observation import Intent, Observation
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
        ("intent", 7),
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
