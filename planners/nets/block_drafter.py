"""What block drafters share: a stack of layers over a block that reads the target's taps.

A block of tokens is drafted in one bidirectional pass (DFlash, arXiv 2602.06036). Each layer
attends to context rows made from the target's taps and to the block itself; the context enters as
keys and values only. How taps become context is what drafters differ in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from planners.drafter_layouts import MASK_EMBEDDING, flat_config, layer_kinds
from planners.nets.layers import Mask, RMSNorm, attend, rotary_table, rotate, split_heads
from planners.nets.markov import MarkovHead
from planners.nets.rope import plain

Config = TypeVar("Config", bound="BlockDrafterConfig")

# keys of `dflash_config`, and what they are without it
_SCALES: dict[str, float | None] = {
    "input_embedding_scale": 1.0,
    "output_multiplier": 1.0,
    "final_logit_softcapping": None,
}


@dataclass(frozen=True)
class BlockDrafterConfig:
    """A drafter's sizes.

    Attributes:
        hidden_size: d, the target's width.
        block_size: B, anchor included; the widest block it was trained for.
        target_layer_ids: 0-based target blocks whose output is tapped.
        scaffold_in_block: fixed tokens stand in the block as themselves, not as masks.
        markov_rank: of the head that lets a token depend on the one before; 0 for none.
        layer_types, sliding_window, is_causal: who sees whom, see `layer_kinds`.
        rope_scaling: see `planners.nets.rope.frequencies`.
        attention_bias: the four projections of attention have biases.
        input_embedding_scale: the block's embeddings are multiplied by it; output_multiplier: the
            logits are.
        final_logit_softcapping: c of c tanh(logit / c), for a head of its own; None for none.
        draft_vocab_size: Vd of a head of its own; None where it uses the target's.
        own_embedding: it has an embedding of its own; mask_embedding: what stands where it drafts
            is a vector of its own, not the embedding of mask_token_id.
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
    layer_types: tuple[str, ...] = ()
    sliding_window: int | None = None
    is_causal: bool | None = None
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    draft_vocab_size: int | None = None
    own_embedding: bool = False
    mask_embedding: bool = False

    @property
    def kinds(self) -> list[tuple[bool, int | None]]:
        """Of each layer: whether the block is read causally, and the window."""
        return layer_kinds(self.to_json(), self.num_hidden_layers)

    def to_json(self) -> dict[str, Any]:
        """`config.json` as the published drafters have it."""
        raw: dict[str, Any] = {
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
            "attention_bias": self.attention_bias,
            "tie_word_embeddings": True,
            "dtype": "bfloat16",
        }
        if self.markov_rank:
            raw |= {"markov_rank": self.markov_rank, "markov_head_type": "vanilla"}
        if self.layer_types:
            raw |= {"layer_types": list(self.layer_types), "sliding_window": self.sliding_window}
        given = {name: getattr(self, name) for name in ("is_causal", "draft_vocab_size")}
        if self.rope_scaling:
            given["rope_scaling"] = dict(self.rope_scaling)
        scales = {name: getattr(self, name) for name in _SCALES}
        own: dict[str, Any] = raw["dflash_config"]
        own |= {k: v for k, v in scales.items() if v != _SCALES[k]}
        return raw | {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_json(cls: type[Config], raw: dict[str, Any]) -> Config:
        """Read `config.json`; raises KeyError for a missing key, ValueError for an unknown head."""
        raw = flat_config(raw)
        scaling = raw.get("rope_parameters") or raw.get("rope_scaling")
        rope = raw.get("rope_parameters") or raw
        if raw.get("markov_rank") and raw.get("markov_head_type", "vanilla") != "vanilla":
            raise ValueError(f"markov_head_type {raw['markov_head_type']} is not vanilla")
        known: dict[str, Any] = {
            "mask_token_id": raw["mask_token_id"],
            "target_layer_ids": tuple(raw["target_layer_ids"]),
            "rope_theta": float(rope["rope_theta"]),
            "scaffold_in_block": bool(raw.get("scaffold_in_block", False)),
            "markov_rank": int(raw.get("markov_rank", 0)),
            "block_size": raw["block_size"],
            "layer_types": tuple(raw.get("layer_types") or ()),
            "sliding_window": raw.get("sliding_window"),
            "is_causal": raw.get("is_causal"),
            "rope_scaling": None if plain(scaling) else scaling,
            "attention_bias": bool(raw.get("attention_bias", False)),
            "draft_vocab_size": raw.get("draft_vocab_size"),
            "own_embedding": bool(raw.get("own_embedding", False)),
            "mask_embedding": bool(raw.get("mask_embedding", False)),
        } | cls._own_options(raw)
        known |= {name: raw.get(name, without) for name, without in _SCALES.items()}
        names = {field.name for field in fields(cls)} - known.keys()
        return cls(**known, **{name: raw[name] for name in names})

    @classmethod
    def _own_options(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """What a kind of drafter has beyond these fields."""
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
        bias = config.attention_bias
        self.q_proj = nn.Linear(d, config.num_attention_heads * size, bias=bias)
        self.k_proj = nn.Linear(d, rows, bias=bias)
        self.v_proj = nn.Linear(d, rows, bias=bias)
        if separate:
            self.k_proj_target = nn.Linear(d, rows, bias=bias)
            self.v_proj_target = nn.Linear(d, rows, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * size, d, bias=bias)
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
    """A drafter; its embedding and its head are the target's, unless its config says otherwise.

    Args:
        separate: see `Attention`.

    Attributes:
        d2t: [Vd] what to add to a token of the drafter's own head to get the target's.
        t2d: [V] bool, which of the target's tokens that head has.
    """

    config: BlockDrafterConfig
    d2t: Tensor
    t2d: Tensor

    def __init__(self, config: BlockDrafterConfig, separate: bool) -> None:
        super().__init__()
        self.config = config
        d, depth = config.hidden_size, config.num_hidden_layers
        self.hidden_norm = RMSNorm(d, config.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(config, separate) for _ in range(depth))
        self.norm = RMSNorm(d, config.rms_norm_eps)
        rank = config.markov_rank
        self.markov_head = MarkovHead(config.vocab_size, rank) if rank else None
        if config.draft_vocab_size is not None:
            self.lm_head = nn.Linear(d, config.draft_vocab_size, bias=False)
            self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
            self.register_buffer("t2d", torch.arange(config.vocab_size) < config.draft_vocab_size)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, d)
        if config.mask_embedding:
            self.register_parameter(MASK_EMBEDDING, nn.Parameter(torch.zeros(d)))

    @property
    def markov(self) -> MarkovHead | None:
        """What the token before a slot adds to the slot's logits; None for independent slots."""
        return self.markov_head

    @property
    def tokens(self) -> Tensor:
        """[Vd] the target's tokens in the order of the drafter's own head."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    @abstractmethod
    def contexts(self, taps: Tensor) -> Sequence[Tensor]:
        """Taps [N, C, K*d] -> the context rows [N, C, d] of every layer."""

    def embed(self, tokens: Tensor, embedding: nn.Module) -> Tensor:
        """[N, B] tokens -> [N, B, d], by the target's embedding where the drafter has none."""
        rows: Tensor = (self.embed_tokens if self.config.own_embedding else embedding)(tokens)
        if not self.config.mask_embedding:
            return rows
        vector: Tensor = getattr(self, MASK_EMBEDDING)
        return torch.where((tokens == self.config.mask_token_id)[..., None], vector, rows)

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
                None lets it see everything. Causal layers and windows see less.

        Returns:
            [N, B, d] after the final norm, ready for the head.

        Raises:
            ValueError: a BlockMask for a drafter with causal layers or windows.
        """
        c = self.config
        positions = torch.cat([tap_positions, block_positions], 1)
        cos, sin = rotary_table(
            positions, c.head_dim, c.rope_theta, c.rope_scaling, c.max_position_embeddings
        )
        if isinstance(mask, Tensor):
            mask = mask[:, None]
        apart = block_positions[:, :, None] - positions[:, None]  # [N, B, C+B]
        masks = [self._seen(kind, apart, mask) for kind in c.kinds]
        x = block * c.input_embedding_scale
        for layer, context, seen in zip(self.layers, self.contexts(taps), masks, strict=True):
            x = layer(x, context, cos, sin, seen)
        out: Tensor = self.norm(x) * c.output_multiplier
        return out

    def logits(self, hidden: Tensor, head: nn.Module) -> Tensor:
        """[..., d] -> [..., V] by the target's head, or [..., Vd] by the drafter's own."""
        if self.config.draft_vocab_size is None:
            out: Tensor = head(hidden)
            return out
        logits: Tensor = self.lm_head(hidden)
        cap = self.config.final_logit_softcapping
        return logits if cap is None else cap * torch.tanh(logits / cap)

    @staticmethod
    def _seen(kind: tuple[bool, int | None], apart: Tensor, mask: Mask | None) -> Mask | None:
        """What a layer's rows see: keys `apart` positions before them, negative behind them."""
        causal, window = kind
        if not causal and window is None:
            return mask
        seen = torch.ones_like(apart, dtype=torch.bool)
        if causal:
            seen &= apart >= 0
        if window is not None:
            seen &= apart.abs() < window
        if mask is not None and not isinstance(mask, Tensor):
            raise ValueError("layers that see a part of the block take no block mask")
        return seen[:, None] if mask is None else mask & seen[:, None]

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
