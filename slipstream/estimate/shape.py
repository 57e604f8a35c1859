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
class VisionShape:
    """A vision tower with the pictures of one rig.

    Attributes:
        blocks: layers.
        weights: elements of its matrices.
        operations: of one run over all pictures.
        rows: patches of all pictures together.
        widest: elements of the widest row.
    """

    blocks: int
    weights: int
    operations: float
    rows: int
    widest: int


@dataclass(frozen=True)
class Largest:
    """The largest passes that a bundle's engines are built for, whatever a frame needs.

    Attributes:
        prompt: rows of one rollout at once.
        rollouts, rows: of a block or tree of all rollouts.
    """

    prompt: int
    rollouts: int
    rows: int


@dataclass(frozen=True)
class ModelShape:
    """A target, its drafter, and the tables they share.

    Attributes:
        width, vocab: d and V; the head is a d x V matrix.
        block: rows of a drafted block, the anchor included (of a target that drafts for itself the
            values of a block of the schema); 1 without a drafter.
        draft: the target's own shape, the very same object, where it drafts for itself.
        trunk_rows, branch_rows: cache capacities.
        most_rollouts: that the model was made for.
        stored: bytes of the files, None for a named configuration.
        largest: passes of its engines; None: those of the frame.
        vision: of a target that looks through cameras.
    """

    name: str
    target: NetworkShape
    draft: NetworkShape | None
    width: int
    vocab: int
    block: int
    trunk_rows: int
    branch_rows: int
    most_rollouts: int
    stored: int | None = None
    largest: Largest | None = None
    vision: VisionShape | None = None

    @property
    def drafts_itself(self) -> bool:
        return self.draft is self.target

    @property
    def networks(self) -> list[NetworkShape]:
        """Those with weights and caches of their own."""
        own = None if self.drafts_itself else self.draft
        return [self.target, own] if own else [self.target]

    @property
    def table(self) -> int:
        """Elements of the head, and of the table that tokens are looked up in: two graphs, two
        tables, even of a checkpoint that ties them."""
        return self.width * self.vocab
