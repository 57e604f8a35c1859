"""The report of a replay: `report.json` and the page `index.html`, written together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.bootstrap import RESAMPLES, SEGMENT_S
from drives.drive import Drive
from drives.identity import drive_key
from drives.judging import baseline_rows, frame_rows, judge
from drives.machine import this_machine
from drives.replay import Replay
from drives.results import REPORT, Asked, BundleInfo, DriveInfo, Report, Sampling
from drives.scenes import scenes
from drives.summary import OutputLength, Summary
from drives.trained_on import training_of
from drives.windows import windows
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from runtime.files import check_writable, contents, new_folder, unwritable

PAGE = "index.html"


def build_report(
    replay: Replay,
    *,
    drive: Drive,
    bundle: BundleInfo,
    output: OutputLength,
    text: Callable[[NDArray[np.int64]], str],
    wall_s: float,
    command: str = "",
    threads: int | None = None,
    asked: Asked | None = None,
    clusters: Mapping[str, str] | None = None,
) -> Report:
    """All figures of a replay.

    Args:
        replay: what ran.
        drive, bundle: what it ran on.
        output: tokens of an output.
        text: turns an output's tokens [L] into text.
        wall_s: s, the whole replay.
        command: how to run it again.
        threads: engine threads; None is the engine's default.
        asked: the selection and the provider, for a run that is resumed.
        clusters: sequence -> scenario cluster (`drives.clusters`), for averages of rated frames.
    """
    summary = Summary(replay, output, text)
    board = judge(summary, drive, clusters)
    return Report(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=command,
        machine=this_machine(threads),
        bundle=bundle,
        drive=drive_info(drive),
        training=training_of(drive, replay.windows, bundle.data),
        asked=asked,
        rule=replay.rule,
        output_tokens=output.tokens,
        shared_tokens=output.shared,
        frames=len(replay.windows),
        warmup_frames=max(len(seconds) for seconds in replay.warmup.values()),
        skipped=dict(replay.skipped.most_common()),
        wall_s=wall_s,
        intervals=Sampling(
            segment_s=SEGMENT_S,
            segments=summary.bootstrap.segments,
            resamples=RESAMPLES,
            seed=0,
        ),
        decoders=summary.decoders(),
        kinematic=summary.kinematic(),
        scenes=scenes(summary, drive),
        leaderboards=board.tables(),
        rows=frame_rows(replay, board),
        baseline_rows=baseline_rows(replay, board),
    )


def check_page() -> None:
    """Insist, before a replay, that its page can be made.

    Raises:
        SlipstreamError: its pictures can't be drawn.
    """
    import drives.page  # noqa: F401 - not at the top: a refused command needs no matplotlib


def write_report(report: Report, folder: Path) -> Path:
    """Write both files, or nothing; an older report there is replaced as a whole.

    Returns:
        The page's path.

    Raises:
        SlipstreamError: the folder holds something else, or can't be written.
    """
    check_output(folder)
    with new_folder(folder, last=REPORT) as work:
        fill_folder(report, work)
    return folder / PAGE


def fill_folder(report: Report, folder: Path) -> None:
    """Write both files into a folder that is being made.

    Raises:
        SlipstreamError: they can't be written.
    """
    from drives.page import page

    try:
        (folder / REPORT).write_text(report.model_dump_json(indent=1), encoding="utf-8")
        (folder / PAGE).write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error) from error


def check_output(folder: Path) -> None:
    """Insist that a report may go there: a new or empty folder, or one with only a report.

    Raises:
        SlipstreamError: naming what is in the way, or the folder can't be made.
    """
    check_writable(folder, folder=True)
    if not folder.exists():
        return
    if folder.is_dir():
        names = [entry.name for entry in contents(folder)]
        others = [name for name in names if name not in (REPORT, PAGE)]
        if not others and len(names) != 1:
            return
        found = ", ".join(others[:5]) or "half of a report"
    else:
        found = "a file"
    raise SlipstreamError(
        f"{folder} is not replaced by a report",
        expected="a new folder, an empty one, or an earlier report",
        found=found,
        fix="name another folder with -o",
    )


def bundle_info(bundle: Bundle) -> BundleInfo:
    manifest = bundle.manifest
    return BundleInfo(
        name=manifest.name,
        key=bundle.key,
        target=manifest.provenance.target,
        drafter=manifest.provenance.drafter,
        precision={name: graph.precision for name, graph in manifest.graphs.items()},
        data=manifest.provenance.data,
    )


def drive_info(drive: Drive) -> DriveInfo:
    return DriveInfo(
        name=drive.name,
        licence=drive.licence,
        source=drive.source,
        synthetic=drive.synthetic,
        duration_s=drive.duration,
        length_m=drive.path_length,
        windows=len(windows(drive)),
        key=drive_key(drive),
    )
