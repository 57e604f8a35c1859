"""A small regression of the path: the best single guess that the motion history allows.

The recorded futures of alike windows differ, so a language model trained on them alone has, digit
by digit, a likeliest token that need not lie near the middle of what may happen. The regression's
path does (mean distance is least at the spatial median), and it is the same for alike windows. As
the label of some of the windows it becomes the planner's greedy output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from planners.observation import FUTURE_STATES, PAST_STATES, Intent
from planners.training.data import Augmentation, Recorded, augment, constant_velocity
from planners.training.objectives import distance_loss
from planners.training.schedule import Average, Schedule, adamw
from planners.training.settings import CHECKED, Positive, Seed

Floats = NDArray[np.float64]

FEATURES = PAST_STATES * 6 + len(Intent)
SCALE = 5.0  # m that an output of 1 stands for


@dataclass(frozen=True)
class TeacherSettings:
    """How the regression is trained.

    Attributes:
        width: of its two hidden layers.
        batch: windows a step.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    schedule: Schedule = field(default_factory=lambda: Schedule(4000, peak=1e-3, average=0.995))
    seed: Seed = 0
    batch: Positive = 256
    width: Positive = 256
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1


class Teacher(nn.Module):
    """Two hidden layers from the history to what constant velocity gets wrong."""

    def __init__(self, settings: TeacherSettings) -> None:
        super().__init__()
        sizes = (FEATURES, settings.width, settings.width)
        hidden = [
            layer
            for rows, columns in pairwise(sizes)
            for layer in (nn.Linear(rows, columns), nn.GELU(), nn.Dropout(settings.dropout))
        ]
        self.net = nn.Sequential(*hidden, nn.Linear(settings.width, FUTURE_STATES * 2))

    def forward(self, features: Tensor) -> Tensor:
        """[M, FEATURES] -> [M, 20, 2] m beyond constant velocity."""
        out: Tensor = self.net(features)
        return out.view(-1, FUTURE_STATES, 2) * SCALE

    @torch.no_grad()
    def paths(self, windows: Recorded) -> Floats:
        """The path of each window, [M, 20, 2] m."""
        with torch.autocast("cpu", enabled=False):
            beyond = self.eval()(features_of(windows))
        return np.asarray(constant_velocity(windows) + beyond.numpy())


def features_of(windows: Recorded) -> Tensor:
    """[M, FEATURES], each of order one."""
    parts = (
        windows.positions.reshape(len(windows), -1) / 20.0,
        windows.headings * 2.0,
        windows.speeds / 10.0,
        windows.accelerations,
        windows.yaw_rates * 5.0,
        np.eye(len(Intent))[windows.intents],
    )
    return torch.from_numpy(np.concatenate(parts, 1)).float()


def train_teacher(
    windows: Recorded, augmentation: Augmentation, settings: TeacherSettings
) -> Teacher:
    """Train by mean distance on changed windows; takes half a minute, so it is not resumable."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # its products are too small to share
    try:
        return _train(windows, augmentation, settings)
    finally:
        torch.set_num_threads(threads)


def _train(windows: Recorded, augmentation: Augmentation, settings: TeacherSettings) -> Teacher:
    torch.manual_seed(settings.seed)
    teacher = Teacher(settings).train()
    schedule = settings.schedule
    optimizer, average = adamw(teacher, schedule), Average(teacher, schedule.average)
    for step in range(schedule.steps):
        rng = np.random.default_rng((settings.seed, step))
        rows = rng.integers(len(windows), size=settings.batch)
        sample = augment(windows[rows], augmentation, rng)
        truth = torch.from_numpy(sample.futures - constant_velocity(sample)).float()
        loss = distance_loss(teacher(features_of(sample)), truth)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        average.update(teacher, step)
    average.copy_to(teacher)
    return teacher.eval()
