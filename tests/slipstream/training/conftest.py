"""A target small enough to train with in a test, and configs for it on computed drives."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

import torch
import yaml

from planners.nets.qwen3 import new_target, save_target
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
}
DATA = {
    "training": [{"drive": "synthetic", "end": 0.7}],
    "validation": [{"drive": "synthetic", "begin": 0.7}],
    "step_s": 1.0,
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target's folder, untrained, with its words."""
    folder: Path = tmp_path_factory.mktemp("target")
    save_target(new_target(0, tie_word_embeddings=True, **SIZES), folder)
    write_tiny(folder)
    return folder


def target_fields(out: Path, steps: int = 4) -> dict[str, Any]:
    return {
        "out": str(out),
        "tokenizer": "tiny",
        "sizes": dict(SIZES),
        "data": deepcopy(DATA),
        "training": {"schedule": {"steps": steps, "peak": 0.01}, "batch": 2},
        "teacher": {"schedule": {"steps": 2, "peak": 0.001}, "width": 8},
        "evaluation": {"every": 2, "windows": 2},
        "save_every": 1,
    }


def drafter_fields(target: Path, out: Path, steps: int = 6, **drafter: Any) -> dict[str, Any]:
    return {
        "target": str(target),
        "out": str(out),
        "data": deepcopy(DATA),
        "drafter": {"layers": 1, "taps": [1, 2], **drafter},
        "responses": {"count": 12, "seed": 3},
        "training": {"schedule": {"steps": steps, "peak": 0.01}, "batch": 2, "anchors": 2},
        "evaluation": {"every": 3, "windows": 2, "widths": [16]},
        "save_every": 1,
    }


def write(path: Path, fields: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(fields), "utf-8")
    return path
