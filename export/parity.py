"""Parity of a bundle's graphs with torch: the same weights, the same rows, hidden states compared.

The reference knows no cache and no bias of ours: a row is compared with the last row of torch's
pass over the whole token sequence that ends in it. A wrong bias, position, cache row, head order or
tap therefore shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import ceil, floor, log10
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from export.cache_rows import MASKED, CacheRows, Floats, Ints, causal, lineage
from export.checkpoint import Checkpoint
from export.configs import tap_rule, target_config
from export.draft_configs import Eagle3Config, drafter_config
from export.parity_block import check_block_drafter, check_markov
from export.parity_eagle3 import check_eagle3
from export.parity_self import check_self_drafting
from export.self_draft import self_draft
from planners.nets.block_drafter import BlockDrafter
from planners.nets.drafters import load_drafter
from planners.nets.eagle3 import Eagle3, load_eagle3
from runtime.bundle import GraphName
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError

TOLERANCE = 1e-4  # of hidden states, absolute; of taps and logits relative to the largest


def check_parity(
    target: Path, drafter: Path | None, graphs: Mapping[GraphName, Path], max_position: int
) -> dict[str, float]:
    """Compare every graph with torch on random tokens.

    Args:
        target, drafter: checkpoint folders.
        graphs: graph files by name.
        max_position: rows of the graphs' RoPE tables; the last ones are used.

    Returns:
        The largest difference of each check, rounded up to one digit.

    Raises:
        SlipstreamError: a difference is above TOLERANCE.
    """
    source = Checkpoint.open(target)
    config = target_config(source)
    taps = tap_rule(config.layers)
    draft: BlockDrafter | Eagle3 | None = None
    itself = None if drafter else self_draft(source, config.vocab)
    if drafter:
        sizes = drafter_config(Checkpoint.open(drafter), config)
        taps = sizes.taps
        if isinstance(sizes, Eagle3Config):
            draft = load_eagle3(drafter, taps)
        else:
            draft = load_drafter(drafter)
    reference = _Reference(target, taps)
    engines = {name: OnnxEngine(path, threads=1) for name, path in graphs.items()}
    found = _Differences()
    far = max_position - 64
    with torch.inference_mode(), _torch_threads(config.width):
        _check_target(found, reference, engines, config.vocab, far)
        _check_head(found, reference, engines)
        if itself:
            check_self_drafting(
                found.add,
                reference.model,
                partial(_target_pass, engines),
                partial(CacheRows, engines["target"]),
                itself.block_size,
                far,
            )
        if draft:
            embed = reference.model.model.embed_tokens
            paths, drawn = _random_taps(reference, config.vocab, far)
            if isinstance(draft, Eagle3):
                check_eagle3(found.add, draft, embed, paths, drawn, engines, far)
            else:
                check_block_drafter(found.add, draft, embed, drawn, engines, far)
                check_markov(found.add, draft, graphs["draft"].parent)
    found.judge(target)
    return found.largest


@contextmanager
def _torch_threads(width: int) -> Iterator[None]:
    """One thread for small models, whose matrices don't pay for more."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if width >= 1024 else 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Differences:
    """The largest difference of each check so far."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def add(self, check: str, found: Array, expected: torch.Tensor, relative: bool = False) -> None:
        wanted = expected.numpy()
        assert found.shape == wanted.shape, (check, found.shape, wanted.shape)
        difference = float(np.abs(found - wanted).max())
        if relative:
            difference /= max(1.0, float(np.abs(wanted).max()))
        if not np.isfinite(difference):
            difference = np.inf
        self.largest[check] = max(self.largest.get(check, 0.0), _rounded_up(difference))

    def judge(self, folder: Path) -> None:
        bad = {name: value for name, value in self.largest.items() if value > TOLERANCE}
        if bad:
            raise SlipstreamError(
                f"the graphs of {folder} differ from torch; no bundle was written",
                expected=f"differences of at most {TOLERANCE:g}",
                found=", ".join(f"{name} {value:g}" for name, value in bad.items()),
                fix="check that config.json belongs to these weights; else report the checkpoint",
            )


def _rounded_up(value: float) -> float:
    """To one digit, so that the last bits of a sum don't change a bundle."""
    if value == 0.0 or not np.isfinite(value):
        return value
    digit = 10.0 ** floor(log10(value))
    return float(f"{ceil(value / digit) * digit:.0e}")


