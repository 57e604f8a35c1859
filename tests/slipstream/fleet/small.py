"""Small runs of many drives on the shipped planner, and what the tests look at."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import slipstream
from drives.results import read_report
from runtime.bundle import Bundle
from runtime.settings import DecodeSettings
from slipstream.commands.about import own_version
from slipstream.commands.request import decoder_name
from slipstream.fleet.comparable import Json, comparable
from slipstream.fleet.job import Frames, Item, Job, Message, Ready
from tests.slipstream.command import ROOT

BUNDLE = slipstream.shipped_bundle()
HAS_BUNDLE = (BUNDLE / "bundle.json").is_file()
EXCERPT = str(ROOT / "tests" / "data" / "boreas-excerpt")
# with a given width nothing in a report depends on times
DECODERS = (
    DecodeSettings(method="ar-scaffold"),
    DecodeSettings(block=8),
)


def job(**changes: object) -> Job:
    given: dict[str, object] = {
        "bundle": BUNDLE,
        "key": Bundle.open(BUNDLE).key,
        "version": own_version(),
        "settings": {decoder_name(each): each for each in DECODERS},
        "rule": "guarded",
        "frames": "2",
        "provider": "cpu",
        "threads": 1,
        "command": "slipstream run",
    }
    return Job(**{**given, **changes})  # type: ignore[arg-type]


def items(*drives: str) -> list[Item]:
    return [Item(drive, drive.replace(":", "-"), drive) for drive in drives]


def figures(out: Path) -> dict[str, Json]:
    """Folder -> all of its report that must repeat."""
    reports = sorted(out.glob("*/report.json"))
    return {path.parent.name: comparable(read_report(path)) for path in reports}


def leavings(out: Path) -> list[str]:
    """Files that no finished run leaves."""
    return sorted(path.name for path in out.rglob(".*"))


class Watcher:
    """Keeps what it hears, and may do something about it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, Message]] = []
        self.retried: list[str] = []

    def gave(self, worker: int, item: Item) -> None:
        pass

    def heard(self, worker: int, item: Item, message: Message) -> None:
        self.said.append((item.drive, message))

    def retries(self, item: Item, why: str) -> None:
        self.retried.append(f"{item.drive}: {why}")

    def gives_up(self, item: Item) -> None:
        pass


class Killer(Watcher):
    """Kills the worker of a drive as soon as it says something of a kind, so many times."""

    def __init__(self, drive: str, times: int, at: type[Message] = Frames) -> None:
        super().__init__()
        self.drive, self.left, self.at = drive, times, at
        self.pids: dict[int, int] = {}

    def heard(self, worker: int, item: Item, message: Message) -> None:
        super().heard(worker, item, message)
        if isinstance(message, Ready):
            self.pids[worker] = message.pid
        elif isinstance(message, self.at) and item.drive == self.drive and self.left:
            self.left -= 1
            os.kill(self.pids[worker], signal.SIGKILL)
