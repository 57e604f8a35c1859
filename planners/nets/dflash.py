"""The DFlash drafter (arXiv 2602.06036): a block of tokens in one bidirectional pass.

Each layer attends to context rows made from the target's taps and to the block itself; the context
enters as keys and values only. Tensor names and `config.json` follow the published checkpoints.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from planners.nets.files import load_weights
from planners.nets.layers import RMSNorm, attend, rotary_table, rotate, split_heads
from runtime.errors import SlipstreamError
from runtime.files import write_atomic


@dataclass(frozen=True)
class DFlashConfig:
    """A drafter's sizes.

    Attributes:
        hidden_size: d, the target's width.
        block_size: B, anchor included; the widest block it was trained for.
        target_layer_ids: 0-based target blocks whose output is tapped.
        scaffold_in_block: fixed tokens stand in the block as themselves, not as masks.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 1024
    scaffold_in_block: bool = False

    def to_json(self) -> dict[str, Any]:
        """`config.json` as the published drafters have it."""
        return {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": self.block_size,
            "dflash_config": {
                "mask_token_id": self.mask_token_id,
                "target_layer_ids": list(self.target_layer_ids),
            },
            "scaffold_in_block": self.scaffold_in_block,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "dtype": "bfloat16",
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> DFlashConfig:
        """Read `config.json`; raises KeyError for a missing key."""
        own = raw["dflash_config"]
        rope = raw.get("rope_parameters") or raw
        plain = {f.name for f in fields(cls)} - {"mask_token_id", "target_layer_ids", "rope_theta"}
        return cls(
            **{name: raw[name] for name in plain if name != "scaffold_in_block"},
            mask_token_id=own["mask_token_id"],
            target_layer_ids=tuple(own["target_layer_ids"]),
            rope_theta=float(rope["rope_theta"]),
            scaffold_in_block=bool(raw.get("scaffold_in_block", False)),
        )


class Attention(nn.Module):
    """Block rows attend to context rows and to each other; one pair of Wk, Wv serves both."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        d, size = config.hidden_size, config.head_dim
        self.head_dim = size
        self.q_proj = nn.Linear(d, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(d, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(d, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, d, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps)
        self.k_norm = RMSNorm(size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, context: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        """x [N, B, d], context [N, C, d], cos and sin [N, 1, C+B, D] -> [N, B, d]"""
        rows = torch.cat([context, x], 1)
        first = context.shape[1]
        q = self.q_norm(split_heads(self.q_proj(x), self.head_dim))
        k = self.k_norm(split_heads(self.k_proj(rows), self.head_dim))
        v = split_heads(self.v_proj(rows), self.head_dim)
        q = rotate(q, cos[:, :, first:], sin[:, :, first:])
        out: Tensor = self.o_proj(attend(q, rotate(k, cos, sin), v, mask))
        return out


class MLP(nn.Module):
    """SwiGLU (arXiv 2002.05202, eq. 6)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One decoder layer over the block rows."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)

    def forward(
        self, x: Tensor, context: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, cos, sin, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class DFlash(nn.Module):
    """The drafter without embedding and head: those are the target's."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__()
        self.config = config
        d = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * d, d, bias=False)
        self.hidden_norm = RMSNorm(d, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(d, config.rms_norm_eps)

    def forward(
        self,
        block: Tensor,
        block_positions: Tensor,
        taps: Tensor,
        tap_positions: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Hidden states of block rows; row k speaks of the token at its own position.

        Args:
            block: [N, B, d] embeddings: the anchor first, then scaffold tokens and masks. In
                training B holds several blocks one after another, kept apart by `mask`.
            block_positions: [N, B]
            taps: [N, C, K*d] of the committed rows, all before the anchor.
            tap_positions: [N, C]
            mask: [N, B, C+B] bool, true where a block row may look; None lets it see everything.

        Returns:
            [N, B, d] after the final norm, ready for the target's head.
        """
        context = self.hidden_norm(self.fc(taps))
        positions = torch.cat([tap_positions, block_positions], 1)
        cos, sin = rotary_table(positions, self.config.head_dim, self.config.rope_theta)
        if mask is not None:
            mask = mask[:, None]
        x = block
        for layer in self.layers:
            x = layer(x, context, cos, sin, mask)
        out: Tensor = self.norm(x)
        return out


def new_drafter(seed: int, config: DFlashConfig) -> DFlash:
    """A freshly initialised drafter (normal, 0.02; residual outputs scaled down by depth)."""
    torch.manual_seed(seed)
    drafter = DFlash(config)
    shrink = (2 * config.num_hidden_layers) ** -0.5
    for name, parameter in drafter.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, 0.0, 0.02 * (shrink if last else 1.0))
    return drafter


def load_drafter(folder: Path) -> DFlash:
    """Load `config.json` and the safetensors file, or its shards, weights as fp32.

    Raises:
        SlipstreamError: a file is missing or unreadable, or does not hold a DFlash drafter.
    """
    try:
        config = DFlashConfig.from_json(json.loads((folder / "config.json").read_text("utf-8")))
        weights = load_weights(folder)
        drafter = DFlash(config)
        drafter.load_state_dict({name: value.float() for name, value in weights.items()})
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be loaded as a drafter",
            expected="config.json with dflash_config, and model.safetensors (or its shards and "
            "model.safetensors.index.json) with its tensors",
            found=f"{type(error).__name__}: {error}",
            fix="train one with `make train-tiny`, or name the folder of a DFlash checkpoint",
        ) from error
    return drafter.eval()


def save_drafter(drafter: DFlash, folder: Path) -> None:
    """Write `config.json` and `model.safetensors` in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().to(torch.bfloat16).contiguous()
        for name, value in drafter.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_atomic(folder / "config.json", json.dumps(drafter.config.to_json(), indent=2) + "\n")