class _Reference:
    """transformers' own Qwen3 in fp32."""

    def __init__(self, folder: Path, taps: tuple[int, ...]) -> None:
        disable_progress_bar()
        self.model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.taps = taps

    def run(self, tokens: Ints, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens [N, S] at positions start.. -> hidden [N, S, d], taps [N, S, K*d]."""
        kept: dict[int, torch.Tensor] = {}
        hooks = [
            self.model.model.layers[tap].register_forward_hook(
                lambda _, __, out, tap=tap: kept.update(
                    {tap: out if torch.is_tensor(out) else out[0]}
                )
            )
            for tap in self.taps
        ]
        positions = torch.arange(start, start + tokens.shape[1])[None]
        hidden = self.model.model(torch.from_numpy(tokens), position_ids=positions)[0]
        for hook in hooks:
            hook.remove()
        return hidden, torch.cat([kept[tap] for tap in self.taps], -1)


def _target_pass(
    engines: Mapping[GraphName, OnnxEngine],
    tokens: Ints,
    positions: Ints,
    trunk: CacheRows,
    branch: CacheRows,
    new: Floats,
) -> dict[str, Array]:
    """One pass of the target graph; new [N, S, S] is the bias among the new rows."""
    n, s = tokens.shape
    feeds: dict[str, Array] = {"tokens": tokens.astype(np.int32)}
    embeddings = engines["embed"].run(feeds, {})["embeddings"]
    past = np.broadcast_to(branch.bias[:, None], (n, s, branch.bias.shape[1]))
    outputs = engines["target"].run(
        {
            "embeddings": embeddings,
            "positions": np.ascontiguousarray(positions, np.int32),
            "trunk_bias": trunk.bias[0],
            "branch_bias": np.concatenate([past, new], -1),
            **trunk.arrays,
            **branch.arrays,
        },
        {},
    )
    return {name: array.copy() for name, array in outputs.items()}


def _check_target(
    found: _Differences,
    reference: _Reference,
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
        outputs = _target_pass(engines, prefix, start + np.arange(20)[None], *empty, causal(1, 20))
        compare("prefill", outputs, prefix, start, 20)
    trunk.append(outputs, np.array([20]))

    # a chain of rollouts over the trunk; each keeps another number of rows
    tokens = rng.integers(0, vocab, (3, 6))
    branch = CacheRows(target, "branch", 16, 3)
    positions = np.broadcast_to(far + 20 + np.arange(6), (3, 6))
    outputs = _target_pass(engines, tokens, positions, trunk, branch, causal(3, 6))
    compare("chain", outputs, np.hstack([np.repeat(prefix, 3, 0), tokens]), far, 6)
    kept = np.array([2, 5, 3])
    branch.append(outputs, kept)

    # one more chain over trunk and branch, where rejected rows are masked
    new = rng.integers(0, vocab, (3, 4))
    positions = far + 20 + kept[:, None] + np.arange(4)
    outputs = _target_pass(engines, new, positions, trunk, branch, causal(3, 4))
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
    outputs = _target_pass(engines, nodes, positions, trunk, branch, bias)
    for i in range(3):
        for node, line in enumerate(lines):
            path = np.hstack([prefix[0], tokens[i, : kept[i]], nodes[i, line]])[None]
            row = {name: outputs[name][i : i + 1, node : node + 1] for name in ("hidden", "taps")}
            compare("tree", row, path, far, 1)


def _check_head(
    found: _Differences, reference: _Reference, engines: Mapping[GraphName, OnnxEngine]
) -> None:
    width = reference.model.config.hidden_size
    hidden = np.random.default_rng(1).standard_normal((2, 3, width), np.float32)
    outputs = engines["head"].run({"hidden": hidden}, {})
    logits = reference.model.lm_head(torch.from_numpy(hidden))
    chosen = torch.from_numpy(outputs["top_tokens"].astype(np.int64))
    found.add("head", outputs["top_logits"], logits.gather(-1, chosen), relative=True)
    found.add("logsumexp", outputs["logsumexp"], logits.logsumexp(-1), relative=True)
    best = logits.topk(chosen.shape[-1]).values
    found.add("top k", -np.sort(-outputs["top_logits"], -1), best, relative=True)


def _random_taps(reference: _Reference, vocab: int, start: int) -> tuple[Ints, torch.Tensor]:
    """Two paths [2, 17] whose first 9 tokens are the same, and the target's taps of them."""
    rng = np.random.default_rng(2)
    prefix, rest = rng.integers(0, vocab, (1, 9)), rng.integers(0, vocab, (2, 8))
    paths = np.hstack([np.repeat(prefix, 2, 0), rest])
    return paths, reference.run(paths, start)[1]
