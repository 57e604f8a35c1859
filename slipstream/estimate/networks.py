"""Networks' shapes from the sizes that a published `config.json` names."""

from __future__ import annotations

from dataclasses import replace

from slipstream.estimate.shape import NetworkShape


def qwen3(
    *, layers: int, width: int, ffn: int, heads: int, kv_heads: int, head_dim: int
) -> NetworkShape:
    """A Qwen3 decoder: q, k, v, o, gate, up, down in every layer."""
    attention = width * head_dim * (2 * heads + 2 * kv_heads)
    return NetworkShape(
        blocks=layers,
        row_weights=layers * (attention + 3 * width * ffn),
        context_weights=0,
        attention_layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        state=0,
        widest=max(ffn, heads * head_dim),
    )


def qwen3_5(
    *,
    layers: int,
    width: int,
    ffn: int,
    heads: int,
    kv_heads: int,
    key_heads: int,
    value_heads: int,
) -> NetworkShape:
    """A Qwen3.5 decoder: three Gated DeltaNet layers to each of gated full attention.

    Full attention (head size 256) has a gate as wide as its queries. A DeltaNet layer (head size
    128) projects q, k, v and a gate z, has two numbers a value head, and a state of 128 x 128 each.
    """
    full, linear = layers // 4, layers - layers // 4
    attention = width * 256 * (3 * heads + 2 * kv_heads)
    delta = width * (128 * (2 * key_heads + 3 * value_heads) + 2 * value_heads)
    return NetworkShape(
        blocks=layers,
        row_weights=full * attention + linear * delta + layers * 3 * width * ffn,
        context_weights=0,
        attention_layers=full,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=256,
        state=linear * value_heads * 128 * 128,
        widest=max(ffn, 2 * heads * 256),
    )


def dflash(
    *, layers: int, width: int, ffn: int, heads: int, kv_heads: int, head_dim: int, taps: int
) -> NetworkShape:
    """A DFlash drafter (arXiv 2602.06036): Qwen3 layers, and a projection of the target's taps."""
    drafter = qwen3(
        layers=layers, width=width, ffn=ffn, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )
    return replace(drafter, context_weights=taps * width * width)
