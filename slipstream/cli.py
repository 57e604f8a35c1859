"""The command line `slipstream`: options and their help; the work is in `slipstream.commands`."""

from __future__ import annotations

import signal
import sys
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, Optional

import typer

from runtime.errors import SlipstreamError

app = typer.Typer(
    help="Run driving VLA planners on the vehicle: drafted, verified, forked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
drives = typer.Typer(help="Recorded drives: list, look at, fetch.", no_args_is_help=True)
app.add_typer(drives, name="drives")


class Rule(str, Enum):
    mean = "mean"
    medoid = "medoid"
    guarded = "guarded"


Threads = Annotated[
    Optional[int],  # noqa: UP045 - typer reads the annotation on Python 3.10
    typer.Option(help="Engine threads.", show_default="the number measured to be fastest here"),
]


@app.command()
def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    drive: Annotated[
        str, typer.Option(help="kitti-00, synthetic, or a path; see `slipstream drives list`.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The report's folder.")],
    decoder: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="ar, ar-scaffold, dflash, ddtree or spectr; repeat it, or join several with "
            "commas. dflash:token names the rule as well.",
            show_default="ar, ar-scaffold and, with a drafter, dflash",
        ),
    ] = None,
    accept: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Rule for sampled drafts: coupled gives the draws of ar, token for token; block, "
            "token, k-seq, rrs, rrs-wor and traversal give the same distribution.",
            show_default="each decoder's own",
        ),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Width of a drafted block, the anchor included: BLOCK - 1 tokens are drafted.",
            show_default="the cost gate chooses",
        ),
    ] = None,
    nodes: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Budget of a ddtree, its root not counted.", show_default="the cost curve chooses"
        ),
    ] = None,
    paths: Annotated[int, typer.Option(help="Independent paths of spectr.")] = 4,
    rollouts: Annotated[int, typer.Option(help="Trajectories forked from one prefix.")] = 1,
    temperature: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Of the forked part; 0 is greedy.",
            show_default="0 with one rollout, 0.5 with several",
        ),
    ] = None,
    top_k: Annotated[int, typer.Option(help="0 is off.")] = 0,
    top_p: Annotated[float, typer.Option(help="1 is off.")] = 1.0,
    rule: Annotated[Rule, typer.Option(help="How rollouts become one trajectory.")] = Rule.guarded,
    frames: Annotated[
        str, typer.Option(help="N evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "60",
    seed: Annotated[
        int,
        typer.Option(
            help="Of all randomness. Rules other than coupled repeat their outputs only with "
            "--block and --nodes given."
        ),
    ] = 0,
    threads: Threads = None,
) -> None:
    """Replay a drive with several decoders and write one report."""
    from slipstream.commands.run import Request, run_replay

    run_replay(
        Request(
            bundle=bundle,
            drive=drive,
            out=out,
            decoders=tuple(decoder or ()),
            accept=accept,
            block=block,
            nodes=nodes,
            paths=paths,
            rollouts=rollouts,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            rule=rule.value,
            frames=frames,
            seed=seed,
            threads=threads,
        )
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option("-o", "--out", help="The report's folder.")] = Path(
        "slipstream-demo"
    ),
    frames: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Evenly spread.", min=1, show_default="as many as a minute allows"),
    ] = None,
    threads: Threads = None,
) -> None:
    """Compare the decoders on a real drive with the shipped planner, in about a minute."""
    from slipstream.demo import run_demo

    run_demo(out, frames, threads)


@app.command()
def export(
    target: Annotated[Path, typer.Argument(help="The target's checkpoint folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The bundle's folder.")],
    draft: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The drafter's checkpoint folder.", show_default="no drafter"),
    ] = None,
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The bundle's name.", show_default="the target folder's"),
    ] = None,
    trunk: Annotated[int, typer.Option(help="Cache rows before the fork.")] = 512,
    branch: Annotated[int, typer.Option(help="Cache rows of each rollout.")] = 256,
    rollouts: Annotated[int, typer.Option(help="Most rollouts.")] = 16,
    max_position: Annotated[int, typer.Option(help="Most positions, prompt and output.")] = 1024,
    licence: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Of weights and data, recorded in the bundle; may be repeated."),
    ] = None,
    parity: Annotated[bool, typer.Option(help="Check the graphs against torch.")] = True,
) -> None:
    """Turn checkpoints into a bundle of ONNX graphs."""
    from slipstream.commands.export import run_export

    limits = (trunk, branch, rollouts, max_position)
    run_export(target, draft, out, limits, name, licence or [], parity)


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of verify.json.")] = Path(
        "slipstream-verify"
    ),
    drive: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Where the prompts come from.", show_default="kitti-00 if fetched, else synthetic"
        ),
    ] = None,
    frames: Annotated[
        str, typer.Option(help="N evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "20",
    methods: Annotated[
        str, typer.Option(help="Drafting methods, joined with commas.")
    ] = "dflash,ddtree,spectr",
    temperature: Annotated[float, typer.Option(help="Of the sampled checks.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Outputs drawn for each acceptance rule.")] = 2048,
    seed: Annotated[int, typer.Option(help="Of all randomness.")] = 0,
    threads: Threads = None,
) -> None:
    """Prove on this machine that drafting changes nothing; exit code 1 if it does."""
    from slipstream.commands.verify import Request, run_verify

    request = Request(
        bundle=bundle,
        out=out,
        drive=drive,
        frames=frames,
        methods=methods,
        temperature=temperature,
        samples=samples,
        seed=seed,
        threads=threads,
    )
    raise typer.Exit(run_verify(request))


@app.command()
def version() -> None:
    """Versions of slipstream and of what it runs on."""
    from slipstream.commands.about import show_versions

    show_versions()


@drives.command("list")
def drives_list() -> None:
    """Drives known by name."""
    from slipstream.commands.drives import show_drives

    show_drives()


@drives.command("info")
def drives_info(path: Annotated[str, typer.Argument(help="A drive's name or path.")]) -> None:
    """What a drive holds, and what in it deserves a second look."""
    from slipstream.commands.drives import show_drive

    show_drive(path)


@drives.command("fetch")
def drives_fetch(name: Annotated[str, typer.Argument(help="A name from the list.")]) -> None:
    """Bring a drive that slipstream may not ship into the user's cache."""
    from slipstream.commands.drives import fetch_drive

    fetch_drive(name)


def main() -> None:
    """Entry point: a `SlipstreamError` is one message on stderr and exit code 2."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        app()
    except SlipstreamError as error:
        _leave(error)
    except OSError as error:
        # what no part foresaw, such as a name that is too long or a terminal that went away
        _leave(
            SlipstreamError(
                f"{str(error.filename or 'a file')[:120]} can't be used",
                expected="a path that this user may use, and free space",
                found=error.strerror or str(error),
                fix="check the paths of the command",
            )
        )
    except MemoryError as error:
        _leave(
            SlipstreamError(
                "the memory does not suffice",
                expected="a bundle and a drive that fit this machine",
                found=str(error),
                fix="lower limits when exporting: see `slipstream export --help`",
            )
        )


def _leave(error: SlipstreamError) -> NoReturn:
    sys.stderr.write(f"slipstream: {error}\n")
    sys.exit(error.exit_code)


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, so that nothing half-written stays."""
    raise SystemExit(128 + number)
