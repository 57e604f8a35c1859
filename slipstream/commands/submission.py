"""`slipstream submission`: from shards of WOD-E2E to the challenge's files, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from rich.table import Table

from drives.readers.wod_e2e import wod_e2e_frames
from drives.submission import FALLBACK_NAME, choose, plan_frames, required_frames
from drives.submission_files import (
    Checked,
    check_output,
    check_submission,
    shard_count,
    write_submission,
)
from drives.submission_format import Method
from planners.plan import Aggregate
from runtime.engines.backend import Backend
from runtime.errors import SlipstreamError
from runtime.settings import Accept, DecodeSettings, Sampling
from runtime.settings import Method as Drafting
from runtime.tune import check_threads
from slipstream.commands.parameters import in_words, parameter_count
from slipstream.commands.request import SAMPLED, method_and_rule
from slipstream.commands.screen import Screen

_COUNT_LATER = "1K"  # stands for the bundle's own number until the bundle is open

_LISTED = 8  # frames without a plan that are named


@dataclass(frozen=True)
class Request:
    """The options of `slipstream submission`, as given; `parameters` None counts the bundle's."""

    bundle: Path | None
    drive: Path | None
    out: Path | None
    account: str
    method_name: str
    authors: tuple[str, ...]
    affiliation: str
    description: str
    link: str
    public_models: tuple[str, ...]
    parameters: str | None
    required: Path | None
    shards: int | None
    decoder: str | None
    rollouts: int
    temperature: float | None
    rule: str
    seed: int
    threads: int | None
    provider: str


def run_submission(request: Request) -> None:
    """Plan, write, read back and say what came of it.

    Raises:
        SlipstreamError: a bad option, shard, list, bundle or output, all found before an engine is
            loaded; a damaged record later.
    """
    console = Screen()
    bundle = _given(request.bundle, "BUNDLE")
    drive, out = _given(request.drive, "--drive SHARDS"), _given(request.out, "-o DIR")
    method = Method(
        account=request.account,
        name=request.method_name,
        parameters=request.parameters or _COUNT_LATER,
        authors=request.authors,
        affiliation=request.affiliation,
        description=request.description,
        link=request.link,
        public_models=request.public_models,
    )
    check_threads(request.threads)
    Backend.parse(request.provider)
    settings = settings_of(request, request.decoder or "dflash")
    check_output(out)
    required = None if request.required is None else required_frames(request.required)
    with console.status("looking through the shards"):
        frames = choose(wod_e2e_frames(drive), required, str(drive))
    shards = shard_count(len(frames), request.shards)

    # only now the engine
    import slipstream
    from slipstream.commands.session import progress_bar

    with console.status("loading the bundle"):
        planner = slipstream.load(bundle, request.threads, request.provider)
    if request.parameters is None:
        method = replace(method, parameters=in_words(parameter_count(planner.bundle)))
    if request.decoder is None and planner.bundle.manifest.draft is None:
        settings = settings_of(request, "ar-scaffold")
    with progress_bar(console, "frame by frame", len(frames)) as progress:
        rule = cast(Aggregate, request.rule)
        planned = plan_frames(planner, frames, settings, rule, progress)
    archive = write_submission(out, method, planned.predictions, shards)
    show(check_submission(out, list(frames)), console)
    lost = len(planned.fallbacks)
    if lost:
        named = ", ".join(planned.fallbacks[:_LISTED]) + (", ..." if lost > _LISTED else "")
        console.print(
            f"without a plan: {lost} of {len(frames)} frames, which got {FALLBACK_NAME}: {named}",
            style="yellow",
        )
    else:
        console.print("every frame has a plan of its own; no fallback was needed")
    if required is None:
        console.print(
            "these are all frames of the shards; the challenge wants those of its list: --required "
            "test_sequence_frames_for_submission.json",
            style="yellow",
        )
    console.print(f"to upload: {archive}", highlight=False, soft_wrap=True)


def settings_of(request: Request, decoder: str) -> DecodeSettings:
    """Settings of a decoder given as `method` or `method:rule`; they check themselves."""
    method, accept = method_and_rule(decoder)
    temperature = request.temperature
    if temperature is None:
        temperature = SAMPLED if request.rollouts > 1 else 0.0
    return DecodeSettings(
        method=cast("Drafting", method),
        accept=cast("Accept | None", accept),
        rollouts=request.rollouts,
        sampling=Sampling(temperature),
        seed=request.seed,
    )


def run_check(path: Path, required: Path | None) -> None:
    """Check a submission that is there, and print what it says.

    Raises:
        SlipstreamError: a rule that is broken.
    """
    wanted = None if required is None else required_frames(required)
    show(check_submission(path, wanted), Screen())


def show(checked: Checked, console: Screen) -> None:
    method = checked.method
    facts = {
        "frames": f"{len(checked.predictions.frames):,}, each with 20 points, 0.25 s to 5 s ahead",
        "shards": str(checked.shards),
        "account": method.account,
        "method": method.name,
        "authors": ", ".join(method.authors) or "none named",
        "affiliation": method.affiliation,
        "description": method.description,
        "link": method.link,
        "parameters": method.parameters,
        "public models": ", ".join(method.public_models) or "none used in pre-training",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, text in facts.items():
        if text:
            table.add_row(name, text)
    console.print(table)
    console.print("the format holds; the challenge's server has not seen it")


def _given(path: Path | None, option: str) -> Path:
    if path is None:
        raise SlipstreamError(
            f"a submission needs {option}",
            expected="slipstream submission BUNDLE --drive SHARDS -o DIR --account ADDRESS "
            "--method-name NAME, or --check DIR",
            found=f"no {option}",
            fix=f"give {option}",
        )
    return path
