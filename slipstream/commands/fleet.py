"""`slipstream run` on many drives: check, hand out, pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.console import Console
from rich.text import Text

from drives.costs import settings_of
from drives.open import check_drive, with_topics
from drives.report import PAGE
from drives.selection import Selection
from planners.plan import Aggregate
from runtime.bundle import Bundle, Manifest
from runtime.engines.backend import Backend
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.settings import DRAFTING, FOLLOWING
from runtime.tune import check_threads
from slipstream.commands.about import own_version
from slipstream.commands.request import DEFAULT, Request, decoder_name, settings_for
from slipstream.commands.screen import Screen
from slipstream.commands.session import own_command
from slipstream.fleet.comparable import by_the_gate
from slipstream.fleet.drives import folder_of, named, place_of
from slipstream.fleet.finished import SUMMARY, check_folder, report_in, run_again, with_finished
from slipstream.fleet.job import Finished, Item, Job
from slipstream.fleet.local import Processes
from slipstream.fleet.progress import Board
from slipstream.fleet.schedule import Crew, run_all
from slipstream.fleet.terminal import show_summary

THREADS = 1  # of an engine: workers share the cores, and results must not depend on their number
MOST_WORKERS = 1024


def run_fleet(request: Request) -> int:
    """Replay many drives, write a report for each and a summary of all; the exit code.

    Returns:
        0, or 1 where a drive failed: the summary names it and its error.

    Raises:
        SlipstreamError: a bad option, bundle or output folder, a drive that is not there, reports
            of another run in the output folder; all found before an engine is loaded.
    """
    console = Screen()
    check_workers(request.workers)
    check_threads(request.threads)
    Backend.parse(request.provider)
    Selection.parse(request.frames)
    if request.ray is not None:
        from slipstream.fleet.on_ray import ray_library

        ray_library()
    names = [with_topics(name, request.topics) for name in named(request.drives)]
    for name in names:
        check_drive(name)
    check_folder(request.out)
    request.recordings.check_names()
    request.recordings.beside(request.out).check()
    job = job_of(request)
    items = [Item(name, folder_of(name), place_of(name)) for name in names]
    known = with_finished(items, request.out, job)
    for told in run_again(known, request.out):
        console.print(told, highlight=False, soft_wrap=True)
    for name in unrepeatable(job):
        console.print(f"{name}: {UNREPEATABLE}", style="yellow", soft_wrap=True)
    if request.deadline_ms is not None and request.rollouts > 1:
        console.print(BY_DEADLINE, style="yellow", soft_wrap=True)
    errors = _replayed(known, job, request, console)
    finished = [_finished(item, request.out, errors.get(item.drive, "")) for item in items]
    return _pooled(finished, job, request, console)


UNREPEATABLE = (
    "its draws depend on what passes took, so another run gives other plans of the same "
    "distribution; --accept coupled, or --block and --nodes, make them repeat"
)
BY_DEADLINE = (
    "--deadline-ms: how many rollouts a frame has depends on what passes took, so another run, or "
    "other --workers, gives other plans"
)


def job_of(request: Request) -> Job:
    """What the drives are put through; the bundle is checked, but no engine is loaded.

    Raises:
        SlipstreamError: a broken bundle, or settings that it can't run.
    """
    bundle = Bundle.open(request.bundle)
    chosen = [
        settings_for(request, name, repeatable=True) for name in request.named_decoders() or DEFAULT
    ]
    if not request.named_decoders() and bundle.manifest.draft is None:
        chosen = [settings for settings in chosen if settings.method not in DRAFTING]
    _check_rollouts(request, bundle.manifest)
    return Job(
        bundle=request.bundle.resolve(),
        key=bundle.key,
        version=own_version(),
        settings={decoder_name(settings): settings for settings in chosen},
        rule=cast(Aggregate, request.rule),
        frames=request.frames,
        provider=request.provider,
        threads=request.threads or THREADS,
        command=own_command(),
        recordings=request.recordings,
        clusters=request.scenario_clusters(),
    )


def unrepeatable(job: Job) -> list[str]:
    """Decoders whose outputs depend on times: sampled, by a rule of their own, under the gate."""
    return [
        name
        for name, settings in job.settings.items()
        if by_the_gate(settings_of(settings))
        and settings.rule not in FOLLOWING
        and (settings.sampling.temperature or settings.prefix_sampling.temperature)
    ]


def check_workers(workers: int | None) -> None:
    """Insist on a number of workers that a machine or a cluster may have.

    Raises:
        SlipstreamError: it is out of range.
    """
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise SlipstreamError(
            "--workers is out of range",
            expected=f"a whole number, 1 to {MOST_WORKERS}",
            found=str(workers)[:60],
            fix="give as many as the machine has cores, or fewer",
        )


def _replayed(
    items: Sequence[Item], job: Job, request: Request, console: Console
) -> dict[str, str]:
    """The drives that failed -> their errors."""
    crew, workers = crew_of(job, request, console)
    board = Board(len(items), console)
    try:
        with board.progress:
            failures = run_all(crew, items, workers, board)
    finally:
        crew.close()
        for item in items:
            crew.clear(item)
    return {item.drive: error for item, error in failures.items()}


def crew_of(job: Job, request: Request, console: Console) -> tuple[Crew, int]:
    """The workers that were asked for, and how many at a time.

    Raises:
        SlipstreamError: there is no cluster, or no room on it.
    """
    if request.ray is None:
        return Processes(job, request.out), request.workers or 1
    from slipstream.fleet.on_ray import Actors

    with console.status("connecting to Ray"):
        actors = Actors(job, request.out, request.ray, request.workers)
        room = actors.room()
    if request.workers and room < request.workers:
        told = f"the cluster has room for {room} of {request.workers} workers"
        console.print(told, style="yellow")
    return actors, min(room, request.workers or room)


def _pooled(finished: Sequence[Finished], job: Job, request: Request, console: Console) -> int:
    """Write and show the summary; the exit code."""
    from slipstream.fleet.pooled import distinct, pooled
    from slipstream.fleet.summary_page import summary_page

    finished = distinct(finished)
    failed = [each for each in finished if each.report is None]
    if len(failed) < len(finished):
        summary = pooled(finished, job)
        write_atomic(request.out / PAGE, summary_page(summary))
        write_atomic(request.out / SUMMARY, summary.model_dump_json(indent=1))
        show_summary(summary, console)
        console.print(
            Text.assemble("\nsummary: ", (str(request.out / PAGE), "bold")), soft_wrap=True
        )
    for each in failed:
        console.print(f"\nfailed: {each.item.drive}", style="bold red", soft_wrap=True)
        console.print(each.error, highlight=False, soft_wrap=True)
    return 1 if failed else 0


def _finished(item: Item, out: Path, error: str) -> Finished:
    report = None if error else report_in(out, item)
    if report is None:
        return Finished(item, None, error or "its report can't be read any more")
    return Finished.of(item, report)


def _check_rollouts(request: Request, manifest: Manifest) -> None:
    limit = manifest.limits.rollouts
    if request.rollouts > limit:
        raise SlipstreamError(
            "more rollouts than the bundle was made for",
            expected=f"at most {limit}, the limit of {manifest.name}",
            found=str(request.rollouts),
            fix=f"--rollouts {limit}, or slipstream export TARGET --draft DRAFTER -o BUNDLE "
            f"--rollouts {request.rollouts}",
        )
