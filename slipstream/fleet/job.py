"""What every drive of a run is put through, and one drive of it: what a worker is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from drives.clusters import clusters_key
from drives.results import Asked, Report
from planners.plan import Aggregate
from runtime.settings import DecodeSettings
from slipstream.commands.recordings import NONE, Recordings


@dataclass(frozen=True)
class Job:
    """What is the same for every drive.

    Attributes:
        bundle: its folder, absolute.
        key, version: of the bundle and of slipstream; a worker that has others refuses.
        settings: decoder name -> settings.
        rule: how rollouts become one trajectory.
        frames: the selection of windows; a count is cut to what a drive has.
        provider, threads: of the engine.
        command: how to run it again.
        recordings: files of plans to write; each drive's folder gets its own.
        clusters: WOD-E2E sequence -> scenario cluster.
    """

    bundle: Path
    key: str
    version: str
    settings: Mapping[str, DecodeSettings]
    rule: Aggregate
    frames: str
    provider: str
    threads: int
    command: str
    recordings: Recordings = NONE
    clusters: Mapping[str, str] = field(default_factory=dict)

    @property
    def asked(self) -> Asked:
        """What reports keep of this, for a run that goes on."""
        return Asked(
            frames=self.frames, provider=self.provider, clusters=clusters_key(self.clusters)
        )


@dataclass(frozen=True)
class Item:
    """One drive.

    Attributes:
        drive: as it was named.
        folder: of its report, in the run's folder.
        place: as `drives.open.open_drive` takes it wherever a worker lives: paths are absolute.
        finished: key of the recording that a report there is about; "" without one. A drive with
            that key is not run again.
        again: why a drive with a report is run again; "" where it is not known beforehand.
        also: names of recordings beside that report which this run doesn't ask for; they are made
            anew with it.
    """

    drive: str
    folder: str
    place: str
    finished: str = ""
    again: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ready:
    """A worker's engine is loaded; where the worker lives."""

    host: str
    pid: int


@dataclass(frozen=True)
class Frames:
    """How far a worker is with its drive."""

    done: int
    total: int


@dataclass(frozen=True)
class Done:
    """A drive's report is written, or `kept`: there was one of the same recording."""

    kept: bool


@dataclass(frozen=True)
class Failed:
    """A drive can't be run, whoever tries: `what, expected, found, fix` of the error.

    `refused`: not for the drive's sake, but the bundle or the settings can't be run.
    """

    error: tuple[str, str, str, str]
    refused: bool = False


@dataclass(frozen=True)
class Died:
    """A worker is gone, and why as far as it is known."""

    why: str


Message = Ready | Frames | Done | Failed | Died


@dataclass(frozen=True)
class Finished:
    """A drive with a report, or with the error that it has none for.

    Attributes:
        report: without what only its own page shows.
        same: decoders grouped by equal plans on every frame, by their names.
    """

    item: Item
    report: Report | None
    error: str = ""
    same: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, item: Item, report: Report) -> Finished:
        """A drive with its whole report, of which only what is pooled is kept: hundreds of them
        must fit the memory."""
        same = tuple(tuple(each.name for each in group) for group in report.same_plans())
        rows = [row.model_copy(update={"trajectory": None}) for row in report.rows]
        return cls(item, report.model_copy(update={"rows": rows, "scenes": []}), "", same)
