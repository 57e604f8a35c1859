"""What the trainings of the small planners share: configs for a trial, windows, driving figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import typer
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3ForCausalLM

from drives.baselines import baseline
from planners.training.data import Recorded
from planners.training.evaluation import ade, greedy_paths
from planners.training.examples import Examples
from runtime.errors import SlipstreamError
from slipstream.tiny_data import load_held_out
from slipstream.training.config import BlockDrafterConfig, Data, SelfDraftConfig, TargetConfig
from slipstream.training.windows import validation_windows

Figures = dict[str, float]
OutOption = Annotated[Path, typer.Option(help="Folder for checkpoints, logs, card and bundle.")]
DrivesOption = Annotated[
    Path | None, typer.Option(help="Folder of the recordings; SLIPSTREAM_DRIVES by default.")
]
EffortOption = Annotated[
    float, typer.Option(help="Part of the steps, for a trial; 1 is the whole.", min=0.0, max=1.0)
]
ThreadsOption = Annotated[int, typer.Option(help="Threads of torch.", min=1)]
MOVING = ("cv", "ca", "ctrv", "ctra")  # baselines that a card shows

_Config = TypeVar("_Config", TargetConfig, BlockDrafterConfig, SelfDraftConfig)
_Drafter = TypeVar("_Drafter", BlockDrafterConfig, SelfDraftConfig)


def do_stages(stages: Callable[[], Mapping[str, Callable[[], None]]], asked: str) -> None:
    """Do one stage of a training, or all in order; an error ends the program with its exit code.

    Args:
        stages: opens the training; what it does, by name.
        asked: a name, or "all".
    """
    try:
        for name, work in stages().items():
            if asked in (name, "all"):
                typer.echo(f"{name}:")
                work()
    except SlipstreamError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error


def figure_rows(figures: Mapping[str, Figures], widths: Sequence[int]) -> str:
    """Rows of a card's table: each drive's windows, errors, share of parsed outputs and acceptance
    lengths with blocks of these widths."""
    return "\n".join(
        f"| {name} | {f['windows']:.0f} | {f['greedy']:.2f} | "
        + " | ".join(f"{f[b]:.2f}" for b in MOVING)
        + f" | {f['parsed']:.1%} | "
        + " | ".join(f"{f[f'acceptance {width}']:.2f}" for width in widths)
        + " |"
        for name, f in figures.items()
    )


def moved(config: _Config, out: Path, drives: Path, effort: float) -> _Config:
    """The config with other folders, and a part of its steps."""
    schedule = config.training.schedule
    schedule = replace(schedule, steps=max(1, round(schedule.steps * effort)))
    changes = {
        "out": out,
        "data": config.data.model_copy(update={"folder": drives}),
        "training": replace(config.training, schedule=schedule),
    }
    return config.model_copy(update=changes)


def taught_by(config: _Drafter, target: Path, effort: float) -> _Drafter:
    """The drafter's config with another target, and a part of its outputs."""
    count = max(1, round(config.responses.count * effort))
    said = replace(config.responses, count=count)
    return config.model_copy(update={"target": target, "responses": said})


def card_windows(data: Data, drives: Path, every: int, held_out: int) -> dict[str, Recorded]:
    """The windows of a model card, by the drive's name there: of validation, and of the held-out
    drive where it is at hand, one in so many of each."""
    sets = {"Boreas, last 12 %": validation_windows(data, 1 << 30)[::every]}
    other = load_held_out(drives)
    return sets if other is None else {**sets, "KITTI 00, held out": other[::held_out]}


def driving_figures(
    target: Qwen3ForCausalLM, windows: Recorded, examples: Examples
) -> tuple[Figures, NDArray[np.float64], Tensor]:
    """Greedy ADE@5s beside the baselines', with the paths [M, 20, 2] m and outputs [M, L]."""
    paths, outputs = greedy_paths(target, windows, examples)
    parsed = np.asarray(np.isfinite(paths).all((1, 2)))
    observations = [windows.observation(row) for row in range(len(windows))]
    figures: Figures = {"windows": len(windows), "parsed": float(parsed.mean())}
    figures["greedy"] = ade(paths[parsed], windows[parsed])
    for name in MOVING:
        figures[name] = ade(baseline(name, observations), windows)
    return figures, paths, outputs
