"""Parity of a bundle's graphs with torch: the same weights, the same rows, hidden states compared.

The reference knows no cache and no bias of ours: a row is compared with the last row of torch's
pass over the whole token sequence that ends in it. A wrong bias, position, cache row, head order or
tap therefore shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch

from export.cache_rows import CacheRows, Ints
from export.checkpoint import Checkpoint
from export.configs import tap_rule, target_config
from export.differences import Differences
from export.draft_configs import Eagle3Config
from export.draft_options import drafter_config
from export.parity_block import check_block_drafter, check_markov
from export.parity_eagle3 import check_eagle3
from export.parity_self import check_gated_markov, check_self_drafting
from export.parity_target import check_head, check_pictures, check_target
from export.parity_vision import check_vision
from export.reference import Reference, target_pass
from export.self_draft import self_draft
from planners.nets.block_drafter import BlockDrafter
from planners.nets.drafters import load_drafter
from planners.nets.eagle3 import Eagle3, load_eagle3
from runtime.bundle import GraphName, VisionDims
from runtime.engines.onnx import OnnxEngine


def check_parity(
    target: Path,
    drafter: Path | None,
    graphs: Mapping[GraphName, Path],
    max_position: int,
    vision: VisionDims | None = None,
) -> dict[str, float]:
    """Compare every graph with torch on random tokens.

    Args:
        target, drafter: checkpoint folders.
        graphs: graph files by name.
        max_position: rows of the graphs' RoPE tables; the last ones are used.
        vision: the rig, if there is a vision graph.

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
        sizes = drafter_config(Checkpoint.open(drafter), config, source)
        taps = sizes.taps
        if isinstance(sizes, Eagle3Config):
            draft = load_eagle3(drafter, config.layers)
        else:
            draft = load_drafter(drafter)
    reference = Reference(target, config, taps)
    engines = {name: OnnxEngine(path, threads=1) for name, path in graphs.items()}
    found = Differences()
    far = max_position - 64
    with torch.inference_mode(), _torch_threads(config.width):
        check_target(found, reference, engines, config.vocab, far)
        check_head(found, reference, engines)
        if config.vlm:
            check_pictures(found, reference, engines, far)
        if vision:
            check_vision(found, source, vision, engines["vision"])
        if itself:
            check_self_drafting(
                found.add,
                reference.decoder,
                partial(target_pass, engines),
                partial(CacheRows, engines["target"]),
                itself.block_size,
                far,
            )
        if itself and itself.markov_rank:
            check_gated_markov(found.add, target, graphs["target"].parent, config.width)
        if draft:
            embed = reference.decoder.embed_tokens
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


def _random_taps(reference: Reference, vocab: int, start: int) -> tuple[Ints, torch.Tensor]:
    """Two paths [2, 17] whose first 9 tokens are the same, and the target's taps of them."""
    rng = np.random.default_rng(2)
    prefix, rest = rng.integers(0, vocab, (1, 9)), rng.integers(0, vocab, (2, 8))
    paths = np.hstack([np.repeat(prefix, 2, 0), rest])
    return paths, reference.run(paths, start)[1]
