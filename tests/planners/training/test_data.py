"""Windows as arrays: what augmentation may change, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest

from planners.observation import Intent
from planners.training.data import (
    Augmentation,
    Recorded,
    augment,
    command_of,
    constant_velocity,
)

QUIET = {
    "position": 0.0,
    "heading": 0.0,
    "speed": 0.0,
    "acceleration": 0.0,
    "yaw_rate": 0.0,
    "label_scale": 0.0,
    "label_offset": 0.0,
    "command": 0.0,
}


def circle(speed: float, yaw_rate: float, count: int = 1) -> Recorded:
    """Windows of steady driving on a circle, exactly."""
    past, ahead = np.arange(-15, 1) / 4, np.arange(1, 21) / 4

    def at(t: np.ndarray) -> np.ndarray:
        radius = speed / yaw_rate
        return np.stack([radius * np.sin(yaw_rate * t), radius * (1 - np.cos(yaw_rate * t))], -1)

    def repeat(values: np.ndarray) -> np.ndarray:
        return np.repeat(values[None], count, 0)

    return Recorded(
        positions=repeat(at(past)),
        headings=repeat(yaw_rate * past),
        speeds=np.full((count, 16), speed),
        accelerations=np.zeros((count, 16)),
        yaw_rates=np.full((count, 16), yaw_rate),
        futures=repeat(at(ahead)),
        intents=np.zeros(count, np.int64),
        times=np.arange(count, dtype=np.float64),
    )


def test_stacking_and_taking_out_again() -> None:
    windows = circle(8.0, 0.2, 3)
    observations = [windows.observation(row) for row in range(3)]
    again = Recorded.of(observations, list(windows.futures))
    assert np.array_equal(again.positions, windows.positions)
    both = Recorded.join([windows, again])
    assert len(both) == 6
    assert len(both[both.times > 0]) == 4


def test_scaling_a_circle_gives_the_faster_circle() -> None:
    how = Augmentation(scale=(1.3, 1.3), mirror=0.0, **QUIET)
    scaled = augment(circle(8.0, 0.2), how, np.random.default_rng(0))
    wanted = circle(1.3 * 8.0, 0.2)
    for name in ("positions", "headings", "speeds", "yaw_rates", "futures"):
        np.testing.assert_allclose(getattr(scaled, name), getattr(wanted, name), atol=1e-9)


def test_mirroring_a_left_circle_gives_the_right_one() -> None:
    how = Augmentation(scale=(1.0, 1.0), mirror=1.0, **QUIET)
    mirrored = augment(circle(8.0, 0.2), how, np.random.default_rng(0))
    wanted = circle(8.0, -0.2)
    for name in ("positions", "headings", "speeds", "yaw_rates", "futures"):
        np.testing.assert_allclose(getattr(mirrored, name), getattr(wanted, name), atol=1e-9)


def test_the_last_state_stays_the_frame() -> None:
    noisy = augment(circle(8.0, 0.2, 50), Augmentation(), np.random.default_rng(1))
    assert not noisy.positions[:, -1].any()
    assert not noisy.headings[:, -1].any()


def test_noise_has_the_named_size() -> None:
    how = Augmentation(scale=(1.0, 1.0), mirror=0.0, label_scale=0.0)
    windows = circle(8.0, 0.2, 4000)
    noisy = augment(windows, how, np.random.default_rng(2))
    assert np.std(noisy.speeds - windows.speeds) == pytest.approx(how.speed, rel=0.05)
    assert np.std(noisy.yaw_rates - windows.yaw_rates) == pytest.approx(how.yaw_rate, rel=0.05)
    far = (noisy.futures - windows.futures)[:, 15]  # more than 20 m away
    assert np.std(far) == pytest.approx(how.label_offset, rel=0.05)


def test_a_standing_vehicle_keeps_a_clean_label() -> None:
    still = circle(1e-9, 1e-9, 100)
    noisy = augment(still, Augmentation(), np.random.default_rng(3))
    assert np.abs(noisy.futures).max() < 1e-6


def test_equal_seeds_equal_changes() -> None:
    windows = circle(8.0, 0.2, 5)
    one, two, other = (
        augment(windows, Augmentation(), np.random.default_rng(s)) for s in (4, 4, 5)
    )
    assert np.array_equal(one.futures, two.futures)
    assert not np.array_equal(one.futures, other.futures)


@pytest.mark.parametrize(
    ("yaw_rate", "speed", "command"),
    [
        (0.2, 8.0, Intent.LEFT),
        (-0.2, 8.0, Intent.RIGHT),
        (0.02, 8.0, Intent.STRAIGHT),
        (0.02, 0.1, Intent.UNKNOWN),
    ],
)
def test_commands(yaw_rate: float, speed: float, command: Intent) -> None:
    assert command_of(circle(speed, yaw_rate).futures).tolist() == [command]


def test_the_share_of_windows_with_a_command() -> None:
    seen = augment(circle(8.0, 0.3, 4000), Augmentation(), np.random.default_rng(6)).intents
    assert np.mean(seen != Intent.UNKNOWN) == pytest.approx(0.25, abs=0.03)
    assert np.mean(seen == Intent.LEFT) == pytest.approx(np.mean(seen == Intent.RIGHT), abs=0.03)


def test_constant_velocity_goes_straight_on() -> None:
    path = constant_velocity(circle(8.0, 0.2))
    assert path[0, 3].tolist() == [8.0, 0.0]
    assert path[0, 19].tolist() == [40.0, 0.0]
