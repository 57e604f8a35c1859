"""Drives to workers: who gets which, and what happens when a worker dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from runtime.errors import SlipstreamError
from slipstream.fleet.job import Died, Done, Failed, Item, Message, Ready
from slipstream.fleet.worker import error_of

TRIES = 3  # of a drive whose workers die


class Crew(Protocol):
    """Workers, wherever they are."""

    def hire(self) -> int:
        """Start a worker; its number."""

    def give(self, worker: int, item: Item) -> None:
        """Hand a worker a drive; what it says about it is heard later."""

    def heard(self) -> Iterable[tuple[int, Message]]:
        """Wait until workers say something."""

    def clear(self, item: Item) -> None:
        """Remove what dead workers left of a drive."""

    def close(self) -> None:
        """End all workers."""


class Watcher(Protocol):
    """Whoever shows how a run goes."""

    def gave(self, worker: int, item: Item) -> None: ...

    def heard(self, worker: int, item: Item, message: Message) -> None: ...

    def retries(self, item: Item, why: str) -> None: ...

    def gives_up(self, item: Item) -> None: ...


def run_all(crew: Crew, items: Sequence[Item], workers: int, watcher: Watcher) -> dict[Item, str]:
    """Have every drive replayed; a drive whose worker dies goes to a new one, TRIES times in all.

    The first worker loads its engine alone: what it measures about the machine the others read, and
    if it can't load, no other has to try.

    Args:
        items: in the order in which they are handed out.
        workers: at most so many at a time.

    Returns:
        The drives that failed -> their errors.

    Raises:
        SlipstreamError: the bundle or the settings can't be run, or no worker lives long enough to
            load its engine.
    """
    waiting, tries = deque(items), Counter[Item]()
    at_work: dict[int, Item] = {}
    idle: list[int] = []
    failures: dict[Item, str] = {}
    ready = False  # has any worker loaded its engine?
    proved = False  # has any drive been replayed?
    while waiting or at_work:
        free = workers if ready or all(item.finished for item in items) else 1
        while waiting and len(at_work) < free:
            worker = idle.pop() if idle else crew.hire()
            item = at_work[worker] = waiting.popleft()
            tries[item] += 1
            watcher.gave(worker, item)
            crew.give(worker, item)
        for worker, message in crew.heard():
            if worker in idle:  # it died with nothing to do
                idle.remove(worker)
                continue
            item = at_work[worker]
            watcher.heard(worker, item, message)
            if isinstance(message, Ready):
                ready = True
            elif isinstance(message, Done):
                proved = proved or not message.kept
                idle.append(worker)
                del at_work[worker]
            elif isinstance(message, Failed):
                if message.refused and not proved:
                    raise error_of(message)
                failures[item] = str(error_of(message))
                idle.append(worker)
                del at_work[worker]
            elif isinstance(message, Died):
                del at_work[worker]
                crew.clear(item)
                if tries[item] < TRIES:
                    watcher.retries(item, message.why)
                    waiting.appendleft(item)
                elif ready:
                    watcher.gives_up(item)
                    failures[item] = f"its worker died, {TRIES} times; the last time {message.why}"
                else:
                    raise _no_worker(message.why)
    return failures


def _no_worker(why: str) -> SlipstreamError:
    return SlipstreamError(
        "workers die before their engine is loaded",
        expected="a worker that lives",
        found=f"{TRIES} that died; the last one: {why}",
        fix="try one drive without --workers, to see what the engine says; slipstream doctor",
    )
