"""Workers that are actors of a Ray cluster: the same worker, its files sent here."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from runtime.errors import SlipstreamError
from runtime.files import new_folder, sweep, unwritable
from slipstream.commands.request import RAY_HERE
from slipstream.fleet.job import Died, Done, Frames, Item, Job, Message, Ready
from slipstream.fleet.worker import Worker

POLL_S = 0.5
PATIENCE_S = 10.0  # for a cluster to answer
_LAST_PORT = 65535
_LEFT_BY_RAY = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"

Files = dict[str, bytes]


class Actors:
    """The crew on a cluster.

    Args:
        address: of a running cluster, or RAY_HERE: the one that this machine is part of, or else
            one that is started here.
        workers: how many are wanted; None for as many as are free.

    Raises:
        SlipstreamError: ray is not installed, no cluster answers, or it has no room.
    """

    def __init__(self, job: Job, out: Path, address: str, workers: int | None) -> None:
        self.job, self.out = job, out
        self._ray = ray_library()
        self._connect(address, workers or os.cpu_count() or 1)
        self._needs = {"CPU": float(job.threads)}
        if job.provider != "cpu":
            self._needs["GPU"] = 1.0
        self._actors: dict[int, Any] = {}
        self._tasks: dict[Any, int] = {}
        self._items: dict[int, Item] = {}
        self._heard: dict[int, int] = {}  # worker -> how much of what it said about its drive
        self._hired = 0

    def room(self) -> int:
        """How many workers the cluster has free resources for."""
        free = self._ray.available_resources()
        found = min(int(free.get(name, 0.0) // need) for name, need in self._needs.items())
        if found:
            return found
        needs = " and ".join(f"{need:g} {name}" for name, need in self._needs.items())
        raise SlipstreamError(
            "the Ray cluster has no room for a worker",
            expected=f"{needs} that nobody uses",
            found=", ".join(f"{free.get(name, 0.0):g} {name}" for name in self._needs) + " free",
            fix="wait until other jobs end, or add a node: ray start --address=ADDRESS",
        )

    def hire(self) -> int:
        """Start an actor; its number."""
        actor = self._ray.remote(
            num_cpus=self._needs["CPU"],
            num_gpus=self._needs.get("GPU", 0.0),
            max_restarts=0,
            concurrency_groups={"watch": 1},
        )(Actor)
        self._hired += 1
        self._actors[self._hired] = actor.remote(self.job)
        return self._hired

    def give(self, worker: int, item: Item) -> None:
        self._items[worker] = item
        self._heard[worker] = 0
        self._tasks[self._actors[worker].work.remote(item)] = worker

    def heard(self) -> Iterable[tuple[int, Message]]:
        """What actors said, as soon as one says something."""
        try:
            ended, going = self._ray.wait(list(self._tasks), timeout=POLL_S)
            said = [(self._tasks[task], self._news(self._tasks[task])) for task in going]
            for task in ended:
                worker = self._tasks.pop(task)
                said.append((worker, self._result(worker, task)))
        except SystemExit as error:  # ray makes exit code 1 of every signal while it waits
            raise SystemExit(128 + signal.SIGINT if error.code == 1 else error.code) from error
        for worker, messages in said:
            for message in messages:
                yield worker, message

    def clear(self, item: Item) -> None:
        if self.out.is_dir():
            sweep(self.out / item.folder)

    def close(self) -> None:
        """End all actors, and the cluster if it was started here."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._ray.shutdown()

    def _result(self, worker: int, task: Any) -> list[Message]:
        try:
            news, files = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(self._actors[worker])
            del self._actors[worker]
            return [Died(_first_line(error))]
        if isinstance(news[-1], Done) and not news[-1].kept:
            self._write(self._items[worker], files)
        return [*news[self._heard[worker] : -1], news[-1]]

    def _write(self, item: Item, files: Files) -> None:
        folder = self.out / item.folder
        with new_folder(folder) as work:
            try:
                for name, data in files.items():
                    (work / name).write_bytes(data)
            except OSError as error:
                raise unwritable(folder, error) from error

    def _news(self, worker: int) -> list[Message]:
        """What an actor said since it was last asked, but the end, which comes with its files.

        A dead or busy one says nothing here.
        """
        with suppress(self._ray.exceptions.RayError):
            said = self._actors[worker].said.options(concurrency_group="watch")
            news: list[Message] = self._ray.get(said.remote(self._items[worker]), timeout=POLL_S)
            unheard = news[self._heard[worker] :]
            fresh: list[Message] = [each for each in unheard if isinstance(each, Ready | Frames)]
            self._heard[worker] += len(fresh)
            return fresh
        return []

    def _connect(self, address: str, workers: int) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {"log_to_driver": False, "logging_level": "ERROR"}
        previous = signal.getsignal(signal.SIGTERM)
        try:
            running = running_here() if address == RAY_HERE else address
            if running:
                check_answers(running)
                self._ray.init(running, **options)
                return
            cores = max(workers * self.job.threads, os.cpu_count() or 1)
            self._ray.init("local", num_cpus=cores, include_dashboard=False, **options)
        except Exception as error:  # ray says the same thing in many types
            raise no_cluster(address, _first_line(error)) from error
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, previous)  # ray puts its own there


class Actor:
    """A worker on a node; it keeps what it says about its drive until it is asked."""

    def __init__(self, job: Job) -> None:
        self.worker = Worker(job)
        self.item: Item | None = None
        self.news: list[Message] = []

    def work(self, item: Item) -> tuple[list[Message], Files]:
        """Replay a drive; what was said about it, and the files of its report."""
        self.news, self.item = [], item
        with TemporaryDirectory() as folder:
            self.worker.work(item, nullcontext(Path(folder)), self.news.append)
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return self.news, files

    def said(self, item: Item) -> list[Message]:
        """What was said about a drive until now."""
        return list(self.news) if item == self.item else []


def running_here() -> str:
    """The address of the cluster that this machine is part of; "" where there is none.

    RAY_ADDRESS names it, or the file that `ray start` leaves; that of a cluster which is gone may
    still be there.
    """
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    with suppress(OSError, ValueError):
        address = _LEFT_BY_RAY.read_text(encoding="utf-8").strip()
        check_answers(address)
        return address
    return ""


def check_answers(address: str) -> None:
    """Insist, in seconds, that something listens there: ray itself would try for minutes.

    Raises:
        OSError: nobody does.
        ValueError: it is no address.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise ValueError(f"{address[:100]} is no HOST:PORT")
    socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S).close()


def no_cluster(address: str, found: str) -> SlipstreamError:
    at = "" if address == RAY_HERE else f" at --ray {address[:100]}"
    return SlipstreamError(
        f"no Ray cluster answers{at}",
        expected="the address of a running cluster, HOST:PORT or ray://HOST:PORT",
        found=found,
        fix="start one with: ray start --head; or give --ray without an address",
    )


def ray_library() -> Any:
    """The library.

    Raises:
        SlipstreamError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise SlipstreamError(
            "--ray needs the library ray",
            expected="the extra `scale`",
            found=str(error),
            fix="pip install 'ray>=2.40', here and on every node",
        ) from error
    return ray


def _first_line(error: BaseException) -> str:
    """What ray says, short: the error that a task met, or the first line."""
    cause = getattr(error, "cause", None)
    told = f"{type(cause).__name__}: {cause}" if cause is not None else str(error)
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
