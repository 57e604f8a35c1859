"""Parity of a block drafter's graph and tables with torch; see `export.parity`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from export.cache_rows import MASKED, CacheRows, Ints
from export.parity_draft_head import Add, check_draft_head
from planners.nets.block_drafter import BlockDrafter
from runtime.bundle import GraphName
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine
from runtime.markov import MARKOV, Markov


def check_block_drafter(
    add: Add,
    drafter: BlockDrafter,
    embed: nn.Module,
    taps: Tensor,
    engines: Mapping[GraphName, OnnxEngine],
    start: int,
) -> None:
    """Context in the trunk, then in the branch with rejected rows, then new; the block last.

    Args:
        embed: the target's embedding.
        taps: [2, 17, K*d] at positions `start` on, those of the first 9 alike.
    """
    graph, config = engines["draft"], drafter.config
    drafted = np.random.default_rng(4).integers(0, config.vocab_size, (2, config.block_size))
    drafted[:, 1::2] = config.mask_token_id
    words = engines.get("draft_embed", engines["embed"])
    mask = config.vocab_size if config.mask_embedding else config.mask_token_id
    trunk_positions, branch_positions = np.zeros(16, np.int32), np.zeros((2, 8), np.int32)
    trunk, branch = CacheRows(graph, "trunk", 16, 1), CacheRows(graph, "branch", 8, 2)

    def run(rows: slice, context: Ints, tokens: Ints, valid: Ints) -> dict[str, Array]:
        """Hand over taps of some rows at context positions [N, C], and draft tokens [N, B]."""
        n, c = context.shape
        positions = context.max(1, keepdims=True) + 1 + np.arange(tokens.shape[1])
        past = np.broadcast_to(branch.bias[:n, None], (n, tokens.shape[1], 8))
        fresh = np.where(np.arange(c) < valid[:, None], np.float32(0), MASKED)[:, None]
        fresh = np.broadcast_to(fresh, (n, tokens.shape[1], c))
        among = np.zeros((n, tokens.shape[1], tokens.shape[1]), np.float32)
        read = np.where(tokens == config.mask_token_id, mask, tokens).astype(np.int32)
        places = {"trunk_positions": trunk_positions, "branch_positions": branch_positions[:n]}
        outputs = graph.run(
            {
                "block_embeddings": words.run({"tokens": read}, {})["embeddings"],
                "block_positions": np.ascontiguousarray(positions, np.int32),
                "taps": np.ascontiguousarray(taps[:n, rows].numpy()),
                "tap_positions": np.ascontiguousarray(context, np.int32),
                "trunk_bias": trunk.bias[0],
                "branch_bias": np.concatenate([past, fresh, among], -1),
                **{name: rows for name, rows in places.items() if name in graph.inputs},
                **trunk.arrays,
                **{name: np.ascontiguousarray(a[:, :n]) for name, a in branch.arrays.items()},
            },
            {},
        )
        return {name: array.copy() for name, array in outputs.items()}

    def compare(check: str, hidden: Array, upto: int, tokens: Ints) -> None:
        n, b = tokens.shape
        embedded = drafter.embed(torch.from_numpy(tokens), embed)
        context = torch.arange(start, start + upto)[None].expand(n, -1)
        positions = torch.arange(start + upto, start + upto + b)[None].expand(n, -1)
        expected = drafter(embedded, positions, taps[:n, :upto], context)
        add(check, hidden, expected, False)

    first = run(slice(0, 9), start + np.arange(9)[None], drafted[:1], np.array([9]))
    compare("draft", first["hidden"], 9, drafted[:1])
    trunk_positions[trunk.free[:9]] = start + np.arange(9)
    trunk.append(first, np.array([9]))
    both = np.broadcast_to(start + 9 + np.arange(5), (2, 5))
    second = run(slice(9, 14), both, drafted, np.array([5, 5]))
    compare("draft over trunk", second["hidden"], 14, drafted)
    branch_positions[:, branch.free[:5]] = start + 9 + np.arange(5)
    branch.append(second, np.array([5, 5]))
    both = np.broadcast_to(start + 14 + np.arange(3), (2, 3))
    third = run(slice(14, 17), both, drafted, np.array([3, 3]))
    compare("draft over trunk and branch", third["hidden"], 17, drafted)
    if "draft_head" in engines:
        own = drafter.logits(torch.from_numpy(third["hidden"]), nn.Identity())
        vocab = config.vocab_size
        check_draft_head(add, engines["draft_head"], third["hidden"], own, drafter.tokens, vocab)


def check_markov(add: Add, drafter: BlockDrafter, folder: Path) -> None:
    """What the host adds behind random tokens, to a few candidates of every slot."""
    if drafter.markov is None:
        return
    rng, vocab = np.random.default_rng(3), drafter.config.vocab_size
    previous = rng.integers(0, vocab, (3, 5))
    candidates = rng.integers(0, vocab, (3, 5, 16))
    expected = drafter.markov(torch.from_numpy(previous)).gather(-1, torch.from_numpy(candidates))
    bias = Markov.load(folder / MARKOV, vocab).bias(previous, candidates)
    add("markov", bias, expected, True)
