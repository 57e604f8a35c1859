"""Workers that are processes of this machine, spoken to through pipes."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType

from runtime.files import new_folder, sweep
from slipstream.fleet.job import Died, Item, Job, Message
from slipstream.fleet.worker import Worker

PATIENCE_S = 5.0  # for a process that was asked to end

_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


class Processes:
    """The crew of this machine.

    Every process is started anew (spawn): nothing of this one is in it, so an engine's threads and
    a GPU's context are its own.
    """

    def __init__(self, job: Job, out: Path) -> None:
        self.job, self.out = job, out
        self._context = multiprocessing.get_context("spawn")
        self._workers: dict[int, tuple[multiprocessing.process.BaseProcess, Connection]] = {}
        self._hired = 0

    def hire(self) -> int:
        """Start a worker; its number."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve, args=(theirs, self.job, self.out), name="slipstream worker", daemon=True
        )
        process.start()
        theirs.close()  # only the worker holds it now: when that ends, we read the end
        self._hired += 1
        self._workers[self._hired] = process, ours
        return self._hired

    def give(self, worker: int, item: Item) -> None:
        with suppress(*_GONE):  # its death is read from the pipe
            self._workers[worker][1].send(item)

    def heard(self) -> Iterable[tuple[int, Message]]:
        """What workers said, as soon as one says something."""
        pipes = {pipe: worker for worker, (_, pipe) in self._workers.items()}
        for pipe in wait(list(pipes)):
            assert isinstance(pipe, Connection)
            worker = pipes[pipe]
            try:
                message: Message = pipe.recv()
            except _GONE:
                message = Died(self._bury(worker))
            else:
                if isinstance(message, Died):
                    self._bury(worker)
            yield worker, message

    def close(self) -> None:
        """End all workers; what they had half written goes with them."""
        for process, pipe in self._workers.values():
            pipe.close()
            process.terminate()
        for process, _ in self._workers.values():
            process.join(PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers.clear()

    def clear(self, item: Item) -> None:
        """Remove what a killed worker left beside a drive's folder."""
        if self.out.is_dir():
            sweep(self.out / item.folder)

    def _bury(self, worker: int) -> str:
        process, pipe = self._workers.pop(worker)
        pipe.close()
        process.join(PATIENCE_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
            return "it closed its pipe and went on"
        if code >= 0:
            return f"it ended with exit code {code}"
        with suppress(ValueError):
            name = signal.Signals(-code).name
            often = "; often the system, out of memory" if name == "SIGKILL" else ""
            return f"{name} ended it{often}"
        return f"signal {-code} ended it"


def serve(pipe: Connection, job: Job, out: Path) -> None:
    """A worker's life: take a drive, replay it, until the run is over or its starter is gone."""
    for number in (signal.SIGINT, signal.SIGHUP):  # the terminal's; the starter ends us
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    worker = Worker(job)
    with suppress(*_GONE):
        while True:
            item: Item = pipe.recv()
            try:
                worker.work(item, new_folder(out / item.folder), pipe.send)
            except _GONE:
                raise
            except Exception as error:  # whatever it was, this process is not to be trusted now
                return pipe.send(Died(told(error)))


def told(error: Exception) -> str:
    """An error that nobody foresaw, with the place it came from."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(place.filename).name}:{place.lineno}"
    return f"{type(error).__name__} at {where}: {str(error)[:300]}"


def _leave(number: int, frame: FrameType | None) -> None:
    """End through every `finally`, so that nothing half-written stays."""
    raise SystemExit(128 + number)
