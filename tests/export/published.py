"""Drafters in their published layouts, written without planners.nets, and their equations.

The layouts: z-lab's DFlash and vLLM's speculators, AngelSlim's DFlare, SafeAILab's and SpecForge's
EAGLE-3. The equations are written out on plain tensors by name, one row at a time where that is
simplest: nothing of the networks under test is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

Weights = Mapping[str, Tensor]
VOCAB, WIDTH, MASK = 300, 64, 257
BASE: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,  # neither the target's, nor width / heads
    "vocab_size": VOCAB,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "use_cache": True,
    "dtype": "bfloat16",
    "transformers_version": "4.57.1",
}


def random_weights(shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, Tensor]:
    """bf16; norms near one."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (
            torch.randn(shape, generator=generator) * 0.15
            + (len(shape) == 1 and "norm" in name) * 1.0
        ).to(torch.bfloat16)
        for name, shape in shapes.items()
    }


def layer_shapes(prefix: str, raw: Mapping[str, Any], reads: int = WIDTH) -> dict[str, Any]:
    """Of one decoder layer whose attention reads rows of `reads` numbers."""
    q = raw["num_attention_heads"] * raw["head_dim"]
    kv, inner = raw["num_key_value_heads"] * raw["head_dim"], raw["intermediate_size"]
    shapes: dict[str, Any] = {
        "input_layernorm.weight": (WIDTH,),
        "post_attention_layernorm.weight": (WIDTH,),
        "self_attn.q_proj.weight": (q, reads),
        "self_attn.k_proj.weight": (kv, reads),
        "self_attn.v_proj.weight": (kv, reads),
        "self_attn.o_proj.weight": (WIDTH, q),
        "mlp.gate_proj.weight": (inner, WIDTH),
        "mlp.up_proj.weight": (inner, WIDTH),
        "mlp.down_proj.weight": (WIDTH, inner),
    }
    if raw.get("attention_bias"):
        sizes = {"q": q, "k": kv, "v": kv, "o": WIDTH}
        shapes |= {f"self_attn.{part}_proj.bias": (size,) for part, size in sizes.items()}
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def head_norms(prefix: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.self_attn.{part}_norm.weight": (raw["head_dim"],) for part in "qk"}


def write(folder: Path, raw: Mapping[str, Any], weights: Weights) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(raw), indent=2))
    save_file({name: value.contiguous() for name, value in weights.items()},
              folder / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    return folder


def dflash(folder: Path, more: Mapping[str, Any] | None = None, **options: Any) -> Path:
    """z-lab's layout, 3 layers and taps 1, 2, 4; `options` are keys of config.json."""
    own = {"mask_token_id": MASK, "target_layer_ids": [1, 2, 4]} | options.pop("own", {})
    raw = BASE | {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "block_size": 8,
        "dflash_config": own,
        "layer_types": ["full_attention"] * 3,
        "max_window_layers": 3,
        "model_type": "qwen3",
        "num_hidden_layers": 3,
        "num_target_layers": 5,
        "rope_scaling": None,
        "rope_theta": 10000,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    raw |= options
    shapes: dict[str, Any] = {
        "fc.weight": (WIDTH, 3 * WIDTH),
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
    }
    for layer in range(3):
        shapes |= layer_shapes(f"layers.{layer}", raw) | head_norms(f"layers.{layer}", raw)
    return write(folder, raw, random_weights(shapes) | dict(more or {}))


def dflare(folder: Path) -> Path:
    """AngelSlim's layout."""
    raw = BASE | {
        "architectures": ["QwenDFlareDraftModel"],
        "block_size": 8,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [1, 2, 4]},
        "layer_types": ["full_attention"] * 2,
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "num_target_layers": 5,
        "rope_theta": 10000,
        "sliding_window": None,
    }
    kv = raw["num_key_value_heads"] * raw["head_dim"]
    shapes: dict[str, Any] = {
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
        "layer_fusion_weights": (2, 3),
    }
    for layer in range(2):
        name = f"layers.{layer}"
        shapes |= layer_shapes(name, raw) | head_norms(name, raw)
        shapes |= {f"{name}.self_attn.{part}_proj_target.weight": (kv, WIDTH) for part in "kv"}
    weights = random_weights(shapes)
    weights["layer_fusion_weights"] *= 8
    return write(folder, raw, weights)


def reduced_head(size: int, seed: int = 5) -> dict[str, Tensor]:
    """A head over `size` of the target's tokens: lm_head, d2t, t2d."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randperm(VOCAB, generator=generator)[:size].sort().values
    t2d = torch.zeros(VOCAB, dtype=torch.bool)
    t2d[tokens] = True
    return {
        **random_weights({"lm_head.weight": (size, WIDTH)}, seed),
        "d2t": tokens - torch.arange(size),
        "t2d": t2d,
    }


def eagle3(folder: Path, more: Mapping[str, Tensor] | None = None, **options: Any) -> Path:
    """SpecForge's layout: one midlayer, 40 of the target's tokens."""
    raw = BASE | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 40,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": [0, 2, 4],
            "use_aux_hidden_state": True,
        },
        "model_type": "llama",
        "num_hidden_layers": 1,
        "pretraining_tp": 1,
        "rope_scaling": None,
        "rope_theta": 10000,
    }
    raw |= options
    weights = eagle3_weights("midlayer", raw) | dict(more or {})
    return write(folder, raw, weights)


def eagle3_weights(layer: str, raw: Mapping[str, Any]) -> dict[str, Tensor]:
    shapes = layer_shapes(layer, raw, 2 * WIDTH) | {
        f"{layer}.hidden_norm.weight": (WIDTH,),
        "fc.weight": (WIDTH, 3 * WIDTH),
        "norm.weight": (WIDTH,),
    }
    return random_weights(shapes) | reduced_head(40)


def speculators(folder: Path, kind: str, **options: Any) -> Path:
    """vLLM's layout: the decoder nested, blocks numbered by their input."""
    inner = BASE | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    methods = [{"proposal_type": "greedy", "speculative_tokens": 5}]
    raw: dict[str, Any] = {
        "draft_vocab_size": 40,
        "dtype": "bfloat16",
        "speculators_config": {"algorithm": kind, "proposal_methods": methods},
        "speculators_model_type": kind,
        "speculators_version": "0.4.0",
        "target_hidden_size": None,
    }
    if kind == "eagle3":
        raw |= {
            "architectures": ["Eagle3DraftModel"],
            "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
            "norm_before_residual": True,
            "transformer_layer_config": inner | {"model_type": "llama", "num_hidden_layers": 1},
        }
        weights = eagle3_weights("layers.0", inner)
    else:
        types = ["sliding_attention", "full_attention"]
        inner |= {"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": types}
        raw |= {
            "architectures": ["DFlashSpeculator"],
            "aux_hidden_state_layer_ids": [2, 3, 5],
            "block_size": 8,
            "mask_token_id": MASK,
            "projector_type": "dflash",
            "shift_label": False,
            "transformer_layer_config": inner | {"sliding_window": 6},
        }
        shapes: dict[str, Any] = {
            "fc.weight": (WIDTH, 3 * WIDTH),
            "hidden_norm.weight": (WIDTH,),
            "norm.weight": (WIDTH,),
            "verifier_norm.weight": (WIDTH,),
        }
        for layer in range(2):
            shapes |= layer_shapes(f"layers.{layer}", inner) | head_norms(f"layers.{layer}", inner)
        weights = random_weights(shapes) | reduced_head(40)
    return write(folder, raw | options, weights)


# The equations.


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight


def rotary(x: Tensor, positions: Tensor, angles: Tensor, gain: float = 1.0) -> Tensor:
    """x [rows, heads, D]: pairs (i, i + D/2) turn by position * angles[i]."""
    turn = positions[:, None, None] * angles
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    cos, sin = turn.cos() * gain, turn.sin() * gain
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def plain_angles(head_dim: int, theta: float = 10000.0) -> Tensor:
    return theta ** (-torch.arange(0, head_dim, 2) / head_dim)


def yarn_angles(head_dim: int, theta: float, factor: float, trained: int) -> tuple[Tensor, float]:
    """arXiv 2309.00071, eq. 18-23 with alpha 1 and beta 32, bounds rounded outwards."""
    angles = plain_angles(head_dim, theta)

    def place(turns: float) -> float:
        return head_dim * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), head_dim - 1)
    ramp = ((torch.arange(head_dim // 2) - low) / (high - low)).clamp(0, 1)
    return angles * (1 - ramp) + angles / factor * ramp, 0.1 * math.log(factor) + 1


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """q [S, H, D], k and v [T, Hkv, D], seen [S, T] -> [S, H*D]"""
    heads = []
    for head in range(q.shape[1]):
        shared = head * k.shape[1] // q.shape[1]
        scores = q[:, head] @ k[:, shared].T / q.shape[-1] ** 0.5
        heads.append(scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v[:, shared])
    return torch.cat(heads, -1)


def swiglu(x: Tensor, w: Weights, layer: str) -> Tensor:
    gate = x @ w[f"{layer}.mlp.gate_proj.weight"].T
    up = x @ w[f"{layer}.mlp.up_proj.weight"].T
    return (gate * gate.sigmoid() * up) @ w[f"{layer}.mlp.down_proj.weight"].T


def linear(x: Tensor, w: Weights, name: str) -> Tensor:
    out = x @ w[f"{name}.weight"].T
    return out + w[f"{name}.bias"] if f"{name}.bias" in w else out


def block_hidden(
    w: Weights,
    raw: Mapping[str, Any],
    block: Tensor,
    start: int,
    contexts: Callable[[int], Tensor],
    *,
    seen: Callable[[int, Tensor], Tensor] | None = None,
    angles: Tensor | None = None,
    gain: float = 1.0,
    suffix: str = "",
) -> Tensor:
    """DFlash's block (arXiv 2602.06036, section 3) over C context rows at positions 0..C-1.

    Args:
        block: [B, d] embeddings, the anchor at position `start` = C.
        contexts: the context rows [C, d] of a layer.
        seen: of a layer and key offsets [B, C+B] (query's position minus key's), who is seen.
        suffix: of the context's Wk and Wv.
    """
    eps, size = raw["rms_norm_eps"], raw["head_dim"]
    angles = plain_angles(size) if angles is None else angles
    at = torch.arange(start + len(block))
    queries = at[start:]
    x = block
    for i in range(raw["num_hidden_layers"]):
        layer = f"layers.{i}"
        h = norm(x, w[f"{layer}.input_layernorm.weight"], eps)
        q = linear(h, w, f"{layer}.self_attn.q_proj").view(len(block), -1, size)
        rows = [
            torch.cat([
                linear(contexts(i), w, f"{layer}.self_attn.{part}_proj{suffix}"),
                linear(h, w, f"{layer}.self_attn.{part}_proj"),
            ]).view(len(at), -1, size)
            for part in "kv"
        ]  # fmt: skip
        q = norm(q, w[f"{layer}.self_attn.q_norm.weight"], eps)
        k = norm(rows[0], w[f"{layer}.self_attn.k_norm.weight"], eps)
        apart = queries[:, None] - at
        mask = torch.ones_like(apart, dtype=torch.bool) if seen is None else seen(i, apart)
        mixed = softmax_attention(
            rotary(q, queries, angles, gain), rotary(k, at, angles, gain), rows[1], mask
        )
        x = x + linear(mixed, w, f"{layer}.self_attn.o_proj")
        x = x + swiglu(norm(x, w[f"{layer}.post_attention_layernorm.weight"], eps), w, layer)
    return norm(x, w["norm.weight"], eps)


def dflash_context(w: Weights, raw: Mapping[str, Any], taps: Tensor) -> Tensor:
    """The taps [C, 3d] projected, then normed."""
    return norm(taps @ w["fc.weight"].T, w["hidden_norm.weight"], raw["rms_norm_eps"])


def dflare_context(w: Weights, raw: Mapping[str, Any], taps: Tensor, layer: int) -> Tensor:
    """The taps [C, 3d] mixed by a layer's weights, then normed (arXiv 2606.02091)."""
    share = w["layer_fusion_weights"][layer].softmax(0)
    mixed = sum(share[j] * taps[:, j * WIDTH : (j + 1) * WIDTH] for j in range(3))
    return norm(torch.as_tensor(mixed), w["hidden_norm.weight"], raw["rms_norm_eps"])


def eagle3_steps(
    w: Weights,
    raw: Mapping[str, Any],
    embeddings: Tensor,
    features: Tensor,
    layer: str = "midlayer",
    before_residual: bool = False,
) -> Tensor:
    """EAGLE-3's layer (arXiv 2503.01840) over rows at positions 1..S, causal -> [S, d].

    Row j is the token at position j + 1 with the feature of the position before it.
    """
    eps, size, s = raw["rms_norm_eps"], raw["head_dim"], len(embeddings)
    normed = norm(features, w[f"{layer}.hidden_norm.weight"], eps)
    x = torch.cat([norm(embeddings, w[f"{layer}.input_layernorm.weight"], eps), normed], -1)
    q, k, v = (linear(x, w, f"{layer}.self_attn.{part}_proj").view(s, -1, size) for part in "qkv")
    at, angles = torch.arange(1, s + 1), plain_angles(size)
    mixed = softmax_attention(
        rotary(q, at, angles), rotary(k, at, angles), v, at[:, None] >= at[None]
    )
    h = normed if before_residual else features
    h = h + linear(mixed, w, f"{layer}.self_attn.o_proj")
    return h + swiglu(norm(h, w[f"{layer}.post_attention_layernorm.weight"], eps), w, layer)
