"""The log of a training run: one JSON object a line, `log.jsonl`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.errors import SlipstreamError
from runtime.files import write_atomic


class Log:
    """Gathers the figures of steps and writes their means.

    What it holds between two lines is part of the run's state, so that a run that goes on writes
    the lines that it would have written anyway.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sums: dict[str, float] = {}
        self._steps, self._seconds = 0, 0.0
        self._started = time.monotonic()

    def go_on(self, step: int, state: Mapping[str, Any]) -> None:
        """Take up what `state` left; lines of later steps, which will come again, go.

        Raises:
            SlipstreamError: it did not leave this.
        """
        try:
            self._sums = {name: float(value) for name, value in state["sums"].items()}
            self._steps, self._seconds = int(state["steps"]), float(state["seconds"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SlipstreamError(
                f"the state of the run with {self.path} is damaged",
                expected="sums, steps and seconds of its log",
                found=repr(error)[:200],
                fix=f"remove {self.path.parent} and train from the start",
            ) from error
        if self.path.is_file():
            lines = self.path.read_text("utf-8", errors="replace").splitlines(keepends=True)
            kept = [line for line in lines if _step_of(line) <= step]
            write_atomic(self.path, "".join(kept))

    def state(self) -> dict[str, Any]:
        """For `go_on`."""
        return {"sums": self._sums, "steps": self._steps, "seconds": self.seconds}

    @property
    def seconds(self) -> float:
        """Time that the run has taken, in all its parts."""
        return self._seconds + time.monotonic() - self._started

    def add(self, figures: Mapping[str, float]) -> None:
        """Take in a step's figures."""
        for key, value in figures.items():
            self._sums[key] = self._sums.get(key, 0.0) + value
        self._steps += 1

    def write(self, step: int, evaluation: Mapping[str, float]) -> dict[str, float]:
        """Append the line of `step`; returns its figures without the step."""
        means = {key: value / self._steps for key, value in self._sums.items()}
        figures = {"seconds": round(self.seconds, 1), **means, **evaluation}
        rounded = {key: round(value, 5) for key, value in figures.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **rounded}) + "\n")
        self._sums, self._steps = {}, 0
        return figures


def _step_of(line: str) -> float:
    """The step of a line; infinite where the line is cut off."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return float("inf")
