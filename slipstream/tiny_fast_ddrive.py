"""Train a small Fast-dDrive planner from recorded drives to a bundle: `make train-fast-ddrive`.

    python -m slipstream.tiny_fast_ddrive --out out/fast-ddrive

Stages: `target`, `sasd` and `self` train as `slipstream train` does with the files in
configs/fast-ddrive: the planner, then to draft, then what makes a draft depend on the token before;
`measure` takes the figures of the model card, `export` writes the bundle. An interrupted training
goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from export.bundle import export_bundle
from planners.nets.markov import GatedMarkovHead
from planners.nets.qwen3 import load_target
from runtime.bundle import Limits
from slipstream.commands.screen import Screen
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
from slipstream.tiny_fast_ddrive_card import measure, write_card
from slipstream.training.config import SelfDraftConfig
from slipstream.training.device import prepared
from slipstream.training.drafter import run_drafter
from slipstream.training.reading import read_drafter_config, read_target_config
from slipstream.training.request import Request
from slipstream.training.target import load_examples, run_target

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "fast-ddrive"
LIMITS = Limits(trunk=1536, branch=512, rollouts=16, max_position=2048)
OBJECTS = "Boreas (as above), objects v1: ego motion and labelled road users"
_EVERY = 16  # of the windows, for the model card


class Stage(str, Enum):
    """What to do; `all` does everything in order."""

    target = "target"
    sasd = "sasd"
    self = "self"
    measure = "measure"
    export = "export"
    all = "all"


class Workshop:
    """The output folder of one training, and the stages that fill it.

    Args:
        effort: part of the steps and outputs to train with; 1 is the whole.
    """

    def __init__(self, out: Path, drives: Path, effort: float = 1.0, threads: int = 2) -> None:
        self.out, self.drives, self.bundle = out, drives, out / "bundle"
        self.console, self.threads = Screen(), threads
        command = f"make train-fast-ddrive OUT={out.parent}"
        self.request = Request(command, True, None, "cpu", threads)
        target = read_target_config(CONFIGS / "target.yaml")
        self.target = moved(target, out / "target", drives, effort)
        sasd, markov = (_self_config(name) for name in ("sasd", "markov"))
        self.sasd = moved(taught_by(sasd, self.target.out, effort), out / "sasd", drives, effort)
        self.markov = moved(taught_by(markov, self.sasd.out, effort), out / "self", drives, effort)

    @property
    def stages(self) -> dict[str, Callable[[], None]]:
        """What there is to do, in order."""
        return {
            "target": self.train_target,
            "sasd": self.train_sasd,
            "self": self.train_markov,
            "measure": self.measure,
            "export": self.export,
        }

    def train_target(self) -> None:
        run_target(self.target, self.request, self.console)

    def train_sasd(self) -> None:
        run_drafter(self.sasd, self.request, self.console)

    def train_markov(self) -> None:
        run_drafter(self.markov, self.request, self.console)

    def measure(self) -> None:
        """Figures on the validation part and the held-out drive, and the model card."""
        prepared("cpu", self.threads)
        folder, config = self.markov.out, self.markov
        target, markov = load_target(folder), GatedMarkovHead.load(folder)
        examples = load_examples(folder, target.config.vocab_size, config.special)
        how = config.evaluation.widths, config.training.value_rows, markov
        figures = {
            name: measure(target, windows, examples, *how)
            for name, windows in card_windows(self.target.data, self.drives, _EVERY, _EVERY).items()
        }
        (self.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        write_card(self.out / "README.md", figures, self.target, self.sasd, self.markov)

    def export(self) -> None:
        """The bundle, with its graphs checked against torch."""
        export_bundle(
            self.markov.out,
            None,
            self.bundle,
            limits=LIMITS,
            name="fast-ddrive",
            data=(*SOURCES, OBJECTS),
            licences=LICENCES,
        )


def _self_config(name: str) -> SelfDraftConfig:
    config = read_drafter_config(CONFIGS / f"{name}.yaml")
    assert isinstance(config, SelfDraftConfig)
    return config


def run(
    out: OutOption,
    stage: Annotated[Stage, typer.Option(help="One stage, or all in order.")] = Stage.all,
    drives: DrivesOption = None,
    effort: EffortOption = 1.0,
    threads: ThreadsOption = 2,
) -> None:
    """Train the small Fast-dDrive planner. Interrupted trainings go on where they stopped."""
    do_stages(lambda: Workshop(out, drives_folder(drives), effort, threads).stages, stage.value)


if __name__ == "__main__":
    typer.run(run)
