"""Train the tiny planner from recorded drives to a bundle: `make train-tiny`.

    python -m slipstream.tiny --out out/tiny

Stages: `target` trains the target and `drafter` the drafter, both as `slipstream train` does with
the files in configs/tiny; `measure` takes the figures of the model card, `export` writes the
bundle. An interrupted training goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from export.bundle import export_bundle
from planners.nets.drafters import load_drafter
from planners.nets.qwen3 import load_target
from runtime.bundle import Limits
from slipstream.commands.screen import Screen
from slipstream.tiny_card import measure, write_card
from slipstream.tiny_common import (
    DrivesOption,
    EffortOption,
    OutOption,
    ThreadsOption,
    card_windows,
    do_stages,
    moved,
    taught_by,
)
from slipstream.tiny_data import LICENCES, SOURCES, drives_folder
from slipstream.training.config import BlockDrafterConfig
from slipstream.training.device import prepared
from slipstream.training.drafter import run_drafter
from slipstream.training.reading import read_drafter_config, read_target_config
from slipstream.training.request import Request
from slipstream.training.target import load_examples, run_target

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "tiny"
LIMITS = Limits(trunk=512, branch=256, rollouts=16, max_position=1024)
_EVERY = 4  # of the validation windows, for the model card


class Stage(str, Enum):
    """What to do; `all` does everything in order."""

    target = "target"
    drafter = "drafter"
    measure = "measure"
    export = "export"
    all = "all"


class Workshop:
    """The output folder of one training, and the stages that fill it.

    Args:
        effort: part of the steps and outputs to train with; 1 is the shipped planner.
    """

    def __init__(self, out: Path, drives: Path, effort: float = 1.0, threads: int = 2) -> None:
        self.out, self.drives, self.bundle = out, drives, out / "bundle"
        self.console, self.threads = Screen(), threads
        self.request = Request(f"make train-tiny OUT={out.parent}", True, None, "cpu", threads)
        target = read_target_config(CONFIGS / "target.yaml")
        self.target = moved(target, out / "target", drives, effort)
        drafter = read_drafter_config(CONFIGS / "drafter.yaml")
        assert isinstance(drafter, BlockDrafterConfig)
        drafter = taught_by(drafter, self.target.out, effort)
        self.drafter = moved(drafter, out / "drafter", drives, effort)

    @property
    def stages(self) -> dict[str, Callable[[], None]]:
        """What there is to do, in order."""
        return {
            "target": self.train_target,
            "drafter": self.train_drafter,
            "measure": self.measure,
            "export": self.export,
        }

    def train_target(self) -> None:
        run_target(self.target, self.request, self.console)

    def train_drafter(self) -> None:
        run_drafter(self.drafter, self.request, self.console)

    def measure(self) -> None:
        """Figures on the validation part and the held-out drive, and the model card."""
        prepared("cpu", self.threads)
        target, drafter = load_target(self.target.out), load_drafter(self.drafter.out)
        examples = load_examples(self.target.out, target.config.vocab_size, self.target.special)
        sets = card_windows(self.target.data, self.drives, _EVERY, 1)
        widths = self.drafter.evaluation.widths
        figures = {
            name: measure(target, drafter, windows, examples, widths)
            for name, windows in sets.items()
        }
        (self.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        write_card(
            self.out / "README.md",
            figures,
            {**_last_line(self.target.out), **_last_line(self.drafter.out)},
            self.target.training,
            self.drafter,
        )

    def export(self) -> None:
        """The bundle, with its graphs checked against torch."""
        export_bundle(
            self.target.out,
            self.drafter.out,
            self.bundle,
            limits=LIMITS,
            name="tiny",
            data=SOURCES,
            licences=LICENCES,
        )


def _last_line(checkpoint: Path) -> dict[str, float]:
    """The figures that a training logged last."""
    log = (checkpoint / "training" / "log.jsonl").read_text("utf-8")
    last: dict[str, float] = json.loads(log.splitlines()[-1])
    return last


def run(
    out: OutOption,
    stage: Annotated[Stage, typer.Option(help="One stage, or all in order.")] = Stage.all,
    drives: DrivesOption = None,
    effort: EffortOption = 1.0,
    threads: ThreadsOption = 2,
) -> None:
    """Train the tiny planner. Interrupted trainings are continued where they stopped."""
    do_stages(lambda: Workshop(out, drives_folder(drives), effort, threads).stages, stage.value)


if __name__ == "__main__":
    typer.run(run)
