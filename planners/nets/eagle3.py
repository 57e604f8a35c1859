"""The EAGLE-3 drafter (arXiv 2503.01840): one decoder layer that drafts token after token.

Row j pairs the token at position j with the feature of position j - 1 and speaks of the token at
j + 1. Features of verified positions are fused from three of the target's taps; behind them the
drafter's own hidden states stand in. Tensor names and `config.json` follow the published
checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from planners.drafter_layouts import eagle3_layer, eagle3_taps, flat_config
from planners.nets.files import as_floats, load_weights, read_object
from planners.nets.layers import RMSNorm, attend, rotary_table, rotate, split_heads
from planners.nets.rope import plain
from runtime.errors import SlipstreamError
from runtime.files import write_atomic

ARCHITECTURE = "LlamaForCausalLMEagle3"
KeyValue = tuple[Tensor, Tensor]  # keys after RoPE and values, each [N, Hkv, S, D]


@dataclass(frozen=True)
class Eagle3Config:
    """A drafter's sizes.

    Attributes:
        hidden_size: d, the target's width; embeddings are the target's.
        vocab_size: V of the target; draft_vocab_size: Vd of the drafter's own head.
        target_layer_ids: 0-based target blocks whose output is tapped: low, middle, high.
        depth: drafts in a row that it was trained for, each on the hidden state of the one before.
        scaffold_runs: a token and the fixed tokens behind it are one pass, all with the feature of
            the first; otherwise every token takes a pass, as in the published checkpoints.
        qk_norm: RMS norm of query and key heads, as Qwen3 has it.
        norm_before_residual: the residual stream starts from the normed feature.
        rope_scaling: see `planners.nets.rope.frequencies`.
        attention_bias: the four projections of attention have biases.
        own_embedding: it has an embedding of its own.
    """

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    draft_vocab_size: int
    target_layer_ids: tuple[int, ...]
    depth: int = 7
    scaffold_runs: bool = False
    qk_norm: bool = False
    norm_before_residual: bool = False
    rope_scaling: Mapping[str, Any] | None = None
    attention_bias: bool = False
    own_embedding: bool = False
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 1024

    def to_json(self) -> dict[str, Any]:
        """`config.json` as the published drafters have it, with `depth` and our own keys."""
        scaling = {"rope_scaling": dict(self.rope_scaling)} if self.rope_scaling else {}
        return scaling | {
            "architectures": [ARCHITECTURE],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "eagle_config": {
                "eagle_aux_hidden_state_layer_ids": list(self.target_layer_ids),
                "use_aux_hidden_state": True,
            },
            "ttt_length": self.depth,
            "scaffold_runs": self.scaffold_runs,
            "qk_norm": self.qk_norm,
            "norm_before_residual": self.norm_before_residual,
            "hidden_size": self.hidden_size,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": self.draft_vocab_size,
            "max_position_embeddings": self.max_position_embeddings,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_theta": self.rope_theta,
            "hidden_act": "silu",
            "attention_bias": self.attention_bias,
            "tie_word_embeddings": False,
            "dtype": "bfloat16",
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any], layers: int = 0) -> Eagle3Config:
        """Read `config.json`; raises KeyError for a missing key, ValueError for a value.

        Args:
            layers: of the target, which says what is tapped where the config does not.
        """
        raw = flat_config(raw)
        if raw.get("num_hidden_layers", 1) != 1:
            raise ValueError(f"num_hidden_layers is {raw['num_hidden_layers']}; EAGLE-3 has 1")
        scaling = raw.get("rope_parameters") or raw.get("rope_scaling")
        rope = raw.get("rope_parameters") or raw
        heads, taps = raw["num_attention_heads"], tuple(eagle3_taps(raw, layers))
        if min(taps, default=-1) < 0:
            raise KeyError("eagle_aux_hidden_state_layer_ids")
        return cls(
            hidden_size=raw["hidden_size"],
            num_attention_heads=heads,
            num_key_value_heads=raw.get("num_key_value_heads", heads),
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            intermediate_size=raw["intermediate_size"],
            vocab_size=raw["vocab_size"],
            draft_vocab_size=raw.get("draft_vocab_size") or raw["vocab_size"],
            target_layer_ids=taps,
            depth=raw.get("ttt_length", 7),
            scaffold_runs=bool(raw.get("scaffold_runs", False)),
            qk_norm=bool(raw.get("qk_norm", False)),
            norm_before_residual=bool(raw.get("norm_before_residual", False)),
            rope_scaling=None if plain(scaling) else scaling,
            attention_bias=bool(raw.get("attention_bias", False)),
            rope_theta=float(rope["rope_theta"]),
            rms_norm_eps=raw["rms_norm_eps"],
            max_position_embeddings=raw["max_position_embeddings"],
        )


class Attention(nn.Module):
    """Reads rows twice as wide as it writes: embedding and feature side by side."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        d, size = config.hidden_size, config.head_dim
        self.head_dim = size
        bias = config.attention_bias
        self.q_proj = nn.Linear(2 * d, config.num_attention_heads * size, bias=bias)
        self.k_proj = nn.Linear(2 * d, config.num_key_value_heads * size, bias=bias)
        self.v_proj = nn.Linear(2 * d, config.num_key_value_heads * size, bias=bias)
        self.o_proj = nn.Linear(config.num_attention_heads * size, d, bias=bias)
        if config.qk_norm:
            self.q_norm = RMSNorm(size, config.rms_norm_eps)
            self.k_norm = RMSNorm(size, config.rms_norm_eps)
        self.qk_norm = config.qk_norm

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> KeyValue:
        """x [N, S, 2d], cos and sin [N, 1, S, D]."""
        k = split_heads(self.k_proj(x), self.head_dim)
        if self.qk_norm:
            k = self.k_norm(k)
        return rotate(k, cos, sin), split_heads(self.v_proj(x), self.head_dim)

    def forward(
        self, x: Tensor, rows: KeyValue, cos: Tensor, sin: Tensor, mask: Tensor | None
    ) -> Tensor:
        """x [N, S, 2d] over keys and values of T rows; mask [N, 1, S, T] -> [N, S, d]"""
        q = split_heads(self.q_proj(x), self.head_dim)
        if self.qk_norm:
            q = self.q_norm(q)
        out: Tensor = self.o_proj(attend(rotate(q, cos, sin), *rows, mask))
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
    """The one decoder layer; its residual stream is the feature's."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(d, eps)  # of the embedding
        self.hidden_norm = RMSNorm(d, eps)  # of the feature
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(d, eps)
        self.mlp = MLP(d, config.intermediate_size)

    def inputs(self, embeddings: Tensor, features: Tensor) -> Tensor:
        """[N, S, d] twice -> [N, S, 2d]"""
        return torch.cat([self.input_layernorm(embeddings), self.hidden_norm(features)], -1)


class Eagle3(nn.Module):
    """The drafter; the embedding is the target's.

    Attributes:
        d2t: [Vd] what to add to a token of the drafter's vocabulary to get the target's.
        t2d: [V] bool, which of the target's tokens the drafter's vocabulary has.
    """

    d2t: Tensor
    t2d: Tensor

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        d = config.hidden_size
        self.fc = nn.Linear(len(config.target_layer_ids) * d, d, bias=False)
        self.midlayer = Layer(config)
        self.norm = RMSNorm(d, config.rms_norm_eps)
        self.lm_head = nn.Linear(d, config.draft_vocab_size, bias=False)
        if config.own_embedding:
            self.embed_tokens = nn.Embedding(config.vocab_size, d)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
        self.register_buffer("t2d", torch.arange(config.vocab_size) < config.draft_vocab_size)

    @property
    def tokens(self) -> Tensor:
        """[Vd] the target's tokens in the order of the drafter's head."""
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def embed(self, tokens: Tensor, embedding: nn.Module) -> Tensor:
        """[N, S] tokens -> [N, S, d], by the target's embedding where the drafter has none."""
        rows: Tensor = (self.embed_tokens if self.config.own_embedding else embedding)(tokens)
        return rows

    def fuse(self, taps: Tensor) -> Tensor:
        """Features [N, C, d] of verified positions from the target's taps [N, C, 3d]."""
        features: Tensor = self.fc(taps)
        return features

    def keys_values(self, embeddings: Tensor, features: Tensor, positions: Tensor) -> KeyValue:
        """What rows that only later rows look at leave behind, without their own attention."""
        layer = self.midlayer
        cos, sin = self._rotary(positions)
        return layer.self_attn.keys_values(layer.inputs(embeddings, features), cos, sin)

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        past: KeyValue | None = None,
    ) -> tuple[Tensor, KeyValue]:
        """One pass over S new rows.

        Args:
            embeddings: [N, S, d] of the tokens at `positions`.
            features: [N, S, d] of the position before each, or what stands in for it.
            positions: [N, S]
            mask: [N, S, T+S] bool, true where a row may look; None lets it see everything.
            past: keys and values of T earlier rows.

        Returns:
            hidden [N, S, d]: the next rows' features, and what `logits` reads; keys and values of
            all T+S rows.
        """
        layer = self.midlayer
        cos, sin = self._rotary(positions)
        x = layer.inputs(embeddings, features)
        rows = layer.self_attn.keys_values(x, cos, sin)
        if past is not None:
            rows = torch.cat([past[0], rows[0]], 2), torch.cat([past[1], rows[1]], 2)
        if mask is not None:
            mask = mask[:, None]
        if self.config.norm_before_residual:
            features = layer.hidden_norm(features)
        h = features + layer.self_attn(x, rows, cos, sin, mask)
        hidden: Tensor = h + layer.mlp(layer.post_attention_layernorm(h))
        return hidden, rows

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., d] -> [..., Vd] over the drafter's own vocabulary, `tokens`."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        c = self.config
        return rotary_table(
            positions, c.head_dim, c.rope_theta, c.rope_scaling, c.max_position_embeddings
        )


