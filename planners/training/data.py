"""Recorded windows as arrays, and the changes that make one drive stand for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from planners.observation import FUTURE_STATES, PAST_STATES, RATE_HZ, Intent, Observation
from planners.training.settings import CHECKED, Share, Spread

Floats = NDArray[np.float64]
Scale = Annotated[float, Field(gt=0)]

FAR = 20.0  # m, from where on points of a label get the whole noise


@dataclass(frozen=True, eq=False)
class Recorded:
    """M windows, in the ego frame of each window's last state (x forward, y left).

    Attributes:
        positions: [M, 16, 2] m; headings, speeds, accelerations, yaw_rates: [M, 16].
        futures: [M, 20, 2] m, at 0.25 .. 5 s.
        intents: [M]
        times: [M] s, on the window's drive.
        objects: [M, K] whether each kind of object is around: 1, 0, or -1 where that is not known;
            None where nothing is known of objects.
    """

    positions: Floats
    headings: Floats
    speeds: Floats
    accelerations: Floats
    yaw_rates: Floats
    futures: Floats
    intents: NDArray[np.int64]
    times: Floats
    objects: NDArray[np.int8] | None = None

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Recorded:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        known = {name: column[rows] for name, column in columns.items() if column is not None}
        return Recorded(**known)

    @classmethod
    def of(
        cls,
        observations: Sequence[Observation],
        futures: Sequence[Floats],
        objects: NDArray[np.int8] | None = None,
    ) -> Recorded:
        """Stack observations and what followed them."""
        return cls(
            positions=np.stack([o.positions for o in observations]),
            headings=np.stack([o.headings for o in observations]),
            speeds=np.stack([o.speeds for o in observations]),
            accelerations=np.stack([o.accelerations for o in observations]),
            yaw_rates=np.stack([o.yaw_rates for o in observations]),
            futures=np.stack(futures),
            intents=np.array([int(o.intent) for o in observations]),
            times=np.array([o.time for o in observations]),
            objects=objects,
        )

    @classmethod
    def join(cls, parts: Sequence[Recorded]) -> Recorded:
        """All windows of several drives."""
        columns = [f.name for f in fields(cls) if f.name != "objects"]
        joined = {name: np.concatenate([getattr(p, name) for p in parts]) for name in columns}
        return cls(**joined, objects=_joined_objects(parts))

    def observation(self, row: int) -> Observation:
        return Observation(
            positions=self.positions[row],
            headings=self.headings[row],
            speeds=self.speeds[row],
            accelerations=self.accelerations[row],
            yaw_rates=self.yaw_rates[row],
            intent=Intent(int(self.intents[row])),
            time=float(self.times[row]),
            frame=row,
        )


def _joined_objects(parts: Sequence[Recorded]) -> NDArray[np.int8] | None:
    known = [part.objects for part in parts if part.objects is not None]
    if not known:
        return None
    nothing = np.full(known[0].shape[1], -1, np.int8)
    return np.concatenate(
        [np.tile(nothing, (len(p), 1)) if p.objects is None else p.objects for p in parts]
    )


@dataclass(frozen=True)
class Augmentation:
    """How far a window is changed, so that one drive's windows stand for many drives.

    Attributes:
        scale: range of the factor on lengths, so on speeds and accelerations as well.
        mirror: share of windows with left and right exchanged.
        position, heading, speed, acceleration, yaw_rate: standard deviations of measurement noise
            on the history, in m, rad, m/s, m/s², rad/s.
        label_scale, label_offset: standard deviations of noise on the future: a factor on the
            whole path, and m on points at least 20 m ahead (less on nearer ones). So a digit's
            neighbours get a share of its probability: digits are ordered.
        command: share of windows whose navigation command is given; the others say UNKNOWN.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    scale: tuple[Scale, Scale] = (0.6, 1.4)
    mirror: Share = 0.5
    position: Spread = 0.02
    heading: Spread = 0.002
    speed: Spread = 0.05
    acceleration: Spread = 0.15
    yaw_rate: Spread = 0.004
    label_scale: Spread = 0.01
    label_offset: Spread = 0.15
    command: Share = 0.25


