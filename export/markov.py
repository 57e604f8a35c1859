"""The Markov head's tables, which the host reads: a file of the bundle, not a graph.

What a token adds to the logits of the next slot is asked for one candidate at a time, between two
draws. A pass of an engine for each would take longer than all of the drafting.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import save

from export.checkpoint import Checkpoint, Floats
from export.draft_configs import BlockDrafterConfig
from runtime.files import sha256, write_atomic
from runtime.markov import GATE, MARKOV, TABLES


def save_markov(checkpoint: Checkpoint, config: BlockDrafterConfig, folder: Path) -> dict[str, str]:
    """Write the tables [V, r] as fp32; returns the file's SHA-256 by name, {} without a head."""
    if not config.markov_rank:
        return {}
    shape = config.vocab, config.markov_rank
    return _save({n: checkpoint.tensor(f"markov_head.{n}.weight", *shape) for n in TABLES}, folder)


def save_gated_markov(
    head: Checkpoint, vocab: int, rank: int, width: int, folder: Path
) -> dict[str, str]:
    """Write the tables [V, r] and the gate [r, d] of a target that drafts for itself, as fp32.

    Args:
        head: the file MARKOV beside the target's weights.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or holds numbers not finite.
    """
    tables = {name: head.tensor(name, vocab, rank) for name in TABLES}
    return _save(tables | {GATE: head.tensor(GATE, rank, width)}, folder)


def _save(tables: dict[str, Floats], folder: Path) -> dict[str, str]:
    write_atomic(folder / MARKOV, save(tables))
    return {MARKOV: sha256(folder / MARKOV)}
