"""What looks on while a network trains; nothing of the result depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Figures = Mapping[str, float]


class Watch(Protocol):
    """Is told of a run's progress."""

    def begin(self, step: int, steps: int) -> None:
        """The run goes on at `step` of `steps`."""

    def step(self, step: int, figures: Figures) -> None:
        """`step` steps are done; figures of the last one."""

    def line(self, step: int, figures: Figures) -> None:
        """A line of the log: means since the last line, and the evaluation."""


class Printed:
    """Prints the lines of the log."""

    def begin(self, step: int, steps: int) -> None:
        if step:
            print(f"goes on at step {step} of {steps}", flush=True)

    def step(self, step: int, figures: Figures) -> None:
        pass

    def line(self, step: int, figures: Figures) -> None:
        values = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
        print(f"step {step}  {values}", flush=True)
