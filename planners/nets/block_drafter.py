"""What block drafters share: a stack of layers over a block that reads the target's taps.

A block of tokens is drafted in one bidirectional pass (DFlash, arXiv 2602.06036). Each layer
attends to context rows made from the target's taps and to the block itself; the context enters as
keys and values only. How taps become context is what drafters differ in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from planners.nets.layers import Mask, RMSNorm, attend, rotary_table, rotate, split_heads
from planners.nets.markov import MarkovHead

Config = TypeVar("Config", bound="BlockDrafterConfig")


@dataclass(frozen=True)
class BlockDrafterConfig:
    """A drafter's sizes.

    Attributes:
        hidden_size: d, the target's width.
        block_size: B, anchor included; the widest block it was trained for.
        target_layer_ids: 0-based target blocks whose output is tapped.
        scaffold_in_block: fixed tokens stand in the block as themselves, not as masks.
        markov_rank: of the head that lets a token depend on the one before; 0 for none.
    """

    architecture: ClassVar[str]

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
    markov_rank: int = 0

    def to_json(self) -> dict[str, Any]:
        """`config.json` as the published drafters have it."""
        raw = {
            "architectures": [self.architecture],
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
        if self.markov_rank:
            raw |= {"markov_rank": self.markov_rank, "markov_head_type": "vanilla"}
        return raw

    @classmethod
    def from_json(cls: type[Config], raw: dict[str, Any]) -> Config:
        """Read `config.json`; raises KeyError for a missing key, ValueError for an unknown head."""
        own = raw["dflash_config"]
        rope = raw.get("rope_parameters") or raw
        if raw.get("markov_rank") and raw.get("markov_head_type", "vanilla") != "vanilla":
            raise ValueError(f"markov_head_type {raw['markov_head_type']} is not vanilla")
        known: dict[str, Any] = {
            "mask_token_id": own["mask_token_id"],
            "target_layer_ids": tuple(own["target_layer_ids"]),
            "rope_theta": float(rope["rope_theta"]),
            "scaffold_in_block": bool(raw.get("scaffold_in_block", False)),
            "markov_rank": int(raw.get("markov_rank", 0)),
        } | cls._own_options(own)
        names = {field.name for field in fields(cls)} - known.keys()
        return cls(**known, **{name: raw[name] for name in names})

    @classmethod
    def _own_options(cls, own: dict[str, Any]) -> dict[str, Any]:
        """What a kind of drafter has beyond these fields, from its `dflash_config`."""
        return {}


class Attention(nn.Module):
    """Block rows attend to context rows and to each other.

    Args:
        separate: the context has Wk and Wv of its own (DFlare); else one pair serves both.
    """

    def __init__(self, config: BlockDrafterConfig, separate: bool) -> None:
        super().__init__()
        d, size = config.hidden_size, config.head_dim
        rows = config.num_key_value_heads * size
        self.head_dim, self.separate = size, separate
        self.q_proj = nn.Linear(d, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(d, rows, bias=False)
        self.v_proj = nn.Linear(d, rows, bias=False)
        if separate:
            self.k_proj_target = nn.Linear(d, rows, bias=False)
            self.v_proj_target = nn.Linear(d, rows, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, d, bias=False)
        self.q_norm = RMSNorm(size, config.rms_norm_eps)
        self.k_norm = RMSNorm(size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, context: Tensor, cos: Tensor, sin: Tensor, mask: Mask | None
    ) -> Tensor:
        """x [N, B, d], context [N, C, d], cos and sin [N, 1, C+B, D] -> [N, B, d]"""
        first = context.shape[1]
        q = self.q_norm(split_heads(self.q_proj(x), self.head_dim))
        keys, values = self._keys_values(x, context)
        k = self.k_norm(split_heads(keys, self.head_dim))
        v = split_heads(values, self.head_dim)
        q = rotate(q, cos[:, :, first:], sin[:, :, first:])
        out: Tensor = self.o_proj(attend(q, rotate(k, cos, sin), v, mask))
        return out

    def _keys_values(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """[N, C+B, Hkv*D] each, context first."""
        if self.separate:
            keys = torch.cat([self.k_proj_target(context), self.k_proj(x)], 1)
            return keys, torch.cat([self.v_proj_target(context), self.v_proj(x)], 1)
        rows = torch.cat([context, x], 1)
        return self.k_proj(rows), self.v_proj(rows)


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

    def __init__(self, config: BlockDrafterConfig, separate: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config, separate)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)

    def forward(
        self, x: Tensor, context: Tensor, cos: Tensor, sin: Tensor, mask: Mask | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), context, cos, sin, mask)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class BlockDrafter(nn.Module, ABC):
    """A drafter without embedding and head: those are the target's.

    Args:
        separate: see `Attention`.
    """

    config: BlockDrafterConfig

    def __init__(self, config: BlockDrafterConfig, separate: bool) -> None:
        super().__init__()
        self.config = config
        d, depth = config.hidden_size, config.num_hidden_layers
        self.hidden_norm = RMSNorm(d, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config, separate) for _ in range(depth))
        self.norm = RMSNorm(d, config.rms_norm_eps)
        rank = config.markov_rank
        self.markov_head = MarkovHead(config.vocab_size, rank) if rank else None

    @property
    def markov(self) -> MarkovHead | None:
        """What the token before a slot adds to the slot's logits; None for independent slots."""
        return self.markov_head

    @abstractmethod
    def contexts(self, taps: Tensor) -> Sequence[Tensor]:
        """Taps [N, C, K*d] -> the context rows [N, C, d] of every layer."""

    def forward(
        self,
        block: Tensor,
        block_positions: Tensor,
        taps: Tensor,
        tap_positions: Tensor,
        mask: Mask | None = None,
    ) -> Tensor:
        """Hidden states of block rows; row k speaks of the token at its own position.

        Args:
            block: [N, B, d] embeddings: the anchor first, then scaffold tokens and masks. In
                training B holds several blocks one after another, kept apart by `mask`.
            block_positions: [N, B]
            taps: [N, C, K*d] of the committed rows, all before the anchor.
            tap_positions: [N, C]
            mask: [N, B, C+B] bool, true where a block row may look, or the same as a BlockMask;
                None lets it see everything.

        Returns:
            [N, B, d] after the final norm, ready for the target's head.
        """
        positions = torch.cat([tap_positions, block_positions], 1)
        cos, sin = rotary_table(positions, self.config.head_dim, self.config.rope_theta)
        if isinstance(mask, Tensor):
            mask = mask[:, None]
        x = block
        for layer, context in zip(self.layers, self.contexts(taps), strict=True):
            x = layer(x, context, cos, sin, mask)
        out: Tensor = self.norm(x)
        return out

    @torch.no_grad()
    def initialise(self) -> None:
        """Normal, 0.02; residual outputs scaled down by depth; the Markov head adds nothing yet."""
        shrink = (2 * self.config.num_hidden_layers) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 * (shrink if last else 1.0))
        if self.markov_head is not None:
            nn.init.zeros_(self.markov_head.markov_w2.weight)
