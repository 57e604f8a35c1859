"""Tiny random checkpoints in the Hugging Face layout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import Qwen3Config, Qwen3ForCausalLM

from export.source import Source
from planners.nets.block_drafter import BlockDrafterConfig
from planners.nets.dflash import DFlashConfig
from planners.nets.drafters import build_drafter, save_drafter
from planners.tokens import SpecialNames
from runtime.bundle import GraphName, Limits

LIMITS = Limits(trunk=64, branch=32, rollouts=4, max_position=128)
SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "initializer_range": 0.1,
}


def _shake(module: torch.nn.Module) -> None:
    """Move norm weights away from one, so that a lost or misplaced one shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))


def make_target(folder: Path, *, dtype: torch.dtype = torch.bfloat16, **sizes: Any) -> Path:
    """A random Qwen3 checkpoint with a byte-level tokenizer."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES | sizes))
    _shake(model)
    model.to(dtype).save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    names = SpecialNames()
    inner.add_special_tokens([names.null, names.mask, names.eos])
    inner.save(str(folder / "tokenizer.json"))
    return folder


def make_drafter(folder: Path, kind: type[BlockDrafterConfig] = DFlashConfig, **sizes: Any) -> Path:
    """A random block drafter's checkpoint that fits `make_target`'s."""
    torch.manual_seed(1)
    known: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 80,
        "vocab_size": 300,
        "block_size": 8,
        "mask_token_id": 257,
        "target_layer_ids": (1, 2, 4),
        "max_position_embeddings": 256,
    }
    drafter = build_drafter(kind(**known | sizes))
    for parameter in drafter.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, 0.0, 0.1)
    _shake(drafter)
    save_drafter(drafter, folder)
    return folder


def graph_models(source: Source, max_position: int = 128) -> dict[GraphName, onnx.ModelProto]:
    """All of an export's graphs, in memory."""
    return {name: build() for name, build in source.graphs(max_position)}


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="session")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_drafter(tmp_path_factory.mktemp("drafter"))


@pytest.fixture
def altered(target: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy of the target whose config.json has other values."""

    def alter(source: Path = target, **values: Any) -> Path:
        folder = tmp_path / "altered"
        shutil.copytree(source, folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
        return folder

    return alter


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints without a fault: qwen2, sharded, vl, target and its drafter."""
    from tests.camera_planner import waypoint_language  # which imports this module
    from tests.families import qwen2, qwen2_5_vl

    folder = tmp_path_factory.mktemp("whole")
    qwen2(folder / "qwen2")
    qwen2(folder / "sharded", shard="40KB")
    waypoint_language().save(qwen2_5_vl(folder / "vl") / "language.json")
    make_target(folder / "target")
    make_drafter(folder / "drafter")
    return folder


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(whole / name, tmp_path / name))
