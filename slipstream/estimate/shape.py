"""What a roofline needs to know of a model: how much each pass reads and multiplies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkShape:
    """One network: a target or a drafter, without embedding and head.

    Attributes:
        blocks: layers, of any kind.
        row_weights: elements of the matrices that every row is multiplied with.
        context_weights: elements that only a drafter's context rows are multiplied with.
        attention_layers: layers that keep keys and values.
        heads, kv_heads, head_dim: of those.
        state: elements of recurrent state that a rollout carries (linear attention), else 0.
        widest: elements of the widest row between two operations.
    """

    blocks: int
    row_weights: int
    context_weights: int
    attention_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    state: int
    widest: int

    @property
    def weights(self) -> int:
        return self.row_weights + self.context_weights

    @property
    def cache_row(self) -> int:
        """Elements of one cached row: keys and values of all layers."""
        return 2 * self.attention_layers * self.kv_heads * self.head_dim


@dataclass(frozen=True)
class ModelShape:
    """A target, its drafter, and the tables they share.

    Attributes:
        width, vocab: d and V; the head is a d x V matrix.
        tied: embedding and head are one table in memory.
        block: rows of a drafted block, the anchor included; 1 without a drafter.
        trunk_rows, branch_rows: cache capacities.
        most_rollouts: that the model was made for.
        stored: bytes of the files, None for a named configuration.
    """

    name: str
    target: NetworkShape
    draft: NetworkShape | None
    width: int
    vocab: int
    tied: bool
    block: int
    trunk_rows: int
    branch_rows: int
    most_rollouts: int
    stored: int | None = None

    @property
    def table(self) -> int:
        """Elements of the head."""
        return self.width * self.vocab
