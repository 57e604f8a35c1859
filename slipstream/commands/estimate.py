"""`slipstream estimate`: memory, latency by stage and rollouts on a Jetson that is not at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich import box
from rich.table import Table
from rich.text import Text

from runtime.bundle import Bundle
from runtime.engines.store import EngineStore, Precision, sm_name
from runtime.errors import SlipstreamError
from slipstream.commands.screen import Screen, banner
from slipstream.estimate import fast_ddrive
from slipstream.estimate.acceptance import Acceptance, Acceptances, given, measured
from slipstream.estimate.activations import Activations, of_engines
from slipstream.estimate.bundle_shape import shape_of
from slipstream.estimate.devices import check_precision, device_named
from slipstream.estimate.frame import Frame, Work, break_even, estimate_frame, fits, most_rollouts
from slipstream.estimate.frame_size import FrameSize
from slipstream.estimate.named import model_named
from slipstream.estimate.published import ROWS, WITHIN, slowdown_of_batches
from slipstream.estimate.roofline import ACTIVATIONS, FORMULA, Roofline
from slipstream.estimate.shape import ModelShape

SHOWN = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Request:
    """The options of `slipstream estimate`, as given; None is not given."""

    bundle: str
    device: str
    precision: str
    rollouts: int | None
    batch: int | None
    deadline_ms: float | None
    acceptance_length: float | None
    reports: tuple[Path, ...]
    block: int | None
    prompt: int | None
    prefix: int | None
    tail: int | None
    engines: Path | None
    as_json: bool


def run_estimate(request: Request) -> None:
    """Print the estimate.

    Raises:
        SlipstreamError: an unknown device, precision or model, a bad number, or a bad bundle.
    """
    device, precision = device_named(request.device), check_precision(request.precision)
    _check_numbers(request)
    bundle = Bundle.open(request.bundle) if Path(request.bundle).is_dir() else None
    model = shape_of(bundle) if bundle else model_named(request.bundle)
    built = None
    if bundle and (store := _store(request.engines)):
        built = of_engines(bundle, precision, device, store)
    roofline = Roofline(model, device, precision, None, built.bytes if built else None)
    tokens = request.prompt, request.prefix, request.tail
    size = FrameSize(model, bundle, *tokens, request.batch)
    acceptances = _acceptances(request, model, bundle, size)

    def work(n: int) -> Work:
        return size.drafted(acceptances.of(n)) if acceptances else size.plain

    counts = _counts(request, model)
    frames = [estimate_frame(roofline, work(n), n) for n in counts]
    facts = _facts(roofline, size.plain)
    facts["decoding"] = (
        acceptances.text(counts) if acceptances else "plain decoding, one token a pass"
    )
    facts["activations"] = _activations(request, roofline, built)
    if model.draft:
        block = request.block or model.block
        facts |= _gain(roofline, size, acceptances, counts[0], block)
    if request.deadline_ms is not None:
        n = most_rollouts(roofline, work, request.deadline_ms / 1e3)
        alone = estimate_frame(roofline, work(1), 1).seconds
        facts[f"rollouts within {request.deadline_ms:g} ms"] = (
            f"{n} (limit of the model: {model.most_rollouts})"
            if n
            else f"none: N = 1 alone takes {1e3 * alone:.0f} ms"
        )
    facts["measured against"] = _evidence()
    if request.as_json:
        print(_json(facts, frames, roofline))
        return
    borrowed = acceptances.borrowed(counts) if acceptances else []
    _show(facts, frames, roofline, request.deadline_ms, borrowed)


def _acceptances(
    request: Request, model: ModelShape, bundle: Bundle | None, size: FrameSize
) -> Acceptances | None:
    length, block = request.acceptance_length, request.block or model.block
    if length is not None and request.reports:
        raise SlipstreamError(
            "--acceptance-length and --report contradict each other",
            expected="the acceptance length, or a report that it was measured in",
            found="both",
            fix="leave one of them out",
        )
    if length is None and not request.reports:
        if not size.as_published or block != fast_ddrive.BLOCK:
            return None
        return given(fast_ddrive.LENGTH, block, schema=True, source=fast_ddrive.SOURCE)
    if model.draft is None:
        raise SlipstreamError(
            f"{request.bundle} has no drafter, so nothing is accepted",
            expected="neither --acceptance-length nor --report",
            found="one of them",
            fix="leave it out, or export with --draft DRAFTER",
        )
    if length is not None:
        most, what = block, "the block"
        if model.drafts_itself:
            most, what = size.blocks(block).longest, "tokens of the schema's longest block"
        if length > most:
            raise _bad("--acceptance-length", f"1 to {most}, {what}", length)
        return given(length, block, schema=model.drafts_itself)
    return measured(request.reports, bundle, block)


def _gain(
    roofline: Roofline, size: FrameSize, acceptances: Acceptances | None, rollouts: int, block: int
) -> dict[str, str]:
    """From where drafting pays, and where it is drafted, against plain decoding."""
    of_schema = roofline.model.drafts_itself
    taken = acceptances.of(rollouts) if acceptances else Acceptance(1.0, block, "", of_schema)
    work = size.drafted(taken)
    least = break_even(roofline, work, rollouts)
    where = f"block {taken.block}"
    if work.blocks:
        where = f"schema's blocks of {taken.block}"
    facts = {"drafting pays from": f"acceptance length {least:.2f} ({where}, N = {rollouts})"}
    if least is None:
        facts = {"drafting pays from": f"never, with {where} and N = {rollouts}"}
    if acceptances:
        plain = estimate_frame(roofline, size.plain, rollouts).seconds
        ratio = plain / estimate_frame(roofline, work, rollouts).seconds
        facts["plain decoding"] = f"{1e3 * plain:.0f} ms at N = {rollouts}, {ratio:.2f}x as long"
    return facts


def _counts(request: Request, model: ModelShape) -> list[int]:
    if request.rollouts is None:
        return [n for n in SHOWN if n <= model.most_rollouts]
    if request.rollouts > model.most_rollouts:
        raise _bad("--rollouts", f"1 to {model.most_rollouts}", request.rollouts)
    return [request.rollouts]


def _facts(roofline: Roofline, work: Work) -> dict[str, str]:
    device, model, factors = roofline.device, roofline.model, roofline.factors
    stored = f", {_mb(model.stored)} on disk" if model.stored is not None else ""
    return {
        "model": f"{model.name}{stored}",
        "device": f"{device.title}: {device.bandwidth / 1e9:g} GB/s, "
        f"{roofline.rate / 1e12:g} dense T op/s at {roofline.precision}, "
        f"{device.memory / 1e9:g} GB shared memory",
        "data sheet": device.source,
        "frame": f"prompt {work.prompt} tokens, {work.prefix} before the fork, {work.tail} behind"
        + (f", at most {work.batch} rollouts at once" if work.batch else ""),
        "formula": FORMULA,
        "factors": f"e_b {factors.bandwidth:g}, e_c {factors.compute:g}, "
        f"t_block {factors.block * 1e6:g} us; tables, drafter and cameras at least 16 bits; "
        f"no host time, no sampling{'' if model.vision else ', no cameras'}",
    }


def _activations(request: Request, roofline: Roofline, built: Activations | None) -> str:
    if built:
        return f"{_mb(built.bytes)}, {built.source}"
    text = f"by formula: {ACTIVATIONS}"
    if roofline.model.largest is None or roofline.precision not in get_args(Precision):
        return text
    target = sm_name(roofline.device.compute_capability)
    command = f"slipstream compile {request.bundle} --target {target} --precision"
    return f"{text}; `{command} {roofline.precision}` on the device gives the builder's own figure"


def _evidence() -> str:
    reproduced = [row for row in ROWS if row.why_not is None]
    least, most = slowdown_of_batches()
    return (
        f"{len(reproduced)} published single-sequence rates, reproduced within {WITHIN:.0%}; "
        f"published rates of 8 sequences are {least:.1f} to {most:.1f} times slower than this "
        "formula, so read large N as a lower bound"
    )


def _show(
    facts: dict[str, str],
    frames: Sequence[Frame],
    roofline: Roofline,
    deadline_ms: float | None,
    borrowed: Sequence[int],
) -> None:
    console = Screen()
    console.print(banner("ESTIMATE", "nothing was measured on this device"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in facts.items():
        grid.add_row(name, Text(value))  # a report's words are no markup
    console.print(grid, highlight=False)
    deadline = None if deadline_ms is None else deadline_ms / 1e3
    encode = ("encode",) if roofline.model.vision else ()
    stages = (*encode, "prefill", "draft", "verify", "head")
    kept = ("late",) if deadline is not None else ()
    latency = _table("N", *stages, "frame, ms", "rounds", "tok/round", *kept)
    memory = _table("N", "weights", "keys and values", "workspace", "memory", "")
    for frame in frames:
        n, size = str(frame.rollouts), roofline.device.memory
        took = (*(getattr(frame, stage) for stage in stages), frame.seconds)
        late = () if deadline is None else ("no" if frame.seconds <= deadline else "yes",)
        doubtful = "?" if frame.rollouts in borrowed else ""
        rounds = (f"{frame.rounds:.0f}", f"{frame.acceptance_length:.2f}{doubtful}")
        latency.add_row(n, *(milliseconds(s) for s in took), *rounds, *late)
        parts = (frame.weights, frame.cache, frame.workspace, frame.memory)
        room = "fits" if fits(frame, size, None) else "does not fit"
        memory.add_row(n, *(_mb(part) for part in parts), room)
    console.print(latency)
    if borrowed:
        console.print(
            "? measured with another number of rollouts; sampled ones mostly accept less: add "
            f"--report of a run with --rollouts {borrowed[-1]}",
            style="yellow",
        )
    console.print(memory)


def _table(*headings: str) -> Table:
    # close set: all stages and a deadline stand in 80 columns
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def milliseconds(seconds: float) -> str:
    """As many digits as a roofline can mean, and as a column has room for."""
    return f"{1e3 * seconds:.{0 if seconds >= 1 else 1 if seconds >= 0.1 else 2}f}"


def _json(facts: dict[str, str], frames: Sequence[Frame], roofline: Roofline) -> str:
    rows = [
        {
            "rollouts": frame.rollouts,
            "ms": {
                "encode": 1e3 * frame.encode,
                "prefill": 1e3 * frame.prefill,
                "draft": 1e3 * frame.draft,
                "verify": 1e3 * frame.verify,
                "head": 1e3 * frame.head,
                "frame": 1e3 * frame.seconds,
            },
            "rounds": frame.rounds,
            "acceptance_length": frame.acceptance_length,
            "bytes": {
                "weights": frame.weights,
                "cache": frame.cache,
                "workspace": frame.workspace,
                "all": frame.memory,
            },
        }
        for frame in frames
    ]
    head = {"estimate": True, "device": roofline.device.name, "precision": roofline.precision}
    return json.dumps({**head, "facts": facts, "frames": rows}, indent=1)


def _mb(size: float) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _store(folder: Path | None) -> EngineStore | None:
    """Engines that may have been built; none where the user has no cache."""
    with suppress(SlipstreamError):
        return EngineStore(folder)
    return None


def _check_numbers(request: Request) -> None:
    whole: dict[str, tuple[int | None, int]] = {
        "--rollouts": (request.rollouts, 1),
        "--batch": (request.batch, 1),
        "--block": (request.block, 2),
        "--prompt": (request.prompt, 1),
        "--prefix": (request.prefix, 0),
        "--tail": (request.tail, 1),
    }
    for option, (number, least) in whole.items():
        if number is not None and not least <= number <= 1 << 20:
            raise _bad(option, f"{least} to {1 << 20}", number)
    if request.deadline_ms is not None and not 0.0 < request.deadline_ms < float("inf"):
        raise _bad("--deadline-ms", "a number above 0", request.deadline_ms)
    length = request.acceptance_length
    if length is not None and not 1.0 <= length < float("inf"):
        raise _bad("--acceptance-length", "at least 1: the target's own token", length)


def _bad(option: str, expected: str, found: float) -> SlipstreamError:
    return SlipstreamError(
        f"{option} is out of range",
        expected=expected,
        found=f"{found:g}",
        fix="see `slipstream estimate --help`",
    )
