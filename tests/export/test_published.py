"""Drafters in published layouts: block logits are those of their equations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from torch import Tensor

from export.source import Source
from runtime.graphs import Graphs
from tests.export import published
from tests.export.conftest import make_target
from tests.export.published import BASE, MASK, VOCAB, WIDTH, Weights
from tests.export.published_kinds import WINDOWED, exported, own_embedding, own_head, own_mask

CONTEXT, BLOCK = 15, 8
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
Seen = Callable[[int, Tensor], Tensor]


def causal_window(layer: int, apart: Tensor) -> Tensor:
    """z-lab's default: sliding layers look back 6 positions, and not ahead."""
    if layer == 2:
        return torch.ones_like(apart, dtype=torch.bool)
    return (apart >= 0) & (apart < 6)


def both_ways(layer: int, apart: Tensor) -> Tensor:
    """`is_causal: false`: 6 positions, on both sides."""
    return torch.ones_like(apart, dtype=torch.bool) if layer == 2 else apart.abs() < 6


def all_causal(layer: int, apart: Tensor) -> Tensor:
    return apart >= 0


# name: keys of config.json, more tensors, who sees whom
KINDS: dict[str, tuple[dict[str, Any], dict[str, Tensor], Seen | None]] = {
    "plain": ({}, {}, None),
    "windows": (WINDOWED, {}, causal_window),
    "windows both ways": (WINDOWED | {"is_causal": False}, {}, both_ways),
    "causal": ({"is_causal": True}, {}, all_causal),
    "window beyond the bundle": (WINDOWED | {"sliding_window": 4096, "is_causal": False}, {}, None),
    "swa": (
        {"layer_types": None, "own": {"use_swa": True, "swa_window_size": 5}},
        {},
        lambda _, apart: apart.abs() < 5,
    ),
    "mask": ({}, own_mask(), None),
    "own tables": ({}, own_embedding() | own_mask() | own_head(), None),
    "reduced": ({"draft_vocab_size": 40}, published.reduced_head(40), None),
    "scales": (
        {"own": {"input_embedding_scale": 1.5, "output_multiplier": 0.5}},
        {},
        None,
    ),
    "softcap": (
        {"final_logit_softcapping": 2.0, "draft_vocab_size": 40},
        published.reduced_head(40),
        None,
    ),
    "yarn": ({"rope_scaling": YARN}, {}, None),
    "biased": ({"attention_bias": True}, {}, None),
}


def block_logits(graphs: Graphs, taps: Tensor, tokens: list[int]) -> np.ndarray:
    """[B, V] of a block behind CONTEXT rows, of which ten are in the trunk already."""
    draft, limits = graphs.manifest.draft, graphs.manifest.limits
    assert draft is not None
    cache = graphs.cache(draft, limits.trunk, limits.branch)
    b, rows = len(tokens), np.arange(CONTEXT)
    read = np.array([[draft.mask_token if token == MASK else token for token in tokens]])
    for some in (rows[:4], rows[4:10], rows[10:]):
        block = graphs.embed_draft(read)
        bias = np.zeros((1, b, len(some) + b), np.float32)
        at = some[-1] + 1 + np.arange(b)[None]
        context = np.ascontiguousarray(taps[None, some].numpy())
        hidden = graphs.draft(block, at, context, some[None], bias, cache)
        cache.commit(np.ones((1, len(some)), np.bool_))
    return np.asarray(graphs.draft_head(hidden)[0])


def over_target(weights: Weights, hidden: Tensor) -> Tensor:
    """[B, V] logits of the drafter's own head in the target's numbering."""
    full = torch.full((len(hidden), VOCAB), -torch.inf)
    own = hidden @ weights["lm_head.weight"].T
    numbers = torch.arange(own.shape[1])
    full[:, numbers + weights["d2t"] if "d2t" in weights else numbers] = own
    return full


