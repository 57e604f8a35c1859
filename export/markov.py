"""The Markov head's two tables, which the host reads: a file of the bundle, not a graph.

What a token adds to the logits of the next slot is asked for one candidate at a time, between two
draws. A pass of an engine for each would take longer than all of the drafting.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.numpy import save

from export.checkpoint import Checkpoint
from export.draft_configs import BlockDrafterConfig
from runtime.files import sha256, write_atomic
from runtime.markov import TABLES

MARKOV = "markov.safetensors"


def save_markov(checkpoint: Checkpoint, config: BlockDrafterConfig, folder: Path) -> dict[str, str]:
    """Write the tables [V, r] as fp32; returns the file's SHA-256 by name, {} without a head."""
    if not config.markov_rank:
        return {}
    shape = config.vocab, config.markov_rank
    tables = {name: checkpoint.tensor(f"markov_head.{name}.weight", *shape) for name in TABLES}
    write_atomic(folder / MARKOV, save(tables))
    return {MARKOV: sha256(folder / MARKOV)}