def new_eagle3(
    seed: int,
    config: Eagle3Config,
    target: Qwen3ForCausalLM | None = None,
    tokens: Tensor | None = None,
) -> Eagle3:
    """A freshly initialised drafter (normal, 0.02; residual outputs scaled down).

    Args:
        target: its final norm and its head's rows begin the drafter's head.
        tokens: [Vd] the target's tokens that the drafter can draft, rising; None takes the first.
    """
    torch.manual_seed(seed)
    drafter = Eagle3(config)
    for name, parameter in drafter.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(parameter, 0.0, 0.02 * (2**-0.5 if last else 1.0))
    if tokens is not None:
        drafter.d2t.copy_(tokens - torch.arange(config.draft_vocab_size))
        drafter.t2d.zero_()[tokens] = True
    if target is not None:
        with torch.no_grad():
            drafter.norm.weight.copy_(target.model.norm.weight)
            drafter.lm_head.weight.copy_(target.lm_head.weight[drafter.tokens])
    return drafter


def frequent_tokens(outputs: Tensor, vocab: int, count: int) -> Tensor:
    """[count] tokens, rising: those that `outputs` [M, L] has most often, then the lowest."""
    often = torch.bincount(outputs.flatten().long(), minlength=vocab)
    return often.argsort(descending=True, stable=True)[:count].sort().values


