"""Commands that train: train target, train drafter, compare."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from slipstream.cli.app import app

train = typer.Typer(help="Train a target or a drafter from a config.", no_args_is_help=True)
app.add_typer(train, name="train")


class Device(str, Enum):
    cpu = "cpu"
    cuda = "cuda"


Config = Annotated[Path, typer.Argument(help="YAML or TOML; see docs/training.md.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in the output folder.")]
Until = Annotated[
    Optional[int],  # noqa: UP045
    typer.Option(help="Stop before this step; --resume goes on.", show_default="the last"),
]
Where = Annotated[Device, typer.Option("--device", help="Where to train.")]
TorchThreads = Annotated[
    int, typer.Option("--threads", help="Of torch; results repeat with the same number.", min=1)
]


@train.command("target")
def train_target(
    config: Config,
    resume: Resume = False,
    until: Until = None,
    device: Where = Device.cpu,
    threads: TorchThreads = 2,
) -> None:
    """Train a target on recorded drives."""
    from slipstream.commands.train import run_train

    run_train("target", config, resume, until, device.value, threads)


@train.command("drafter")
def train_drafter(
    config: Config,
    resume: Resume = False,
    until: Until = None,
    device: Where = Device.cpu,
    threads: TorchThreads = 2,
) -> None:
    """Train a drafter on what its target says."""
    from slipstream.commands.train import run_train

    run_train("drafter", config, resume, until, device.value, threads)


@app.command()
def compare(
    config: Annotated[Path, typer.Argument(help="YAML or TOML; see docs/training.md.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of checkpoints and results.")],
    jobs: Annotated[int, typer.Option(help="Trainings beside each other.", min=1)] = 1,
    threads: Annotated[int, typer.Option(help="Of torch, for each training.", min=1)] = 1,
    against: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A compare.json that this run should repeat."),
    ] = None,
    only: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="An entry of the config; again for more.", show_default="all"),
    ] = None,
) -> None:
    """Train drafters under one budget, measure each in the loop, prove each; one table, one page.

    What an earlier run in the same folder has finished is kept.
    """
    from slipstream.commands.compare import Request, run_compare

    raise typer.Exit(run_compare(Request(config, out, jobs, threads, against, tuple(only or ()))))