def loaded(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights = load_file(folder / "model.safetensors")
    raw = json.loads((folder / "config.json").read_text())
    return raw, {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_dflash_gives_the_logits_of_its_equations(target: Path, tmp_path: Path, kind: str) -> None:
    options, more, seen = KINDS[kind]
    drafter = published.dflash(tmp_path / "drafter", more, **dict(options))
    graphs = exported(target, drafter, tmp_path / "bundle")
    raw, w = loaded(drafter)
    _, theirs = loaded(target)
    generator = torch.Generator().manual_seed(3)
    taps = torch.randn(CONTEXT, 3 * WIDTH, generator=generator)
    tokens = [7, MASK, MASK, 20, MASK, MASK, MASK, MASK]
    table = w.get("embed_tokens.weight", theirs["model.embed_tokens.weight"])
    block = table[tokens]
    if "mask_embedding" in w:
        block = torch.stack([
            w["mask_embedding"][0] if token == MASK else row
            for token, row in zip(tokens, block, strict=True)
        ])  # fmt: skip
    own = raw["dflash_config"]
    angles, gain = published.yarn_angles(24, 10000.0, 4.0, 64) if kind == "yarn" else (None, 1.0)
    context = published.dflash_context(w, raw, taps)
    hidden = published.block_hidden(
        w,
        raw,
        block * own.get("input_embedding_scale", 1.0),
        CONTEXT,
        lambda _: context,
        seen=seen,
        angles=angles,
        gain=gain,
    )
    if "lm_head.weight" in w:
        expected = over_target(w, hidden)
    else:
        expected = hidden @ theirs["model.embed_tokens.weight"].T
    expected = expected * own.get("output_multiplier", 1.0)
    if "final_logit_softcapping" in raw:
        expected = 2.0 * (expected / 2.0).tanh()
        expected[:, ~w["t2d"]] = -torch.inf
    found = block_logits(graphs, taps, tokens)
    assert np.isfinite(found).sum() == torch.isfinite(expected).sum()
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-4, rtol=1e-4)
    assert ("draft_head" in graphs.manifest.graphs) == ("lm_head.weight" in w)
    assert ("draft_embed" in graphs.manifest.graphs) == ("embed_tokens.weight" in w)
    assert graphs.manifest.draft is not None
    assert graphs.manifest.draft.own_mask == ("mask_embedding" in w)


def test_dflare_gives_the_logits_of_its_equations(target: Path, tmp_path: Path) -> None:
    drafter = published.dflare(tmp_path / "drafter")
    graphs = exported(target, drafter, tmp_path / "bundle")
    raw, w = loaded(drafter)
    _, theirs = loaded(target)
    table = theirs["model.embed_tokens.weight"]
    taps = torch.randn(CONTEXT, 3 * WIDTH, generator=torch.Generator().manual_seed(3))
    tokens = [7, *[MASK] * 7]
    hidden = published.block_hidden(
        w,
        raw,
        table[tokens],
        CONTEXT,
        lambda layer: published.dflare_context(w, raw, taps, layer),
        suffix="_target",
    )
    found = block_logits(graphs, taps, tokens)
    np.testing.assert_allclose(found, (hidden @ table.T).numpy(), atol=1e-4, rtol=1e-4)


def eagle_folders() -> dict[str, Callable[[Path], Path]]:
    normed = {"norm_before_residual": True}
    return {
        "midlayer": published.eagle3,
        "norm before residual": lambda folder: published.eagle3(folder, **normed),
        "AngelSlim": lambda folder: published.eagle3(
            folder, architectures=["Eagle3LlamaForCausalLM"]
        ),
        "own embedding": lambda folder: published.eagle3(folder, own_embedding()),
        "speculators": lambda folder: published.speculators(folder, "eagle3"),
    }


@pytest.mark.parametrize("kind", eagle_folders())
def test_eagle3_gives_the_logits_of_its_equations(target: Path, tmp_path: Path, kind: str) -> None:
    drafter = eagle_folders()[kind](tmp_path / "drafter")
    graphs = exported(target, drafter, tmp_path / "bundle")
    assert graphs.manifest.target.taps == [0, 2, 4]
    raw, w = loaded(drafter)
    _, theirs = loaded(target)
    taps = torch.randn(CONTEXT, 3 * WIDTH, generator=torch.Generator().manual_seed(3))
    tokens = np.random.default_rng(0).integers(0, VOCAB, (1, CONTEXT))
    table = w.get("embed_tokens.weight", theirs["model.embed_tokens.weight"])
    nested = "transformer_layer_config" in raw
    hidden = published.eagle3_steps(
        w,
        BASE,
        table[torch.from_numpy(tokens[0])],
        taps @ w["fc.weight"].T,
        "layers.0" if nested else "midlayer",
        raw.get("norm_before_residual", False),
    )
    expected = over_target(w, published.norm(hidden, w["norm.weight"], BASE["rms_norm_eps"]))

    draft, limits = graphs.manifest.draft, graphs.manifest.limits
    assert draft is not None
    assert draft.block == (6 if nested else 8)
    cache = graphs.cache(draft, limits.trunk, limits.branch)
    found = []
    for some in (np.arange(6), np.arange(6, CONTEXT)):
        rows = graphs.embed_draft(tokens[:, some])
        features = graphs.fuse(np.ascontiguousarray(taps[None, some].numpy()))
        s = len(some)
        bias = np.where(np.tril(np.ones((s, s))), 0.0, -30000.0).astype(np.float32)[None]
        out = graphs.step(rows, features, 1 + some[None], bias, cache)
        cache.commit(np.ones((1, s), np.bool_))
        found.append(np.asarray(graphs.draft_head(out)[0]).copy())
    np.testing.assert_allclose(np.concatenate(found), expected.numpy(), atol=1e-4, rtol=1e-4)


def test_speculators_dflash_is_z_labs_under_other_names(target: Path, tmp_path: Path) -> None:
    drafter = published.speculators(tmp_path / "drafter", "dflash")
    graphs = exported(target, drafter, tmp_path / "bundle")
    assert graphs.manifest.target.taps == [1, 2, 4]  # its ids name the blocks' inputs
    raw, w = loaded(drafter)
    _, theirs = loaded(target)
    taps = torch.randn(CONTEXT, 3 * WIDTH, generator=torch.Generator().manual_seed(3))
    tokens = [7, *[MASK] * 7]
    inner = raw["transformer_layer_config"]
    context = published.dflash_context(w, inner, taps)
    hidden = published.block_hidden(
        w,
        inner,
        theirs["model.embed_tokens.weight"][tokens],
        CONTEXT,
        lambda _: context,
        seen=lambda i, apart: causal_window(0 if i == 0 else 2, apart),
    )
    found = block_logits(graphs, taps, tokens)
    np.testing.assert_allclose(found, over_target(w, hidden).numpy(), atol=1e-4, rtol=1e-4)


def test_a_copy_of_the_targets_tables_is_kept_once(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target", tie_word_embeddings=False)
    weights = load_file(target / "model.safetensors")
    copies = {
        "embed_tokens.weight": weights["model.embed_tokens.weight"],
        "lm_head.weight": weights["lm_head.weight"],
    }
    folder = published.dflash(tmp_path / "drafter", copies)
    names = [name for name, _ in Source.open(target, folder).graphs(128)]
    assert names == ["embed", "target", "draft", "head"]
    graphs = exported(target, folder, tmp_path / "bundle")
    assert graphs.manifest.draft is not None
    assert graphs.manifest.draft.head_top_k is None
