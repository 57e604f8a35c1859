"""Observations that no plan can be made from are refused where they are made."""

from __future__ import annotations

from dataclasses import replace

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
    ],
)
def test_a_bad_observation_is_refused(name: str, value: object) -> None:
    with pytest.raises(SlipstreamError, match=name) as caught:
        replace(STILL, **{name: value})
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.found not in caught.value.expected
    assert "\n" not in caught.value.found


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
