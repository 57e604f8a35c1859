"""What an earlier run left in the output folder: reports to keep, or reasons not to write there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from drives.costs import settings_of
from drives.report import PAGE
from drives.results import REPORT, REPORT_VERSION, Report, Settings, read_report
from runtime.errors import SlipstreamError
from runtime.files import check_writable, stands_for
from slipstream.commands.recordings import SUFFIXES, Recordings
from slipstream.fleet.job import Item, Job

SUMMARY = "summary.json"


def check_folder(out: Path) -> None:
    """Insist that a run of many drives may be written to a folder: nothing else is in it.

    Raises:
        SlipstreamError: naming what is in the way.
    """
    check_writable(out, folder=True)
    if not out.exists():
        return
    if not out.is_dir():
        raise _in_the_way(out, "a file")
    entries = sorted(out.iterdir())
    names = [entry.name for entry in entries]
    if REPORT in names:
        raise _in_the_way(out, f"the report of one drive, {REPORT}")
    others = [entry.name for entry in entries if not _is_ours(entry)]
    if not any(entry.is_dir() for entry in entries):  # a summary of nothing is somebody else's
        others += [name for name in names if name in (PAGE, SUMMARY)]
    if others:
        raise _in_the_way(out, ", ".join(others[:5]))


def with_finished(items: Sequence[Item], out: Path, job: Job) -> list[Item]:
    """The drives, each with what is known of a report it has; those without one come first.

    Raises:
        SlipstreamError: a report there is of other settings or of another bundle: results of
            different runs are never mixed, nor replaced unasked.
    """
    known = [_with_finished(item, out, job) for item in items]
    return sorted(known, key=lambda item: bool(item.finished))


def run_again(items: Sequence[Item], out: Path) -> list[str]:
    """Which drives with a report are run again: a line a reason, `4 drives run again: no p.rrd`.

    Raises:
        SlipstreamError: a recording of theirs that must be made anew can't be written here.
    """
    reasons: dict[str, list[Item]] = {}
    for item in items:
        if item.again:
            reasons.setdefault(item.again, []).append(item)
            for name in item.also:
                Recordings.of(out / item.folder / name).check()
    return [
        f"{found[0].folder} runs again: {why}"
        if len(found) == 1
        else f"{len(found)} drives run again: {why}"
        for why, found in reasons.items()
    ]


def report_in(out: Path, item: Item) -> Report | None:
    """The report of a drive, or None where there is none that can be read."""
    try:
        return read_report(out / item.folder / REPORT)
    except SlipstreamError:
        return None


def _with_finished(item: Item, out: Path, job: Job) -> Item:
    folder = out / item.folder
    asked = job.recordings.beside(folder).files()
    item = replace(item, also=_others(folder, asked))
    report = report_in(out, item)
    if report is None:
        _check_version(out, item)
        damaged = (folder / REPORT).exists()
        return replace(item, again=f"a damaged {REPORT}" if damaged else "")
    if differs := difference(report, job):
        raise SlipstreamError(
            f"{out} holds drives of another run",
            expected=f"reports of this run: {differs[1]}",
            found=f"{item.folder}: {differs[0]}",
            fix=f"name another folder with -o, or remove the old run: rm -r {out}",
        )
    if lacks := [path.name for path in asked if not path.is_file()]:
        return replace(item, again=f"no {' and no '.join(lacks)}")
    return replace(item, finished=report.drive.key)


def _others(folder: Path, asked: Sequence[Path]) -> tuple[str, ...]:
    """Recordings in a drive's folder that this run doesn't ask for."""
    there = folder.iterdir() if folder.is_dir() else ()
    found = {path.name for path in there if path.suffix in SUFFIXES and path.is_file()}
    return tuple(sorted(found - {path.name for path in asked}))


def _check_version(out: Path, item: Item) -> None:
    """A damaged report is made again, but not one that another slipstream can read."""
    try:
        found = json.loads((out / item.folder / REPORT).read_text("utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if found != REPORT_VERSION:
        raise SlipstreamError(
            f"{out} holds drives of another slipstream",
            expected=f"reports of version {REPORT_VERSION}",
            found=f"{item.folder}: version {str(found)[:60]}",
            fix=f"name another folder with -o, or remove the old run: rm -r {out}",
        )


def difference(report: Report, job: Job) -> tuple[str, str] | None:
    """What a report was made with and this run is not, and what this run has there."""
    ours = {name: settings_of(each) for name, each in job.settings.items()}
    theirs = {each.name: each.settings for each in report.decoders}
    asked = report.asked
    pairs = (
        ("bundle", report.bundle.key, job.key),
        ("decoders", ", ".join(theirs), ", ".join(ours)),
        *(
            (f"{field} of {name}", getattr(theirs.get(name), field, None), getattr(each, field))
            for name, each in ours.items()
            for field in Settings.model_fields
        ),
        ("rule", report.rule, job.rule),
        ("--frames", asked and asked.frames, job.frames),
        ("--provider", asked and asked.provider, job.provider),
        ("--clusters", asked and asked.clusters, job.asked.clusters),
        ("--threads", report.machine.threads, job.threads),
        ("slipstream", report.machine.versions.get("slipstream", "source"), job.version),
    )
    for name, there, here in pairs:
        if there != here:
            return f"{name} {there}", f"{name} {here}"
    return None


def _is_ours(entry: Path) -> bool:
    if entry.name in (SUMMARY, PAGE):
        return entry.is_file()
    if stands_for(entry.name) is not None:  # what a killed writer left
        return True
    if not entry.is_dir():
        return False
    names = {inner.name for inner in entry.iterdir()}
    others = {name for name in names if Path(name).suffix not in SUFFIXES} - {REPORT, PAGE}
    return REPORT in names and not others


def _in_the_way(out: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{out} can't take the reports of many drives",
        expected="a new folder, an empty one, or that of an earlier run of many drives",
        found=found,
        fix="name another folder with -o",
    )
