"""Commands about machines: doctor, estimate, version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app
from slipstream.cli.options import Batch


@app.command()
def doctor(
    bundle: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="The bundle to open and run.", show_default="the shipped one"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="Print faults alone; for health checks.")
    ] = False,
) -> None:
    """What this machine can run, and what is missing; exit code 1 if no bundle can run here."""
    from slipstream.commands.doctor import run_doctor

    raise typer.Exit(run_doctor(bundle, as_json=as_json, quiet=quiet))


@app.command()
def estimate(
    bundle: Annotated[str, typer.Argument(help="A bundle's folder, or a model such as qwen3-4b.")],
    device: Annotated[
        str, typer.Option(help="orin-nano-8gb, orin-nano-8gb-super, orin-nx, agx-orin or thor.")
    ],
    precision: Annotated[
        str, typer.Option(help="fp32, fp16, bf16, int8, fp8, int4 or nvfp4.")
    ] = "fp16",
    rollouts: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Trajectories.", show_default="1, 2, 4, ... up to the bundle's limit"),
    ] = None,
    batch: Batch = None,
    deadline_ms: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Find the most rollouts that fit it.", show_default="none"),
    ] = None,
    acceptance_length: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Tokens committed per round.", show_default="plain decoding"),
    ] = None,
    report: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(
            help="A report.json: its fastest drafting decoders' acceptance lengths; repeat it for "
            "other numbers of rollouts."
        ),
    ] = None,
    block: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Width of a drafted block.", show_default="the drafter's"),
    ] = None,
    prompt: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens of the prompt.", show_default="the bundle's"),
    ] = None,
    prefix: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Output tokens before the fork.", show_default="the bundle's"),
    ] = None,
    tail: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Output tokens behind the fork.", show_default="the bundle's"),
    ] = None,
    engines: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="The engines' folder; a builder's word on memory goes before the formula's.",
            show_default="the user's cache",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
) -> None:
    """Estimate memory, latency and rollouts on a Jetson: a roofline, not a measurement."""
    from slipstream.commands.estimate import Request, run_estimate

    run_estimate(
        Request(
            bundle=bundle,
            device=device,
            precision=precision,
            rollouts=rollouts,
            batch=batch,
            deadline_ms=deadline_ms,
            acceptance_length=acceptance_length,
            reports=tuple(report or ()),
            block=block,
            prompt=prompt,
            prefix=prefix,
            tail=tail,
            engines=engines,
            as_json=as_json,
        )
    )


@app.command()
def version() -> None:
    """Versions of slipstream and of what it runs on."""
    from slipstream.commands.about import show_versions

    show_versions()
