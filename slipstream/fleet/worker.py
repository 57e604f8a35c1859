"""One worker: an engine, loaded once, that replays one drive after another."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from drives.cameras import with_cameras
from drives.identity import drive_key
from drives.open import open_drive
from drives.replay import replay
from drives.report import check_page, fill_folder
from drives.selection import Selection
from drives.windows import windows
from planners.planner import Planner
from runtime.errors import BundleError, SlipstreamError
from slipstream.commands.about import own_version
from slipstream.commands.recordings import Recordings
from slipstream.commands.session import report_of
from slipstream.fleet.job import Done, Failed, Frames, Item, Job, Message, Ready

Say = Callable[[Message], None]


class Worker:
    """Serves a job; the same in a process of this machine and in an actor of a cluster."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._planner: Planner | None = None

    def work(self, item: Item, into: AbstractContextManager[Path], say: Say) -> None:
        """Replay a drive, write its files into the folder, and say how it went.

        Args:
            into: entered only when everything is measured; what is written there is kept if the
                block ends without an error.
            say: hears `Ready` when the engine is loaded, `Frames`, and at last `Done` or `Failed`.
        """
        try:
            drive = open_drive(item.place)
            if item.finished and item.finished == drive_key(drive):
                return say(Done(kept=True))
            cut = windows(drive)
            chosen = Selection.parse(self.job.frames).of(cut.windows, drive.place)
        except SlipstreamError as error:
            return say(failed(error))
        try:
            planner = self._ready(say)
            seen, unseen = with_cameras(chosen, drive, planner.bundle.manifest.vision)
            began = time.perf_counter()
            result = replay(
                planner,
                seen,
                self.job.settings,
                self.job.rule,
                skipped=cut.skipped + unseen,
                progress=lambda done: say(Frames(done, len(seen))),
            )
        except SlipstreamError as error:
            return say(failed(error, refused=True))
        try:
            report = report_of(
                planner,
                drive,
                result,
                wall_s=time.perf_counter() - began,
                command=self.job.command,
                asked=self.job.asked,
                clusters=self.job.clusters,
            )
            with into as folder:
                fill_folder(report, folder)
                self.job.recordings.beside(folder).write(result, drive)
                for name in item.also:
                    Recordings.of(folder / name).write(result, drive)
        except SlipstreamError as error:
            return say(failed(error))
        return say(Done(kept=False))

    def _ready(self, say: Say) -> Planner:
        """The planner, as if it were just loaded: a report must not depend on the drives before."""
        if self._planner is None:
            import slipstream

            if own_version() != self.job.version:
                raise SlipstreamError(
                    "a worker has another slipstream",
                    expected=f"version {self.job.version}, as where the run was started",
                    found=own_version(),
                    fix="install the same version on every node of the cluster",
                )
            check_page()
            planner = slipstream.load(self.job.bundle, self.job.threads, self.job.provider)
            if planner.bundle.key != self.job.key:
                raise BundleError(
                    f"{self.job.bundle} is another bundle to this worker",
                    expected=f"{self.job.key}, as when the run began",
                    found=planner.bundle.key,
                    fix="leave the bundle alone while it runs; on a cluster, put the same one "
                    "under the same path on every node",
                )
            self._planner = planner
            say(Ready(platform.node(), os.getpid()))
        self._planner.forget()
        return self._planner


def failed(error: SlipstreamError, *, refused: bool = False) -> Failed:
    return Failed((error.what, error.expected, error.found, error.fix), refused)


def error_of(said: Failed) -> SlipstreamError:
    """The error that a worker said."""
    what, expected, found, fix = said.error
    return SlipstreamError(what, expected=expected, found=found, fix=fix)
