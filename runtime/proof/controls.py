"""Planted faults, which a proof has to find, and what it takes to find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.accept import CHAIN_RULES, TREE_RULES
from runtime.cache import TwoPartCache
from runtime.drafter import BlockDrafter
from runtime.engines.device import Buffer
from runtime.graphs import Graphs
from runtime.marginals import Slots
from runtime.propose import Block
from runtime.self_drafter import SelfDrafter
from runtime.settings import Accept
from runtime.verify import Verdict as ChainVerdict
from runtime.verify_tree import Verdict as TreeVerdict

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ChainRule = Callable[[Ints, Floats, Floats, Ints, Floats], ChainVerdict]
TreeRule = Callable[[Block, int, Floats, Floats], TreeVerdict]

LENIENT = 0.9
BLUNT = 0.3  # of the drafter's logits


@contextmanager
def residual_dropped(rule: Accept) -> Iterator[None]:
    """After the first rejection the next token comes from the target's distribution itself.

    In a tree that means: no second child is judged, none against what the first one left over.
    """

    def chain(whole: ChainRule) -> ChainRule:
        def careless(drafts: Ints, q: Floats, p: Floats, limit: Ints, u: Floats) -> ChainVerdict:
            accepted, _ = whole(drafts, q, p, limit, u)
            return accepted, p[np.arange(len(p)), accepted]

        return careless

    def tree(whole: TreeRule) -> TreeRule:
        def careless(block: Block, n: int, p: Floats, u: Floats) -> TreeVerdict:
            row, _ = whole(_first_children(block, n), n, p, u)
            return row, p[row]

        return careless

    with _swapped(rule, chain, tree):
        yield


@contextmanager
def accepts_leniently(rule: Accept) -> Iterator[None]:
    """A draft stands if LENIENT * u q(x) < p(x)."""

    def chain(whole: ChainRule) -> ChainRule:
        return lambda drafts, q, p, limit, u: whole(drafts, q, p, limit, LENIENT * u)

    def tree(whole: TreeRule) -> TreeRule:
        return lambda block, n, p, u: whole(block, n, p, LENIENT * u)

    with _swapped(rule, chain, tree):
        yield


class ShiftedGraphs(Graphs):
    """Every target pass but the prefill sits one position too far.

    The prefill keeps its place: rotary attention would not see a shift of all passes alike.
    """

    def __init__(self, graphs: Graphs) -> None:
        self.__dict__.update(graphs.__dict__)

    def target(
        self,
        embeddings: Buffer,
        positions: Array,
        rows_bias: Array,
        cache: TwoPartCache,
        deepstack: Buffer | None = None,
    ) -> tuple[Buffer, Buffer]:
        shift = 1 if cache.trunk.used else 0
        return super().target(embeddings, positions + shift, rows_bias, cache, deepstack)


@contextmanager
def blunted() -> Iterator[None]:
    """Drafts are drawn from flatter distributions than the drafter's; no fault.

    The rules are exact whatever drafts are drawn from. Where a drafter agrees with its target
    everywhere, every rule looks right, and only worse drafts can tell.
    """
    drafting = (BlockDrafter, "marginals"), (SelfDrafter, "read")
    sharp = [getattr(drafter, name) for drafter, name in drafting]

    def flat(whole: Callable[..., Slots]) -> Callable[..., Slots]:
        def said(*given: Any) -> Slots:
            found = whole(*given)
            found.logits = BLUNT * found.logits
            return found

        return said

    for (drafter, name), whole in zip(drafting, sharp, strict=True):
        setattr(drafter, name, flat(whole))
    try:
        yield
    finally:
        for (drafter, name), whole in zip(drafting, sharp, strict=True):
            setattr(drafter, name, whole)


@contextmanager
def recorded(rule: Accept, calls: list[tuple[Floats, Floats]]) -> Iterator[None]:
    """Append the (q, p) of every round that a chain rule judges; no fault, a window."""

    def chain(whole: ChainRule) -> ChainRule:
        def watched(drafts: Ints, q: Floats, p: Floats, limit: Ints, u: Floats) -> ChainVerdict:
            calls.append((q.copy(), p.copy()))
            return whole(drafts, q, p, limit, u)

        return watched

    with _swapped(rule, chain, lambda whole: whole):
        yield


def _first_children(block: Block, n: int) -> Block:
    """Rollout n's tree without any node's second child."""
    if block.paths is not None:
        return replace(block, paths=block.paths[:, :1])
    assert block.parents is not None
    _, first = np.unique(block.parents[n], return_index=True)
    real = block.real.copy()
    real[n] &= np.isin(np.arange(block.width), [0, *first])
    return replace(block, real=real)


@contextmanager
def _swapped(
    rule: Accept,
    chain: Callable[[ChainRule], ChainRule],
    tree: Callable[[TreeRule], TreeRule],
) -> Iterator[None]:
    """Put a wrapped rule in the decode loop's tables, and the true ones back."""
    chains, trees = dict(CHAIN_RULES), dict(TREE_RULES)
    if rule in chains:
        CHAIN_RULES[rule] = chain(chains[rule])
    if rule in trees:
        TREE_RULES[rule] = tree(trees[rule])
    try:
        yield
    finally:
        CHAIN_RULES.update(chains)
        TREE_RULES.update(trees)
