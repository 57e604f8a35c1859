"""Trees of a stepwise drafter: the dynamic tree of the likeliest paths, and one of drawn tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.propose import Block
from runtime.sampling import distribution, draw, one_hot
from runtime.script import Script
from runtime.settings import Sampling
from runtime.step_drafter import Walk
from runtime.step_shapes import Route
from runtime.tree import Nodes, best_first

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIBLINGS = 8  # most drawn children of a node
# chance that a drawn first child falls, and that a younger one stands when the elder have fallen;
# constants, since a shape that looked at drawn tokens would tell of those still to be judged
FALLS, LATER = 0.25, 0.4


@dataclass(frozen=True)
class _Level:
    """Candidates of one depth: C of each rollout, and with each the fixed tokens behind it.

    Attributes:
        score: [N, C] log probability of the path.
        token: [N, C]
        under: [C] which node at the front each follows.
        front: [N, F] candidates of the level above that are at the front.
    """

    score: Floats
    token: Ints
    under: Ints
    front: Ints


@dataclass(frozen=True)
class Grown:
    """A tree's nodes, best first; their rows are counted from 1, the anchor's is 0.

    Attributes:
        token, parents, depth, score: [N, n]; score is -inf and the parent -1 for padding.
    """

    token: Ints
    parents: Ints
    depth: Ints
    score: Floats

    @property
    def most(self) -> int:
        """The most real nodes of any rollout."""
        return int(np.isfinite(self.score).sum(axis=1).max())

    def block(self, way: Route, script: Script, width: int) -> Block:
        """The `width` - 1 best nodes behind the anchor."""
        known = way.block
        tokens, positions = (
            np.repeat(x[:, :1], width, axis=1) for x in (known.tokens, known.positions)
        )
        parents = np.full_like(tokens, -1)
        parents[:, 1:] = self.parents[:, : width - 1]
        real = parents >= 0
        real[:, 0] = True
        tokens[:, 1:] = np.where(real[:, 1:], self.token[:, : width - 1], tokens[:, 1:])
        positions[:, 1:] += np.where(real[:, 1:], self.depth[:, : width - 1], 0)
        drafted = real & ~script.fixed[positions]
        drafted[:, 0] = False
        return Block(tokens, positions, real, drafted, parents, draft_width=known.draft_width)


def grow(
    walk: Walk,
    way: Route,
    script: Script,
    law_of: Callable[[Array], Floats],
    front: int,
    budget: int,
    go_on: Callable[[Floats, int], bool],
) -> Grown:
    """The dynamic tree of EAGLE-2 (arXiv 2406.16858, section 4), which EAGLE-3 drafts too.

    At each depth the `front` likeliest paths are passed and get `front` children each; of all
    candidates the `budget` likeliest nodes stay. A path's likelihood is the product of its drafts'.

    Args:
        law_of: processed distributions [N, F, V] of restricted logits.
        go_on: whether another pass pays: the likelihoods [N, F] at the front, and its depth.
    """
    n = len(way.places)
    levels: list[_Level] = []
    score, picked = np.zeros((n, 1)), np.zeros((n, 1), np.int64)
    for i in range(way.depth):
        if i:
            last = levels[-1]
            picked = np.argsort(-last.score, axis=1, kind="stable")[:, :front]
            score = np.take_along_axis(last.score, picked, axis=1)
            if not go_on(np.exp(score), i):
                break
            walk.step(np.take_along_axis(last.token, picked, axis=1), last.under[picked])
        law = law_of(walk.logits())
        likeliest = np.argsort(-law, axis=-1, kind="stable")[..., :front]
        with np.errstate(divide="ignore"):
            each = score[..., None] + np.log(np.take_along_axis(law, likeliest, axis=-1))
        each[~way.open[:, i]] = -np.inf
        under = np.repeat(np.arange(each.shape[1]), each.shape[2])
        levels.append(_Level(each.reshape(n, -1), likeliest.reshape(n, -1), under, picked))
    return _best_of(levels, way, script, budget)


def _best_of(levels: list[_Level], way: Route, script: Script, budget: int) -> Grown:
    """The best nodes of all levels. Fixed tokens are as likely as the draft in front of them."""
    start = way.block.positions[:, :1]
    n = len(start)
    length = np.minimum(way.places[:, 0], way.block.positions.max(axis=1) + 1) - start[:, 0] - 1
    known = np.arange(max(0, int(length.max())))
    scores = [np.where(known < length[:, None], 0.0, -np.inf)]
    depths = [np.tile(known + 1, (n, 1))]
    tokens = [script.tokens[np.minimum(start + depths[0], len(script) - 1)]]
    parents = [np.tile(known - 1, (n, 1))]  # place in the row of all nodes; -1 is the anchor
    tail, base = np.maximum(length, 0)[:, None] - 1, len(known)  # each candidate's last node
    for i, level in enumerate(levels):
        unit, lengths = int(way.units[i]), (way.ends - way.places)[:, i]
        c, rows = level.score.shape[1], np.arange(unit)
        positions = way.places[:, i, None] + rows
        there = rows < lengths[:, None]
        scores.append(
            np.where(there[:, None], level.score[..., None], -np.inf).reshape(n, c * unit)
        )
        depths.append(np.tile(positions - start, (1, c)))
        fixed = script.tokens[np.minimum(positions, len(script) - 1)]
        token = np.repeat(fixed[:, None], c, axis=1)
        token[..., 0] = level.token
        tokens.append(token.reshape(n, c * unit))
        above = np.tile(base + np.arange(c * unit) - 1, (n, 1)).reshape(n, c, unit)
        above[..., 0] = np.take_along_axis(tail, level.front[:, level.under], axis=1)
        parents.append(above.reshape(n, c * unit))
        tail = base + np.arange(c) * unit + np.maximum(lengths, 1)[:, None] - 1
        base += c * unit
    score, depth, token, above = (np.concatenate(x, 1) for x in (scores, depths, tokens, parents))
    # stable and level by level: of equals the parent comes first
    chosen = np.argsort(-score, axis=1, kind="stable")[:, :budget]
    row_of = np.zeros((n, base + 1), np.int64)  # the last is the anchor's
    np.put_along_axis(row_of, chosen, np.arange(1, chosen.shape[1] + 1)[None], axis=1)
    best = np.take_along_axis(score, chosen, axis=1)
    upper = np.take_along_axis(row_of, np.take_along_axis(above, chosen, axis=1), axis=1)
    return Grown(
        np.take_along_axis(token, chosen, axis=1),
        np.where(np.isfinite(best), upper, -1),
        np.take_along_axis(depth, chosen, axis=1),
        best,
    )


def drawn_shape(way: Route, budget: int) -> Nodes:
    """The best shape for drawn tokens, by how likely each child of a node is the one to stand.

    It looks at places alone: a shape that depends on drawn tokens would tell the traversal of
    tokens that it has yet to judge.
    """
    block = way.block
    ranks = min(budget, SIBLINGS)
    chances = np.full((*block.tokens[:, 1:].shape, ranks), -np.inf)
    chances[block.real[:, 1:] & ~block.drafted[:, 1:], 0] = 0.0
    younger = FALLS * LATER * (1.0 - LATER) ** np.arange(ranks - 1)
    chances[block.drafted[:, 1:]] = np.log(np.concatenate([[1.0 - FALLS], younger]))
    return best_first(chances, budget)


def drawn_tree(
    walk: Walk, way: Route, script: Script, nodes: Nodes, sampling: Sampling, u: Floats
) -> Block:
    """A tree whose siblings are drawn without replacement, in row order.

    Args:
        nodes: the shape; u: [N, 1 + nodes] uniforms, one a row.
    """
    n, width = u.shape
    every = np.arange(n)[:, None]
    shape = Grown(np.zeros_like(nodes.parents), nodes.parents, nodes.depth, nodes.score)
    block = shape.block(way, script, width)
    assert block.parents is not None
    fixed = block.real & ~block.drafted
    fixed[:, 0] = False
    block.tokens[fixed] = script.tokens[block.positions[fixed]]
    block.q = one_hot(block.tokens, script.scaffold.vocab)
    rank = np.pad(nodes.rank[:, : width - 1], ((0, 0), (1, 0)))
    slot = np.zeros((n, width), np.int64)  # at the front, of the draft that each row is behind
    for i in range(way.depth):
        here = block.real & (block.positions == way.places[:, i, None]) & way.open[:, i, None]
        if not here.any():
            break
        law = distribution(walk.logits(), sampling)
        block.q[here] = law[np.nonzero(here)[0], slot[every, block.parents][here]]
        _draw_siblings(block, here & block.drafted, rank, u)
        here &= block.real
        parents = slot[every, block.parents]
        order = np.argsort(~here, axis=1, kind="stable")[:, : max(1, int(here.sum(axis=1).max()))]
        place = np.zeros((n, width), np.int64)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None], axis=1)
        slot = np.where(here, place, slot)
        for row in range(1, width):  # fixed tokens are behind the draft that they follow
            own = here[:, row] | (block.positions[:, row] <= way.places[:, i])
            above = slot[np.arange(n), block.parents[:, row]]
            slot[:, row] = np.where(own, slot[:, row], above)
        if i + 1 < way.depth:
            walk.step(
                np.take_along_axis(block.tokens, order, axis=1),
                np.take_along_axis(np.where(here, parents, 0), order, axis=1),
            )
    return block


def _draw_siblings(block: Block, here: NDArray[np.bool_], rank: Ints, u: Floats) -> None:
    """Draw the rows `here` [N, W], elder siblings first; a row without a token left is no row."""
    assert block.parents is not None
    assert block.q is not None
    drawn = np.zeros((*rank.shape, int(rank.max()) + 1), np.int64)  # by parent and rank
    for nth in range(int(rank[here].max(initial=0)) + 1):
        at = np.nonzero(here & (rank == nth))
        left = block.q[at].copy()
        for elder in range(nth):
            left[np.arange(len(left)), drawn[at[0], block.parents[at], elder]] = 0.0
        some = left.sum(axis=1) > 0
        _cut(block, at[0][~some], at[1][~some])
        at = at[0][some], at[1][some]
        block.tokens[at] = draw(left[some], u[at])
        drawn[at[0], block.parents[at], nth] = block.tokens[at]


def _cut(block: Block, rollouts: Ints, rows: Ints) -> None:
    """Take rows out of a tree, and all rows below them."""
    assert block.parents is not None
    for n, row in zip(rollouts, rows, strict=True):
        gone = np.zeros(block.width, np.bool_)
        gone[row] = True
        for below in range(row + 1, block.width):
            gone[below] = block.parents[n, below] >= 0 and gone[block.parents[n, below]]
        block.real[n, gone] = block.drafted[n, gone] = False
        block.parents[n, gone] = -1
