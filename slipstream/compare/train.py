"""Train the drafters of a comparison: one target, one set of its outputs, one set of features."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafterConfig as Sizes
from planners.nets.drafters import new_drafter, save_drafter
from planners.nets.eagle3 import frequent_tokens, new_eagle3, save_eagle3
from planners.nets.qwen3 import load_target, round_to_bf16
from planners.training.drafter import train_drafter
from planners.training.eagle import train_eagle
from planners.training.examples import Examples
from planners.training.features import Stored
from planners.training.self_drafting import train_self_drafting
from planners.training.watch import Watch
from runtime.errors import SlipstreamError
from runtime.files import sha256, write_atomic
from slipstream.training.config import (
    BlockDrafterConfig,
    DrafterConfig,
    EagleConfig,
    SelfDraftConfig,
)
from slipstream.training.said import Bar, Said, draw_said, read_said
from slipstream.training.self_drafting import new_markov, save_self_drafting
from slipstream.training.sizes import block_sizes, eagle_sizes
from slipstream.training.target import load_examples
from slipstream.training.windows import training_windows

TRAINED = "trained.json"
_NEVER = 1 << 30  # steps between evaluations: the loop measures the finished drafter


@dataclass(frozen=True)
class Trained:
    """A drafter's checkpoint, and what it took."""

    folder: Path
    seconds: float
    parameters: int


