"""The tiny planner's tokenizer, its language, and observations of simple motions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from planners.language import Language
from planners.observation import Intent, Observation
from planners.presets import tiny_language
from planners.tokens import Tokenizer
from planners.training.tokenizer import train_tokenizer

PAST = np.arange(-15, 1) / 4.0
FUTURE = np.arange(1, 21) / 4.0


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(train_tokenizer())


@pytest.fixture(scope="session")
def language() -> Language:
    return tiny_language()


def arc(
    times: NDArray[np.float64], speed: float, acceleration: float, yaw_rate: float
) -> NDArray[np.float64]:
    """[T, 2]: positions at constant acceleration (until at rest) and yaw rate."""
    fine = np.linspace(0.0, 1.0, 201)[:, None] * times  # [201, T]
    speeds = speed + acceleration * fine
    if acceleration < 0:
        speeds = np.maximum(speeds, 0.0)
    headings = yaw_rate * fine
    velocity = np.stack([speeds * np.cos(headings), speeds * np.sin(headings)], axis=-1)
    return np.asarray(
        ((velocity[1:] + velocity[:-1]) / 2 * np.diff(fine, axis=0)[..., None]).sum(axis=0)
    )


def observe(
    speed: float,
    acceleration: float = 0.0,
    yaw_rate: float = 0.0,
    intent: Intent = Intent.UNKNOWN,
) -> Observation:
    """An observation after constant acceleration and yaw rate."""
    return Observation(
        positions=arc(PAST, speed, acceleration, yaw_rate),
        headings=yaw_rate * PAST,
        speeds=speed + acceleration * PAST,
        accelerations=np.full(16, acceleration),
        yaw_rates=np.full(16, yaw_rate),
        intent=intent,
    )
