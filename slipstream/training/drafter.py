"""Train a drafter from its config: the target speaks, the drafter learns what it said."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafter
from planners.nets.drafters import load_drafter, new_drafter, save_drafter
from planners.nets.eagle3 import Eagle3Config, frequent_tokens, new_eagle3, save_eagle3
from planners.nets.qwen3 import load_target, round_to_bf16
from planners.training import eagle
from planners.training.drafter import train_drafter
from planners.training.examples import Examples
from planners.training.features import Features, Online, Stored
from planners.training.growth import warm_started_drafter
from slipstream.commands.session import progress_bar
from slipstream.training.config import (
    BlockDrafterConfig,
    DrafterConfig,
    EagleConfig,
    SelfDraftConfig,
)
from slipstream.training.device import prepared
from slipstream.training.folder import RunFolder
from slipstream.training.held_out import HeldOut
from slipstream.training.request import Request
from slipstream.training.said import draw_said, read_said
from slipstream.training.screen import Show
from slipstream.training.self_drafting import SelfHeldOut, learn_to_draft
from slipstream.training.sizes import block_sizes, eagle_sizes
from slipstream.training.target import TINY, load_examples
from slipstream.training.windows import training_windows, validation_windows

RESPONSES = "responses.safetensors"


def run_drafter(config: DrafterConfig, request: Request, console: Console) -> bool:
    """Train; the checkpoint is written when the last step is done. Returns whether it is.

    Raises:
        SlipstreamError: a drive, a checkpoint, the device or the output folder can't be used.
    """
    place = prepared(request.device, request.threads)
    target = load_target(config.target)
    examples = load_examples(config.target, target.config.vocab_size, config.special)
    learn = _learner(config, target, examples)
    training = training_windows(config.data)
    look = validation_windows(config.data, config.evaluation.windows)
    run = RunFolder(config.out, config)
    with run.opened(request.resume, request.command):
        target.to(place)
        path = run.path / RESPONSES
        if not path.is_file():
            bar = partial(progress_bar, console)
            draw_said(path, target, training, examples, config.responses, bar)
        said = read_said(path, target, examples)
        with console.status("the target speaks on held-out windows"):
            kind = SelfHeldOut if isinstance(config, SelfDraftConfig) else HeldOut
            held_out = kind(config.evaluation, target, look, examples)
        with Show("drafter", held_out.names, run.path, console) as show:
            go = {
                "folder": run.path,
                "every": config.evaluation.every,
                "save_every": config.save_every,
                "until": request.until,
                "watch": show,
            }
            save = learn(said, held_out, go)
        if not request.ends(config.training.schedule.steps):
            return False
        save(config.out)
        return True


Save = Callable[[Path], None]
Learn = Callable[[tuple[Tensor, Tensor], HeldOut, dict[str, Any]], Save]


def _learner(config: DrafterConfig, target: Qwen3ForCausalLM, examples: Examples) -> Learn:
    """The training of the drafter that the config asks for, its sizes checked already."""
    if isinstance(config, BlockDrafterConfig):
        sizes = block_sizes(config, target.config, examples.tokenizer.mask)
        drafter = new_drafter(config.training.seed, sizes)
        if config.warm_start is not None:
            folder = TINY / "drafter" if config.warm_start == "tiny" else config.warm_start
            warm_started_drafter(drafter, load_drafter(folder), config.training.seed)
        return partial(_block_drafter, config, drafter, target, examples)
    if isinstance(config, SelfDraftConfig):
        return partial(learn_to_draft, config, target, examples)
    return partial(_eagle, config, eagle_sizes(config, target.config), target, examples)


def _block_drafter(
    config: BlockDrafterConfig,
    drafter: BlockDrafter,
    target: Qwen3ForCausalLM,
    examples: Examples,
    said: tuple[Tensor, Tensor],
    held_out: HeldOut,
    go: dict[str, Any],
) -> Save:
    drafter.to(target.device)
    taps = drafter.config.target_layer_ids
    features: Features = Online(target, taps)
    if config.features == "stored":
        features = Stored(go["folder"] / "features", target, torch.cat(said, 1), taps)
    train_drafter(
        drafter,
        target,
        *said,
        examples.scaffold,
        config.training,
        features=features,
        evaluate=lambda: held_out.of(drafter),
        **go,
    )

    def save(folder: Path) -> None:
        round_to_bf16(drafter)
        save_drafter(drafter.cpu(), folder)

    return save


def _eagle(
    config: EagleConfig,
    sizes: Eagle3Config,
    target: Qwen3ForCausalLM,
    examples: Examples,
    said: tuple[Tensor, Tensor],
    held_out: HeldOut,
    go: dict[str, Any],
) -> Save:
    kept = frequent_tokens(said[1], sizes.vocab_size, sizes.draft_vocab_size)
    drafter = new_eagle3(config.training.seed, sizes, target, kept)

    def evaluate() -> dict[str, float]:
        if 0.0 not in config.evaluation.temperatures:
            return {}
        words = held_out.prompts, held_out.outputs(0.0), examples.scaffold
        return {"tau": eagle.acceptance_length(drafter, target, *words)}

    eagle.train_eagle(
        drafter, target, *said, examples.scaffold, config.training, evaluate=evaluate, **go
    )

    def save(folder: Path) -> None:
        round_to_bf16(drafter)
        save_eagle3(drafter, folder)

    return save
