"""Which rows of a verified block stand: the acceptance rules applied to all rollouts of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.draws import ACCEPT, LAST
from runtime.propose import Block
from runtime.sampling import draw
from runtime.settings import Accept
from runtime.tree import ancestors
from runtime.verify import Verdict as ChainVerdict
from runtime.verify import block_wise, match, token_wise
from runtime.verify_tree import Verdict as TreeVerdict
from runtime.verify_tree import k_seq, recursive_rejection, traversal

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = Callable[[Ints, int], Floats]  # see `runtime.draws.RoundDraws`


@dataclass(frozen=True)
class Accepted:
    """[N, W] rows that stand (a path from the anchor), and [N] the target's token behind it."""

    holds: Bools
    token: Ints

    @property
    def length(self) -> Ints:
        """[N] accepted rows behind the anchor."""
        return np.asarray(self.holds.sum(axis=1) - 1)


def by_choice(block: Block, choices: Ints) -> Accepted:
    """Follow the target's own choices [N, W] through the block: exact for any proposal."""
    if block.parents is None:
        accepted, token = match(block.tokens[:, 1:], choices, block.limit)
        return Accepted(_first(accepted, block.width), token)
    rollouts, row = np.arange(len(choices)), np.zeros(len(choices), np.int64)
    holds = np.zeros(block.tokens.shape, np.bool_)
    while True:
        holds[rollouts, row] = True
        token = choices[rollouts, row]
        child = (block.parents == row[:, None]) & (block.tokens == token[:, None]) & block.real
        goes_on = child.any(axis=1)
        if not goes_on.any():
            return Accepted(holds, token)
        row = np.where(goes_on, child.argmax(axis=1), row)


def by_rule(rule: Accept, block: Block, p: Floats, numbers: Numbers) -> Accepted:
    """Verify drafts that were drawn from `block.q` against the target's distributions.

    Args:
        p: [N, W, V] the target's processed distribution behind each row.
    """
    assert block.q is not None
    last = numbers(np.full(block.tokens.shape, LAST), ACCEPT)
    if block.parents is None:
        u = numbers(np.zeros(block.tokens.shape, np.int64), ACCEPT)[:, 1:]
        accepted, after = CHAIN_RULES[rule](block.tokens[:, 1:], block.q[:, 1:], p, block.limit, u)
        rows = accepted
        holds = _first(accepted, block.width)
    else:
        every_u = np.stack(
            [numbers(np.full(block.tokens.shape, i), ACCEPT) for i in range(_places(block))], -1
        )
        verdicts = [TREE_RULES[rule](block, n, p[n], every_u[n]) for n in range(len(block.tokens))]
        rows = np.asarray([row for row, _ in verdicts])
        after = np.stack([distribution for _, distribution in verdicts])
        holds = ancestors(block.parents)[np.arange(len(rows)), rows]
    return Accepted(holds, draw(after, last[np.arange(len(rows)), rows]))


CHAIN_RULES: dict[str, Callable[[Ints, Floats, Floats, Ints, Floats], ChainVerdict]] = {
    "token": token_wise,
    "block": block_wise,
    # what the rules for trees come to on a chain
    "rrs-wor": token_wise,
    "traversal": block_wise,
}


def _k_seq(block: Block, n: int, p: Floats, u: Floats) -> TreeVerdict:
    assert block.paths is not None
    assert block.q is not None
    paths = block.paths[n]
    depth_u = u[: paths.shape[1], : len(paths)].T
    return k_seq(paths, block.tokens[n], block.q[n], p, depth_u)


def _rrs(block: Block, n: int, p: Floats, u: Floats) -> TreeVerdict:
    assert block.paths is not None
    assert block.q is not None
    children: list[list[int]] = [[] for _ in range(block.width)]
    for path in block.paths[n]:
        for above, row in zip([0, *path], path, strict=False):
            if row >= 0:
                children[above].append(int(row))
    return recursive_rejection(children, block.tokens[n], block.q[n], p, u, replace=True)


def _rrs_without_replacement(block: Block, n: int, p: Floats, u: Floats) -> TreeVerdict:
    assert block.q is not None
    tree = _children(block, n)
    return recursive_rejection(tree, block.tokens[n], block.q[n], p, u, replace=False)


def _traversal(block: Block, n: int, p: Floats, u: Floats) -> TreeVerdict:
    assert block.q is not None
    return traversal(_children(block, n), block.tokens[n], block.q[n], p, u[:, 0])


TREE_RULES: dict[str, Callable[[Block, int, Floats, Floats], TreeVerdict]] = {
    "k-seq": _k_seq,
    "rrs": _rrs,
    "rrs-wor": _rrs_without_replacement,
    "traversal": _traversal,
}


def _children(block: Block, n: int) -> list[list[int]]:
    assert block.parents is not None
    children: list[list[int]] = [[] for _ in range(block.width)]
    for row in np.flatnonzero(block.real[n])[1:]:
        children[block.parents[n, row]].append(int(row))
    return children


def _places(block: Block) -> int:
    """Uniforms a row needs: one for each path that may go through it."""
    return 1 if block.paths is None else int(block.paths.shape[1])


def _first(accepted: Ints, width: int) -> Bools:
    return np.less_equal(np.arange(width), accepted[:, None])
