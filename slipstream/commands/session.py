"""From a planner, a drive and decoder settings to a report on disk and tables in the terminal."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from drives.drive import Drive
from drives.replay import Plans, Replay, replay
from drives.report import build_report, bundle_info, check_page, write_report
from drives.results import Asked, Report
from drives.summary import OutputLength
from drives.windows import Window
from planners.plan import Aggregate
from planners.planner import Planner
from runtime.settings import DecodeSettings
from slipstream.commands.metered import Meter
from slipstream.commands.terminal import show_report


def replay_and_report(
    planner: Planner,
    drive: Drive,
    windows: Sequence[Window],
    settings: Mapping[str, DecodeSettings],
    rule: Aggregate,
    out: Path,
    *,
    skipped: Mapping[str, int],
    console: Console,
    asked: Asked | None = None,
    clusters: Mapping[str, str] | None = None,
    meter: Meter | None = None,
) -> Replay:
    """Replay with a progress bar, write the report, print its tables and where it is.

    Raises:
        SlipstreamError: before the replay, that no page can be made; a frame that can't be planned,
            or a folder that can't be written.
    """
    check_page()
    began = time.perf_counter()
    plans = meter.on(planner) if meter else planner
    result = with_progress(plans, windows, settings, rule, skipped, console)
    wall_s = time.perf_counter() - began
    report = report_of(
        planner,
        drive,
        result,
        wall_s=wall_s,
        command=own_command(),
        asked=asked,
        clusters=clusters,
    )
    page = write_report(report, out)
    show_report(report, console)
    console.print(Text.assemble("\nreport: ", (str(page), "bold")), soft_wrap=True)
    return result


def report_of(
    planner: Planner,
    drive: Drive,
    result: Replay,
    *,
    wall_s: float,
    command: str,
    asked: Asked | None,
    clusters: Mapping[str, str] | None = None,
) -> Report:
    """The report of what a planner did on a drive."""
    return build_report(
        result,
        drive=drive,
        bundle=bundle_info(planner.bundle),
        output=output_length(planner),
        text=planner.text,
        wall_s=wall_s,
        command=command,
        threads=planner.threading.threads,
        asked=asked,
        clusters=clusters,
    )


def own_command() -> str:
    """This process's command line, to run it again."""
    return " ".join(["slipstream", *(shlex.quote(word) for word in sys.argv[1:])])


def output_length(planner: Planner) -> OutputLength:
    """The planner's output length, and how much of it comes before the fork's first value."""
    scaffold = planner.scaffold
    span = scaffold.section(planner.language.fork_section)
    first = int(np.argmax(scaffold.is_value[span.start : span.stop]))
    return OutputLength(len(scaffold), span.start + first)


def with_progress(
    planner: Plans,
    windows: Sequence[Window],
    settings: Mapping[str, DecodeSettings],
    rule: Aggregate,
    skipped: Mapping[str, int],
    console: Console,
) -> Replay:
    """Replay under a progress bar."""
    with progress_bar(console, f"{len(settings)} decoders, frame by frame", len(windows)) as done:
        return replay(planner, windows, settings, rule, skipped=skipped, progress=done)


@contextmanager
def progress_bar(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that goes away at the end; what it gives takes the number that is done."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.update(task, completed=done)