class School:
    """What all drafters of a comparison learn from.

    Args:
        config: of any of them: they share target, data, responses and special tokens.
        folder: keeps the responses and the features between runs.
        bar: opens a progress bar with a label and a total.
    """

    def __init__(self, config: DrafterConfig, folder: Path, bar: Bar) -> None:
        self.config, self.folder, self.bar = config, folder, bar
        self._features: dict[tuple[int, ...], Stored] = {}

    @cached_property
    def target(self) -> Qwen3ForCausalLM:
        return load_target(self.config.target)

    @cached_property
    def target_key(self) -> str:
        """Tells this target and its words from others that may have lain in its folder."""
        return target_key(self.config.target)

    @cached_property
    def examples(self) -> Examples:
        return load_examples(self.config.target, self.target.config.vocab_size, self.config.special)

    @cached_property
    def responses(self) -> Said:
        """Prompts [M, Lp] and the target's outputs [M, L]; drawn once."""
        shared = self.config.model_dump(mode="json", include={"data", "responses"})
        key = {**shared, "target": self.target_key}
        path, record = self.folder / "responses.safetensors", self.folder / "responses.json"
        if _json(record) == key:
            with suppress(SlipstreamError):  # missing or damaged: the target speaks again
                return read_said(path, self.target, self.examples)
        windows = training_windows(self.config.data)
        settings = self.config.responses
        draw_said(path, self.target, windows, self.examples, settings, self.bar)
        write_atomic(record, json.dumps(key))
        return read_said(path, self.target, self.examples)

    def prepare(self, configs: Iterable[DrafterConfig]) -> None:
        """Draw the responses and store the features that trainings will ask for."""
        for config in configs:
            if isinstance(config, BlockDrafterConfig):
                self.features(self._sizes(config).target_layer_ids)

    def features(self, taps: tuple[int, ...]) -> Stored:
        """The target's taps and hidden states of all responses."""
        if taps not in self._features:
            name = "features-" + "-".join(map(str, taps))
            sequences = torch.cat(self.responses, 1)
            self._features[taps] = Stored(self.folder / name, self.target, sequences, taps)
        return self._features[taps]

    def train(
        self, config: DrafterConfig, share: float, folder: Path, watch: Watch | None = None
    ) -> Trained:
        """Train a drafter, or read what an earlier run with the same config left.

        Args:
            share: of the responses to learn from.
            folder: of the checkpoint; a run that was interrupted goes on there.
        """
        settings = config.model_dump(mode="json", exclude={"out", "target"})
        key = {**settings, "share": share, "target": self.target_key}
        if (found := _finished(folder, key)) is not None:
            return found
        prompts, outputs = self.responses
        count = max(1, round(share * len(prompts)))
        said = prompts[:count], outputs[:count]
        began = time.perf_counter()
        # by its key, so that a run goes on only as it was begun
        run = folder / f"training-{sha256_of_text(json.dumps(key, sort_keys=True))[:12]}"
        if isinstance(config, BlockDrafterConfig):
            parameters = self._block_drafter(config, said, folder, run, watch)
        elif isinstance(config, SelfDraftConfig):
            parameters = self._itself(config, said, folder, run, watch)
        else:
            parameters = self._eagle(config, said, folder, run, watch)
        result = {"seconds": time.perf_counter() - began, "parameters": parameters}
        write_atomic(folder / TRAINED, json.dumps({"config": key, **result}))
        shutil.rmtree(run / "state", ignore_errors=True)  # moments and averages are of no more use
        return Trained(folder, **result)  # type: ignore[arg-type]

    def _block_drafter(
        self,
        config: BlockDrafterConfig,
        said: Said,
        folder: Path,
        run: Path,
        watch: Watch | None,
    ) -> int:
        sizes = self._sizes(config)
        drafter = new_drafter(config.training.seed, sizes)
        features = self.features(sizes.target_layer_ids)
        train_drafter(
            drafter,
            self.target,
            *said,
            self.examples.scaffold,
            config.training,
            run,
            features=features,
            every=_NEVER,
            save_every=config.save_every,
            watch=watch,
        )
        round_to_bf16(drafter)
        save_drafter(drafter, folder)
        return sum(parameter.numel() for parameter in drafter.parameters())

    def _eagle(
        self,
        config: EagleConfig,
        said: Said,
        folder: Path,
        run: Path,
        watch: Watch | None,
    ) -> int:
        sizes = eagle_sizes(config, self.target.config)
        kept = frequent_tokens(said[1], sizes.vocab_size, sizes.draft_vocab_size)
        drafter = new_eagle3(config.training.seed, sizes, self.target, kept)
        train_eagle(
            drafter,
            self.target,
            *said,
            self.examples.scaffold,
            config.training,
            run,
            every=_NEVER,
            save_every=config.save_every,
            watch=watch,
        )
        round_to_bf16(drafter)
        save_eagle3(drafter, folder)
        return sum(parameter.numel() for parameter in drafter.parameters())

    def _itself(
        self,
        config: SelfDraftConfig,
        said: Said,
        folder: Path,
        run: Path,
        watch: Watch | None,
    ) -> int:
        """A target that drafts for itself has no parameters more but its Markov head's."""
        target = load_target(config.target)
        mask, block = self.examples.tokenizer.mask, config.drafter.block
        markov = new_markov(config, target)
        train_self_drafting(
            target,
            self.target,
            *said,
            self.examples.scaffold,
            block,
            mask,
            config.training,
            run,
            markov=markov,
            every=_NEVER,
            save_every=config.save_every,
            watch=watch,
        )
        save_self_drafting(target, config, mask, folder, markov)
        return sum(parameter.numel() for parameter in markov.parameters()) if markov else 0

    def _sizes(self, config: BlockDrafterConfig) -> Sizes:
        return block_sizes(config, self.target.config, self.examples.tokenizer.mask)


def target_key(folder: Path) -> str:
    """SHA-256 over a target checkpoint's files: its weights, sizes, tokenizer and language.

    Raises:
        SlipstreamError: no such folder.
    """
    if not folder.is_dir():
        raise SlipstreamError(
            f"{folder} is no target checkpoint",
            expected="a folder with config.json and weights",
            found="no such folder",
            fix="change base.target in the config",
        )
    files = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".json"))
    return sha256_of_text(" ".join(f"{file.name} {sha256(file)}" for file in files))


def sha256_of_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _finished(folder: Path, key: dict[str, Any]) -> Trained | None:
    found = _json(folder / TRAINED)
    if not isinstance(found, dict) or found.get("config") != key:
        return None
    seconds, parameters = found.get("seconds"), found.get("parameters")
    if not isinstance(seconds, float) or not isinstance(parameters, int):
        return None
    try:
        with safe_open(folder / "model.safetensors", "pt"):
            return Trained(folder, seconds, parameters)
    except (OSError, SafetensorError):
        return None


def _json(path: Path) -> object:
    """What a file holds; None where it is missing or damaged, and what it held is made again."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
