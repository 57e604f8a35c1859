"""The prompt: constant width, what it holds, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from planners.observation import Intent, Observation
from planners.prompt import prompt_text
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError

from .conftest import observe

TOKENS = 103
series = arrays(np.float64, 16, elements=st.floats(-1e6, 1e6))
observations = st.builds(
    Observation,
    positions=arrays(np.float64, (16, 2), elements=st.floats(-1e6, 1e6)),
    headings=series,
    speeds=series,
    accelerations=series,
    yaw_rates=series,
    intent=st.sampled_from(Intent),
)


@given(observation=observations)
@settings(deadline=None)
def test_constant_number_of_tokens(tokenizer: Tokenizer, observation: Observation) -> None:
    assert len(tokenizer.encode(prompt_text(observation))) == TOKENS <= 110


def test_what_it_says() -> None:
    text = prompt_text(observe(12.34, acceleration=-1.5, yaw_rate=0.05, intent=Intent.LEFT))
    words = text.split()
    assert words[:6] == ["Plan:", "go", "left.", "+1234", "-150", "+050"]
    assert words[-1] == "-0064+0008v131"  # half a second ago: 6.4 m back, 8 cm left, 13.1 m/s
    assert len(words) == 6 + 6


@pytest.mark.parametrize(("intent", "word"), [*enumerate(["on", "straight", "left", "right"])])
def test_commands(intent: int, word: str) -> None:
    assert prompt_text(observe(5.0, intent=Intent(intent))).startswith(f"Plan: go {word}. ")


def test_values_are_clipped() -> None:
    text = prompt_text(observe(-200.0, acceleration=-50.0, yaw_rate=9.0))
    assert text.startswith("Plan: go on. -9999 -999 +999 ")


def test_standstill_has_no_negative_zero() -> None:
    assert "-" not in prompt_text(observe(-0.0))


@pytest.mark.parametrize("name", ["positions", "speeds", "accelerations", "yaw_rates"])
def test_nan_is_refused(name: str) -> None:
    observation = observe(5.0)
    broken = np.array(getattr(observation, name))
    broken[...] = np.nan
    with pytest.raises(SlipstreamError, match="can't be planned from"):
        prompt_text(replace(observation, **{name: broken}, frame=7))
