"""A planner small enough to train in a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from transformers import Qwen3ForCausalLM

from planners.language import Language
from planners.presets import tiny_values
from planners.tokens import Tokenizer
from planners.training.data import Recorded
from planners.training.examples import Examples
from planners.training.target import seeded_target
from planners.training.tokenizer import write_tiny

SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    folder: Path = tmp_path_factory.mktemp("tiny")
    write_tiny(folder)
    tokenizer = Tokenizer.load(folder / "tokenizer.json", vocab=512)
    return Examples(tokenizer, Language.load(folder / "language.json"), tiny_values)


@pytest.fixture
def target(examples: Examples) -> Qwen3ForCausalLM:
    return seeded_target(0, examples.tokenizer, examples.language, **SIZES)


@pytest.fixture(scope="session")
def straight() -> Recorded:
    """Twelve windows of steady straight driving at 1 to 12 m/s."""
    speeds = np.arange(1.0, 13.0)
    past, ahead = np.arange(-15, 1) / 4, np.arange(1, 21) / 4
    still = np.zeros((12, 16))

    def along(times: np.ndarray) -> np.ndarray:
        x = speeds[:, None] * times
        return np.stack([x, np.zeros_like(x)], -1)

    return Recorded(
        positions=along(past),
        headings=still,
        speeds=np.repeat(speeds[:, None], 16, 1),
        accelerations=still,
        yaw_rates=still,
        futures=along(ahead),
        intents=np.zeros(12, np.int64),
        times=np.arange(12.0),
    )