def augment(windows: Recorded, how: Augmentation, rng: np.random.Generator) -> Recorded:
    """Changed copies of windows; each draws its own changes."""
    count = len(windows)
    scale = rng.uniform(*how.scale, count)
    side = np.where(rng.random(count) < how.mirror, -1.0, 1.0)
    flip = np.stack([np.ones(count), side], -1)[:, None, :]
    future = windows.futures * scale[:, None, None] * flip
    commands = np.where(rng.random(count) < how.command, command_of(future), Intent.UNKNOWN)
    noise = _NoiseOf(rng, count)
    # A standing vehicle stays where it is, whatever the noise.
    moving = np.minimum(np.linalg.norm(future, axis=-1, keepdims=True) / FAR, 1.0)
    future = future * (1 + how.label_scale * noise(1, 1))
    future = future + how.label_offset * moving * _smooth(noise(FUTURE_STATES, 2))
    past = windows.positions * scale[:, None, None] * flip
    past = past + how.position * noise(PAST_STATES, 2)
    heading = windows.headings * side[:, None] + how.heading * noise(PAST_STATES)
    return replace(
        windows,
        # The last state is the frame itself, so its own error moves everything else.
        positions=past - past[:, -1:],
        headings=heading - heading[:, -1:],
        speeds=windows.speeds * scale[:, None] + how.speed * noise(PAST_STATES),
        accelerations=windows.accelerations * scale[:, None]
        + how.acceleration * noise(PAST_STATES),
        yaw_rates=windows.yaw_rates * side[:, None] + how.yaw_rate * noise(PAST_STATES),
        futures=future,
        intents=commands,
    )


class _NoiseOf:
    """Standard normal noise for `count` windows."""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self.rng, self.count = rng, count

    def __call__(self, *shape: int) -> Floats:
        return self.rng.standard_normal((self.count, *shape))


def _smooth(noise: Floats) -> Floats:
    """White noise [M, T, 2] with neighbouring instants averaged, variance kept."""
    kernel = np.array([0.25, 0.5, 0.25])
    padded = np.pad(noise, ((0, 0), (1, 1), (0, 0)), mode="edge")
    mixed = sum(kernel[i] * padded[:, i : i + noise.shape[1]] for i in range(3))
    return np.asarray(mixed / np.sqrt((kernel**2).sum()))


def command_of(futures: Floats) -> NDArray[np.int64]:
    """The navigation command that a path [M, 20, 2] carries out, [M].

    A turn changes the course by more than 25 degrees within five seconds; a path of less than 5 m
    says nothing.
    """
    late, early = futures[:, -1] - futures[:, -5], futures[:, 3]
    turned = np.arctan2(late[:, 1], late[:, 0]) - np.arctan2(early[:, 1], early[:, 0])
    turned = (turned + np.pi) % (2 * np.pi) - np.pi
    moving = (np.linalg.norm(late, axis=-1) > 0.5) & (np.linalg.norm(early, axis=-1) > 0.5)
    turned = np.where(moving, turned, np.arctan2(futures[:, -1, 1], np.abs(futures[:, -1, 0])))
    far = np.linalg.norm(futures[:, -1], axis=-1) > 5.0
    command = np.where(turned > np.deg2rad(25), Intent.LEFT, Intent.STRAIGHT)
    command = np.where(turned < -np.deg2rad(25), Intent.RIGHT, command)
    return np.where(far, command, Intent.UNKNOWN).astype(np.int64)


def constant_velocity(windows: Recorded) -> Floats:
    """[M, 20, 2]: straight on at the last speed; what the regression aid corrects."""
    ahead = np.arange(1, FUTURE_STATES + 1) / RATE_HZ
    along = windows.speeds[:, -1:] * ahead
    return np.stack([along, np.zeros_like(along)], -1)
