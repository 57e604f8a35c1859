"""A training on the screen and in TensorBoard: loss and live figures while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from importlib import import_module
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

EVENTS = "events"


class Show:
    """A `planners.training.watch.Watch`: a bar, a line at each evaluation, an event log.

    Args:
        what: the bar's label.
        live: names of figures of the evaluation that stay beside the bar.
        folder: the run's; event files go to `folder/events`.
    """

    def __init__(self, what: str, live: tuple[str, ...], folder: Path, console: Console) -> None:
        self.what, self.live, self.folder, self.console = what, live, folder, console
        self._events: Any = None
        self._shown = ""
        self._stack = ExitStack()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> Show:
        self._stack.enter_context(self._progress)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def begin(self, step: int, steps: int) -> None:
        """Open the event log where it was left."""
        self._task = self._progress.add_task(self.what, total=steps, completed=step, figures="")
        if step:
            self.console.print(f"goes on at step {step} of {steps}")
        try:
            writer = import_module("tensorboardX").SummaryWriter
        except ImportError:
            self.console.print(
                "no TensorBoard log without tensorboardX: pip install 'slipstream[train]'"
            )
            return
        # steps behind the state that was left come again; a file is named after the second it began
        again = {"purge_step": step + 1 if step else None, "filename_suffix": f".{step:08d}"}
        events = writer(str(self.folder / EVENTS), **again)
        self._events = self._stack.enter_context(events)

    def step(self, step: int, figures: Mapping[str, float]) -> None:
        """Move the bar; every figure becomes a point."""
        assert self._task is not None
        loss = f"loss {figures['loss']:.3f}" if "loss" in figures else ""
        self._progress.update(self._task, completed=step, figures=f"{loss}  {self._shown}")
        self._write("training", step, figures)

    def line(self, step: int, figures: Mapping[str, float]) -> None:
        """Print the line; its figures become points."""
        live = [f"{name} {figures[name]:.3g}" for name in self.live if name in figures]
        self._shown = "  ".join(live)
        values = "  ".join(f"{name} {value:.4g}" for name, value in figures.items())
        self.console.print(f"step {step}  {values}", highlight=False)
        self._write("held out", step, {k: v for k, v in figures.items() if k in self.live})
        if self._events is not None:
            self._events.flush()

    def _write(self, group: str, step: int, figures: Mapping[str, float]) -> None:
        if self._events is not None:
            for name, value in figures.items():
                if isfinite(value):  # the first outputs of a target may not parse
                    self._events.add_scalar(f"{group}/{name}".replace(" ", "_"), value, step)