def load_eagle3(folder: Path, layers: int = 0) -> Eagle3:
    """Load `config.json` and the safetensors file, or its shards, weights as fp32.

    Args:
        layers: of the target, which says what is tapped where the config does not.

    Raises:
        SlipstreamError: a file is missing or unreadable, or does not hold an EAGLE-3 drafter.
    """
    try:
        raw, weights = read_object(folder / "config.json"), load_weights(folder)
        layer = eagle3_layer(weights) + "."
        config = replace(
            Eagle3Config.from_json(raw, layers),
            qk_norm=f"{layer}self_attn.q_norm.weight" in weights,
            own_embedding="embed_tokens.weight" in weights,
        )
        drafter = Eagle3(config)
        floats = {
            name.replace(layer, "midlayer.", 1): value for name, value in as_floats(weights).items()
        }
        for name in ("d2t", "t2d"):  # a drafter with the target's whole vocabulary may lack them
            if config.draft_vocab_size == config.vocab_size:
                floats.setdefault(name, getattr(drafter, name))
        drafter.load_state_dict(floats)
        tokens = drafter.tokens
        if tokens.min() < 0 or tokens.max() >= config.vocab_size:
            raise ValueError(f"d2t leads outside of the {config.vocab_size} tokens")
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be loaded as a drafter",
            expected="config.json with eagle_config, and model.safetensors (or its shards and "
            "model.safetensors.index.json) with an EAGLE-3 drafter's tensors",
            found=f"{type(error).__name__}: {error}",
            fix="train one, or name the folder of an EAGLE-3 checkpoint in safetensors",
        ) from error
    return drafter.eval()


def save_eagle3(drafter: Eagle3, folder: Path) -> None:
    """Write `config.json` and `model.safetensors`: weights in bf16, d2t int64, t2d bool."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: (value.to(torch.bfloat16) if value.is_floating_point() else value).contiguous()
        for name, value in drafter.state_dict().items()
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_atomic(folder / "config.json", json.dumps(drafter.config.to_json(), indent=2) + "\n")
