"""How a run of many drives goes, in the terminal: a line for each worker and one for all."""

from __future__ import annotations

import platform

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed

from slipstream.fleet.job import Died, Done, Failed, Frames, Item, Message, Ready
from slipstream.fleet.worker import error_of


class Board:
    """Lines that move while the run goes; what is over is printed above them and stays."""

    def __init__(self, drives: int, console: Console) -> None:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Elapsed(),
        )
        self.console = console
        self.progress = Progress(*columns, console=console, transient=True)
        self._all = self.progress.add_task("drives", total=drives)
        self._workers: dict[int, TaskID] = {}
        self._places: dict[int, str] = {}

    def gave(self, worker: int, item: Item) -> None:
        if worker not in self._workers:
            self._workers[worker] = self.progress.add_task("", total=None)
        told = f"worker {worker}{self._places.get(worker, '')}: {item.folder}"
        self.progress.reset(self._workers[worker], description=told, total=None)

    def heard(self, worker: int, item: Item, message: Message) -> None:
        if isinstance(message, Ready) and message.host != platform.node():
            self._places[worker] = f" on {message.host}"
        elif isinstance(message, Frames):
            self.progress.update(self._workers[worker], completed=message.done, total=message.total)
        elif isinstance(message, Done):
            word = "kept, it was finished before" if message.kept else "done"
            self._over(item, word)
        elif isinstance(message, Failed):
            self._over(item, f"failed: {error_of(message).what}", "red")
        elif isinstance(message, Died):
            self.progress.remove_task(self._workers.pop(worker))
            self._say(item, f"its worker died: {message.why}", "yellow")

    def retries(self, item: Item, why: str) -> None:
        self._say(item, "goes to a new worker", "yellow")

    def gives_up(self, item: Item) -> None:
        self._over(item, "failed", "red")

    def _over(self, item: Item, word: str, style: str = "") -> None:
        self.progress.advance(self._all)
        self._say(item, word, style)

    def _say(self, item: Item, word: str, style: str) -> None:
        self.console.print(f"{item.folder}: {word}", style=style, highlight=False, soft_wrap=True)
