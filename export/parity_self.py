"""Parity of a self-drafting target's bidirectional pass: the target graph under a block's bias.

The reference is transformers' own network over the whole sequence under a mask: causal up to the
anchor, the block's rows seeing everything before it and each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from export.cache_rows import MASKED, CacheRows, Floats, Ints, causal
from export.parity_draft_head import Add
from runtime.engines.base import Array
from runtime.markov import GATE, MARKOV, TABLES, Markov

# tokens [N, S], positions [N, S], trunk, branches, bias [N, S, S] -> the target graph's outputs
TargetPass = Callable[[Ints, Ints, CacheRows, CacheRows, Floats], dict[str, Array]]
Compare = Callable[[str, Array, torch.Tensor], None]


def check_self_drafting(
    add: Compare,
    decoder: PreTrainedModel,
    run: TargetPass,
    rows: Callable[[str, int, int], CacheRows],
    block: int,
    start: int,
) -> None:
    """A block over the trunk alone, then blocks of three rollouts over trunk and branches.

    Args:
        decoder: transformers' text decoder, without a head.
        run: a pass of the target graph.
        rows: makes an empty part of the cache: which, capacity, rollouts.
        block: B; the passes are as wide, as far as positions go.
        start: first position.
    """
    rng, vocab = np.random.default_rng(4), int(decoder.config.vocab_size)
    width = min(block, 32)
    trunk, none = rows("trunk", 16, 1), rows("branch", 1, 1)
    prefix = rng.integers(0, vocab, (1, 11))
    outputs = run(prefix, start + np.arange(11)[None], trunk, none, causal(1, 11))
    trunk.append(outputs, np.array([11]))
    tokens = rng.integers(0, vocab, (1, width))
    positions = start + 11 + np.arange(width)[None]
    found = run(tokens, positions, trunk, none, np.zeros((1, width, width), np.float32))
    wanted = _reference(decoder, prefix[0], tokens[0], start)
    add("self draft over trunk", found["hidden"][0], wanted)

    branch, kept = rows("branch", 8, 3), np.array([1, 4, 2])
    more = rng.integers(0, vocab, (3, 4))
    places = np.broadcast_to(start + 11 + np.arange(4), (3, 4))
    branch.append(run(more, places, trunk, branch, causal(3, 4)), kept)
    tokens = rng.integers(0, vocab, (3, width))
    every, real = np.arange(width), np.array([width, max(2, width // 2), width])
    bias = np.empty((3, width, width), np.float32)
    bias[:] = np.where(every < real[:, None], np.float32(0.0), MASKED)[:, None]
    bias[:, every, every] = 0.0
    positions = start + 11 + kept[:, None] + np.minimum(every, real[:, None] - 1)
    found = run(tokens, positions, trunk, branch, bias)
    for i in range(3):
        path = np.concatenate([prefix[0], more[i, : kept[i]]])
        wanted = _reference(decoder, path, tokens[i, : real[i]], start)
        add("self draft over trunk and branch", found["hidden"][i, : real[i]], wanted)


def check_gated_markov(add: Add, target: Path, folder: Path, width: int) -> None:
    """What the host adds in slots read from random states, to a few candidates and to all tokens.

    Args:
        target: the checkpoint's folder; its file is read by safetensors itself.
        folder: the bundle's.
        width: d of the states.
    """
    tensors = load_file(target / MARKOV)
    w1, w2, gate = (tensors[name].float() for name in (*TABLES, GATE))
    rng, vocab = np.random.default_rng(5), len(w1)
    hidden = rng.standard_normal((3, width)).astype(np.float32)
    previous = rng.integers(0, vocab, (3, 5))
    gates = 1 + torch.from_numpy(hidden) @ gate.T
    expected = (gates[:, None] * w1[torch.from_numpy(previous)]) @ w2.T
    markov = Markov.load(folder / MARKOV, vocab, width)
    for candidates in (rng.integers(0, vocab, (3, 5, 16)), np.tile(np.arange(vocab), (3, 5, 1))):
        bias = markov.bias(previous, candidates, markov.gates(hidden))
        add("gated markov", bias, expected.gather(-1, torch.from_numpy(candidates)), True)


def _reference(decoder: PreTrainedModel, path: Ints, block: Ints, start: int) -> torch.Tensor:
    """Hidden states [W, d] of a block [W] behind a path [P] that starts at a position."""
    length, first = len(path) + len(block), len(path)
    least = torch.finfo(torch.float32).min
    bias = torch.zeros(length, length).masked_fill(~_seen(length, first), least)
    tokens = torch.from_numpy(np.concatenate([path, block]))[None]
    positions = torch.arange(start, start + length)[None]
    hidden: torch.Tensor = decoder(tokens, attention_mask=bias[None, None], position_ids=positions)[
        0
    ]
    return hidden[0, first:]


def _seen(length: int, first: int) -> torch.Tensor:
    """[length, length] bool: causal, and the rows from `first` on see each other."""
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    seen[first:, first:] = True
    return seen
