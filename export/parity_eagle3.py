"""Parity of an EAGLE-3 drafter's graphs with torch; see `export.parity`.

The reference runs torch over the rows of one path at a time, with no bias and no cache of ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from export.cache_rows import MASKED, CacheRows, Floats, Ints, causal, lineage
from export.parity_draft_head import Add, check_draft_head
from planners.nets.eagle3 import Eagle3
from runtime.bundle import GraphName
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine


def check_eagle3(
    add: Add,
    drafter: Eagle3,
    embed: nn.Module,
    paths: Ints,
    taps: Tensor,
    engines: Mapping[GraphName, OnnxEngine],
    start: int,
) -> None:
    """Verified rows in the trunk, then in the branch with rejected ones, then a tree of drafts.

    Args:
        embed: the target's embedding.
        paths: [2, 17] tokens from position `start` on, the first 9 alike; taps: [2, 17, K*d].
    """
    words = engines.get("draft_embed", engines["embed"])
    graph, rng = engines["draft"], np.random.default_rng(3)
    features = engines["fuse"].run({"taps": taps.numpy()}, {})["features"].copy()
    add("fuse", features, drafter.fuse(taps), True)
    trunk, branch = CacheRows(graph, "trunk", 16, 1), CacheRows(graph, "branch", 16, 2)

    def run(tokens: Ints, positions: Ints, feature: Array, new: Floats) -> dict[str, Array]:
        """Pass tokens [N, S] at positions counted from `start`, under the bias `new` [N, S, S]."""
        n, s = tokens.shape
        past = np.broadcast_to(branch.bias[:n, None], (n, s, branch.bias.shape[1]))
        outputs = graph.run(
            {
                "embeddings": words.run({"tokens": tokens.astype(np.int32)}, {})["embeddings"],
                "features": np.ascontiguousarray(feature, np.float32),
                "positions": np.ascontiguousarray(start + positions, np.int32),
                "trunk_bias": trunk.bias[0],
                "branch_bias": np.concatenate([past, new], -1),
                **trunk.arrays,
                **{name: np.ascontiguousarray(a[:, :n]) for name, a in branch.arrays.items()},
            },
            {},
        )
        return {name: array.copy() for name, array in outputs.items()}

    def compare(check: str, hidden: Array, tokens: Ints, feature: Array) -> None:
        """The last rows of one path: tokens [1 + S] whose rows have features [S, d]."""
        rows = torch.arange(1, len(tokens))
        expected, _ = drafter(
            drafter.embed(torch.from_numpy(tokens[None, 1:]), embed),
            torch.from_numpy(feature[None]),
            (start + rows)[None],
            (rows[:, None] >= rows)[None],
        )
        # not normed, so as large as the residual stream is
        add(check, hidden, expected[0, len(expected[0]) - len(hidden) :], True)

    first = run(paths[:1, 1:9], np.arange(1, 9)[None], features[:1, :8], causal(1, 8))
    compare("draft", first["hidden"][0], paths[0, :9], features[0, :8])
    trunk.append(first, np.array([8]))

    positions = np.broadcast_to(np.arange(9, 17), (2, 8))
    second = run(paths[:, 9:], positions, features[:, 8:16], causal(2, 8))
    for i in range(2):
        compare("draft over trunk", second["hidden"][i], paths[i], features[i, :16])
    kept = np.array([5, 8])
    branch.append(second, kept)

    # drafts read what stands for a feature: here any numbers
    parents = [-1, -1, 0, 0, 2, 1]
    lines = [lineage(parents, node) for node in range(len(parents))]
    tokens = rng.integers(0, drafter.config.vocab_size, (2, len(parents)))
    above = rng.standard_normal((2, len(parents), drafter.config.hidden_size)).astype(np.float32)
    new = np.full((2, len(parents), len(parents)), MASKED)
    for node, line in enumerate(lines):
        new[:, node, line] = 0.0
    positions = 8 + kept[:, None] + np.array([len(line) for line in lines])
    third = run(tokens, positions, above, new)
    for i in range(2):
        verified = 9 + kept[i]
        for node, line in enumerate(lines):
            path = np.concatenate([paths[i, :verified], tokens[i, line]])
            feature = np.concatenate([features[i, : verified - 1], above[i, line]])
            compare("draft tree", third["hidden"][i, node : node + 1], path, feature)

    own = drafter.logits(torch.from_numpy(third["hidden"]))
    vocab = drafter.config.vocab_size
    check_draft_head(add, engines["draft_head"], third["hidden"], own, drafter.tokens, vocab)
