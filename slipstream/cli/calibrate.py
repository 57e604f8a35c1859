"""Commands about precision: bench, calibrate."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app
from slipstream.cli.options import Threads


class Keep(str, Enum):
    ends = "ends"
    none = "none"


@app.command()
def bench(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder, in fp32.")],
    precisions: Annotated[
        str, typer.Option(help="Of int8 and int4; fp32 is always measured.")
    ] = "fp32,int8,int4",
    drive: Annotated[str, typer.Option(help="Where the frames come from.")] = "synthetic",
    frames: Annotated[
        str, typer.Option(help="At most N, evenly spread, or a range of windows: 0:200 or 0:200:4.")
    ] = "20",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of bench.json.")] = Path(
        "slipstream-bench"
    ),
    threads: Threads = None,
    rollouts: Annotated[int, typer.Option(help="Trajectories forked from one prefix.")] = 1,
    keep: Annotated[
        Keep, typer.Option(help="What stays in fp32: head, first and last blocks, or nothing.")
    ] = Keep.ends,
    smooth: Annotated[
        Optional[float],  # noqa: UP045 - typer reads the annotation on Python 3.10
        typer.Option(help="SmoothQuant's alpha, 0 to 1.", show_default="not smoothed"),
    ] = None,
) -> None:
    """Time a bundle in INT8 and INT4 on this CPU, by graph, by way and by frame, against fp32."""
    from slipstream.commands.bench import Request, run_bench

    run_bench(
        Request(
            bundle=bundle,
            precisions=precisions,
            drive=drive,
            frames=frames,
            out=out,
            threads=threads,
            rollouts=rollouts,
            keep=keep.value,
            smooth=smooth,
        )
    )


class For(str, Enum):
    cpu = "cpu"
    tensorrt = "tensorrt"


@app.command()
def calibrate(
    bundle: Annotated[Path, typer.Argument(help="A bundle's folder, in fp32.")],
    drive: Annotated[
        list[str], typer.Option(help="A drive to calibrate on; repeat it for several drives.")
    ],
    precision: Annotated[str, typer.Option(help="int8, int4, fp8, nvfp4, fp16 or bf16.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The new bundle's folder.")],
    graphs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Of target, draft, head, vision, fuse, draft_head; joined with commas.",
            show_default="all that have products with a weight",
        ),
    ] = None,
    how: Annotated[
        str,
        typer.Option(help="dynamic, static or weights; auto takes what is fastest, by graph."),
    ] = "auto",
    device: Annotated[
        Optional[For],  # noqa: UP045
        typer.Option("--for", help="What will run it.", show_default="cpu for int8 and int4"),
    ] = None,
    keep: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help="A group that stays as it is, GROUP or GRAPH:GROUP, besides the head and each "
            "network's first and last block; none: not those either. May be repeated.",
            show_default="the ends; nothing in fp16 and bf16",
        ),
    ] = None,
    smooth: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="SmoothQuant's alpha, 0 to 1.", show_default="not smoothed"),
    ] = None,
    windows: Annotated[
        int, typer.Option(help="To calibrate on, evenly of all kinds of driving.")
    ] = 16,
    frames: Annotated[int, typer.Option(help="Held-out ones to judge on, evenly spread.")] = 48,
    held_out: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--held-out",
            help="The last share of each drive, or another drive; may be repeated.",
            show_default="0.5",
        ),
    ] = None,
    max_ade_increase: Annotated[
        float, typer.Option(help="Of ADE@5s, relative; a certain increase fails too.")
    ] = 0.02,
    max_tau_drop: Annotated[float, typer.Option(help="Of the acceptance length, relative.")] = 0.03,
    max_parse_failures: Annotated[
        int, typer.Option(help="Outputs without a plan, more than before.")
    ] = 0,
    max_error: Annotated[
        float, typer.Option(help="Of a graph's main output on recorded passes, over its norm.")
    ] = 0.1,
    threads: Threads = None,
    report: Annotated[
        bool, typer.Option("--report", help="Show what quantizing each group costs.")
    ] = False,
    retry: Annotated[
        bool,
        typer.Option(help="Where a gate fails, keep the group to blame and judge once more."),
    ] = True,
    force: Annotated[
        bool, typer.Option("--force", help="Write it although a gate failed; its manifest says so.")
    ] = False,
) -> None:
    """Quantize a bundle on recorded drives; exit code 1, and nothing written, if a gate fails."""
    from slipstream.commands.calibrate import Request as Asked
    from slipstream.commands.calibrate import run_calibrate

    request = Asked(
        bundle=bundle,
        drives=tuple(drive),
        precision=precision,
        out=out,
        graphs=graphs,
        how=how,
        device=device.value if device else None,
        keep=tuple(keep or ()),
        smooth=smooth,
        windows=windows,
        frames=frames,
        held_out=tuple(held_out or ()),
        max_ade_increase=max_ade_increase,
        max_tau_drop=max_tau_drop,
        max_parse_failures=max_parse_failures,
        max_error=max_error,
        threads=threads,
        report=report,
        retry=retry,
        force=force,
    )
    raise typer.Exit(run_calibrate(request))
