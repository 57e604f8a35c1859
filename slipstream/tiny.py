"""Train the tiny planner from recorded drives to a bundle: `make train-tiny`.

    python -m slipstream.tiny --out out/tiny

Stages: `target` trains the target, `responses` lets it speak, `drafter` trains the drafter on that,
`measure` takes the figures of the model card, `export` writes the bundle. An interrupted training
goes on where it stopped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from safetensors.torch import load_file, save_file

from export.bundle import export_bundle
from planners.language import Language
from planners.nets.dflash import DFlashConfig, load_drafter, new_drafter, save_drafter
from planners.nets.qwen3 import load_target, round_to_bf16, save_target
from planners.presets import tiny_values
from planners.tokens import Tokenizer
from planners.training.drafter import DrafterSettings, acceptance_length, train_drafter
from planners.training.evaluation import ade, greedy_paths
from planners.training.examples import Examples
from planners.training.responses import ResponseSettings, draw_responses
from planners.training.schedule import Schedule
from planners.training.target import TargetSettings, seeded_target, train_target
from planners.training.teacher import TeacherSettings, train_teacher
from planners.training.tokenizer import VOCABULARY, write_tiny
from runtime.bundle import Limits
from runtime.errors import SlipstreamError
from slipstream.tiny_card import measure, write_card
from slipstream.tiny_data import LICENCES, SOURCES, drives_folder, load_held_out, load_split

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 320,
    "intermediate_size": 1280,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
TAPS = (1, 3, 4)
TEACHER = TeacherSettings(seed=1)
TARGET = TargetSettings(Schedule(steps=2000, peak=2e-3, average=0.995), seed=1, batch=12)
RESPONSES = ResponseSettings(count=4000, seed=2)
DRAFTER = DrafterSettings(Schedule(steps=2400, peak=1.5e-3, average=0.995), seed=3)
LIMITS = Limits(trunk=512, branch=256, rollouts=16, max_position=1024)


class Stage(str, Enum):
    """What to do; `all` does everything in order."""

    target = "target"
    responses = "responses"
    drafter = "drafter"
    measure = "measure"
    export = "export"
    all = "all"


class Workshop:
    """The output folder of one training, and the stages that fill it.

    Args:
        effort: part of the steps and outputs to train with; 1 is the shipped planner.
    """

    def __init__(self, out: Path, drives: Path, effort: float = 1.0) -> None:
        self.out, self.drives = out, drives
        self.how_target = replace(TARGET, schedule=_shortened(TARGET.schedule, effort))
        self.how_drafter = replace(DRAFTER, schedule=_shortened(DRAFTER.schedule, effort))
        self.how_responses = replace(RESPONSES, count=max(1, round(RESPONSES.count * effort)))
        self.target, self.drafter, self.bundle = out / "target", out / "drafter", out / "bundle"
        if not (self.target / "tokenizer.json").is_file():
            write_tiny(self.target)
        tokenizer = Tokenizer.load(self.target / "tokenizer.json", vocab=VOCABULARY)
        language = Language.load(self.target / "language.json")
        self.examples = Examples(tokenizer, language, tiny_values)

    def train_target(self) -> None:
        """Train, round to bf16 and save."""
        split = load_split(self.drives)
        look = split.validation[:: max(1, len(split.validation) // 96)]
        target = seeded_target(
            TARGET.seed, self.examples.tokenizer, self.examples.language, **SIZES
        )

        def evaluate() -> dict[str, float]:
            return {"ade": ade(greedy_paths(target, look, self.examples)[0], look)}

        train_target(
            target,
            split.training,
            self.examples,
            train_teacher(split.training, TARGET.augmentation, TEACHER),
            self.how_target,
            self.out / "runs" / "target",
            evaluate=evaluate,
            every=250,
        )
        round_to_bf16(target)
        save_target(target, self.target)

    def respond(self) -> None:
        """Let the rounded target speak."""
        target = load_target(self.target)
        prompts, outputs = draw_responses(
            target, load_split(self.drives).training, self.examples, self.how_responses
        )
        save_file(
            {"prompts": prompts.int().contiguous(), "outputs": outputs.int().contiguous()},
            self.out / "responses.safetensors",
        )

    def train_drafter(self) -> None:
        """Train on the responses, round to bf16 and save."""
        path = self.out / "responses.safetensors"
        if not path.is_file():
            raise SlipstreamError(
                f"{path} is missing",
                expected="the target's outputs",
                found="none",
                fix="run the stage before: --stage responses",
            )
        said = load_file(path)
        prompts, outputs = said["prompts"].long(), said["outputs"].long()
        target = load_target(self.target)
        look = load_split(self.drives).validation[::40]
        look_prompts = self.examples.prompts(look)
        look_outputs = greedy_paths(target, look, self.examples)[1]
        drafter = new_drafter(DRAFTER.seed, drafter_config(self.examples.tokenizer.mask))

        def evaluate() -> dict[str, float]:
            return {
                f"tau{width}": acceptance_length(
                    drafter, target, look_prompts, look_outputs, self.examples.scaffold, width
                )
                for width in (8, 16)
            }

        train_drafter(
            drafter,
            target,
            prompts,
            outputs,
            self.examples.scaffold,
            self.how_drafter,
            self.out / "runs" / "drafter",
            evaluate=evaluate,
            every=500,
        )
        round_to_bf16(drafter)
        save_drafter(drafter, self.drafter)

    def measure(self) -> None:
        """Figures on the validation part and the held-out drive, and the model card."""
        target, drafter = load_target(self.target), load_drafter(self.drafter)
        sets = {"Boreas, last 12 %": load_split(self.drives).validation[::4]}
        held_out = load_held_out(self.drives)
        if held_out is not None:
            sets["KITTI 00, held out"] = held_out
        figures = {
            name: measure(target, drafter, windows, self.examples) for name, windows in sets.items()
        }
        (self.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
        write_card(
            self.out / "README.md",
            figures,
            {**_last_line(self.out, "target"), **_last_line(self.out, "drafter")},
            self.how_target,
            self.how_responses,
            self.how_drafter,
        )

    def export(self) -> None:
        """The bundle, with its graphs checked against torch."""
        export_bundle(
            self.target,
            self.drafter,
            self.bundle,
            limits=LIMITS,
            name="tiny",
            data=SOURCES,
            licences=LICENCES,
        )


def _shortened(schedule: Schedule, effort: float) -> Schedule:
    return replace(schedule, steps=max(1, round(schedule.steps * effort)))


def _last_line(out: Path, run: str) -> dict[str, float]:
    """The figures that a training logged last."""
    log = (out / "runs" / run / "log.jsonl").read_text("utf-8")
    last: dict[str, float] = json.loads(log.splitlines()[-1])
    return last


def drafter_config(mask_token: int) -> DFlashConfig:
    """The tiny drafter: the target's width, three layers, blocks of 16."""
    return DFlashConfig(
        hidden_size=320,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=640,
        vocab_size=VOCABULARY,
        block_size=16,
        mask_token_id=mask_token,
        target_layer_ids=TAPS,
        scaffold_in_block=True,
    )


def run(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, logs, card and bundle.")],
    stage: Annotated[Stage, typer.Option(help="One stage, or all in order.")] = Stage.all,
    drives: Annotated[
        Path | None, typer.Option(help="Folder of the recordings; SLIPSTREAM_DRIVES by default.")
    ] = None,
    effort: Annotated[
        float,
        typer.Option(help="Part of the steps, for a trial; 1 is the whole.", min=0.0, max=1.0),
    ] = 1.0,
    threads: Annotated[int, typer.Option(help="Threads of torch.", min=1)] = 2,
) -> None:
    """Train the tiny planner. Interrupted trainings are continued where they stopped."""
    torch.set_num_threads(threads)
    try:
        workshop = Workshop(out, drives_folder(drives), effort)
        stages = {
            Stage.target: workshop.train_target,
            Stage.responses: workshop.respond,
            Stage.drafter: workshop.train_drafter,
            Stage.measure: workshop.measure,
            Stage.export: workshop.export,
        }
        for name, work in stages.items():
            if stage in (name, Stage.all):
                typer.echo(f"{name.value}:")
                work()
    except SlipstreamError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(error.exit_code) from error


if __name__ == "__main__":
    typer.run(run)
