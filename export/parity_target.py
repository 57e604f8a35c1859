"""Parity of the target's graphs: prefill, chains, rollouts, trees, pictures, and the head."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from export.cache_rows import MASKED, CacheRows, Ints, causal, lineage
from export.differences import Differences
from export.reference import Reference, target_pass
from runtime.bundle import GraphName
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine


def check_target(
    found: Differences,
    reference: Reference,
    engines: Mapping[GraphName, OnnxEngine],
    vocab: int,
    far: int,
) -> None:
    target, rng = engines["target"], np.random.default_rng(0)

    def compare(check: str, outputs: dict[str, Array], paths: Ints, start: int, rows: int) -> None:
        hidden, taps = reference.run(paths, start)
        found.add(check, outputs["hidden"], hidden[:, -rows:])
        found.add(f"{check} taps", outputs["taps"], taps[:, -rows:], relative=True)

    # prefill with empty caches, from position 0 and at the end of the RoPE table
    prefix = rng.integers(0, vocab, (1, 20))
    trunk = CacheRows(target, "trunk", 32, 1)
    for start in (0, far):
        empty = CacheRows(target, "trunk", 1, 1), CacheRows(target, "branch", 1, 1)
        outputs = target_pass(engines, prefix, start + np.arange(20)[None], *empty, causal(1, 20))
        compare("prefill", outputs, prefix, start, 20)
    trunk.append(outputs, np.array([20]))

    # a chain of rollouts over the trunk; each keeps another number of rows
    tokens = rng.integers(0, vocab, (3, 6))
    branch = CacheRows(target, "branch", 16, 3)
    positions = np.broadcast_to(far + 20 + np.arange(6), (3, 6))
    outputs = target_pass(engines, tokens, positions, trunk, branch, causal(3, 6))
    compare("chain", outputs, np.hstack([np.repeat(prefix, 3, 0), tokens]), far, 6)
    kept = np.array([2, 5, 3])
    branch.append(outputs, kept)

    # one more chain over trunk and branch, where rejected rows are masked
    new = rng.integers(0, vocab, (3, 4))
    positions = far + 20 + kept[:, None] + np.arange(4)
    outputs = target_pass(engines, new, positions, trunk, branch, causal(3, 4))
    for i in range(3):
        path = np.hstack([prefix[0], tokens[i, : kept[i]], new[i]])[None]
        one = {name: outputs[name][i : i + 1] for name in ("hidden", "taps")}
        compare("rollouts", one, path, far, 4)

    # a token tree in each rollout under its ancestor bias
    parents = [-1, 0, 0, 1, 1, 2, 3, 6, 0]
    nodes = rng.integers(0, vocab, (3, len(parents)))
    lines = [lineage(parents, node) for node in range(len(parents))]
    bias = np.full((3, len(parents), len(parents)), MASKED)
    for node, line in enumerate(lines):
        bias[:, node, line] = 0.0
    depth = np.array([len(line) - 1 for line in lines])
    positions = far + 20 + kept[:, None] + depth
    outputs = target_pass(engines, nodes, positions, trunk, branch, bias)
    for i in range(3):
        for node, line in enumerate(lines):
            path = np.hstack([prefix[0], tokens[i, : kept[i]], nodes[i, line]])[None]
            row = {name: outputs[name][i : i + 1, node : node + 1] for name in ("hidden", "taps")}
            compare("tree", row, path, far, 1)


def check_head(
    found: Differences, reference: Reference, engines: Mapping[GraphName, OnnxEngine]
) -> None:
    width = reference.config.width
    hidden = np.random.default_rng(1).standard_normal((2, 3, width), np.float32)
    outputs = engines["head"].run({"hidden": hidden}, {})
    logits = reference.model.lm_head(torch.from_numpy(hidden))
    chosen = torch.from_numpy(outputs["top_tokens"].astype(np.int64))
    found.add("head", outputs["top_logits"], logits.gather(-1, chosen), relative=True)
    found.add("logsumexp", outputs["logsumexp"], logits.logsumexp(-1), relative=True)
    best = logits.topk(chosen.shape[-1]).values
    found.add("top k", -np.sort(-outputs["top_logits"], -1), best, relative=True)


def check_pictures(
    found: Differences, reference: Reference, engines: Mapping[GraphName, OnnxEngine], far: int
) -> None:
    """A VLM's prompt: rows at other times, heights and widths, with features of pictures added.

    What follows the prompt is text, as in every output; it stands over the prompt's cache.
    """
    config, rng = reference.config, np.random.default_rng(3)
    tokens = rng.integers(0, config.vocab, (1, 24))
    positions = np.sort(rng.integers(0, far, (3, 1, 24)), -1)
    positions[1:, :, 5:20] = rng.integers(0, 40, (2, 1, 15)) + positions[0, :, 5:6]
    positions[:, :, 20:] = positions.max() + np.arange(1, 5)
    deep, width = config.deepstack, config.width
    features = rng.standard_normal((deep, 1, 24, width), np.float32) if deep else None
    if features is not None:
        features[:, :, :5] = features[:, :, 20:] = 0.0  # text has none
    hidden, taps = reference.run(
        tokens, positions, None if features is None else torch.from_numpy(features)
    )
    target = engines["target"]
    trunk, empty = CacheRows(target, "trunk", 32, 1), CacheRows(target, "branch", 1, 1)
    nothing = CacheRows(target, "trunk", 1, 1)
    rows = None if features is None else np.concatenate(list(features), -1)
    prompt = slice(0, 20)
    outputs = target_pass(
        engines,
        tokens[:, prompt],
        positions[..., prompt],
        nothing,
        empty,
        causal(1, 20),
        None if rows is None else np.ascontiguousarray(rows[:, prompt]),
    )
    found.add("pictures", outputs["hidden"], hidden[:, prompt])
    found.add("pictures taps", outputs["taps"], taps[:, prompt], relative=True)
    trunk.append(outputs, np.array([20]))
    rest = slice(20, 24)
    outputs = target_pass(
        engines, tokens[:, rest], positions[..., rest], trunk, empty, causal(1, 4)
    )
    found.add("behind pictures", outputs["hidden"], hidden[:, rest])
    found.add("behind pictures taps", outputs["taps"], taps[:, rest], relative=True)
