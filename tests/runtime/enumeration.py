"""Exact distributions of what the acceptance rules emit: all drafts, all uniforms, real code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from runtime.accept import CHAIN_RULES, TREE_RULES
from runtime.propose import Block
from runtime.sampling import one_hot
from runtime.tree import trie
from tests.runtime.symbolic import World, worlds

Array = np.ndarray[Any, Any]
Prefix = tuple[int, ...]


@dataclass
class Pair:
    """Random conditionals of a target and a drafter.

    Attributes:
        kind: `free`; `peaked`; `holes` (zeros of p where q has none, and the reverse); `allowed` (a
            set of two tokens at every other depth); `equal`; `apart` (no token in common);
            `certain` (both one-hot).
        fixed: token by depth, for scaffold.
        marginal: the drafter knows the depth alone, like a block drafter.
        bias: [V, V] what the token before adds to the drafter's logits, like a Markov head.
    """

    kind: str
    vocab: int
    seed: int
    fixed: dict[int, int] = field(default_factory=dict)
    marginal: bool = False
    bias: Array | None = None
    rows: dict[tuple[bool, Prefix], Array] = field(default_factory=dict)

    def target(self, prefix: Prefix) -> Array:
        return self._row(True, prefix)

    def drafter(self, prefix: Prefix) -> Array:
        row = self._row(False, (0,) * len(prefix) if self.marginal else prefix)
        if self.bias is None:
            return row
        row = row * np.exp(self.bias[prefix[-1] if prefix else 0])  # the anchor is token 0
        return np.asarray(row / row.sum())

    def _row(self, target: bool, prefix: Prefix) -> Array:
        if self.kind == "equal" and not self.marginal:
            target = True
        key = (target, prefix)
        if key not in self.rows:
            self.rows[key] = self._new_row(target, prefix)
        return self.rows[key]

    def _new_row(self, target: bool, prefix: Prefix) -> Array:
        depth, vocab = len(prefix), self.vocab
        if depth in self.fixed:
            return one_hot(np.asarray(self.fixed[depth]), vocab)
        rng = np.random.default_rng([self.seed, target, depth, *prefix])
        row = rng.dirichlet(np.full(vocab, 0.25 if self.kind == "peaked" else 1.0))
        if self.kind == "holes":
            row[rng.permutation(vocab)[: rng.integers(1, max(2, vocab - 1))]] = 0.0
        if self.kind == "allowed" and depth % 2 == 0:
            row[1:-1] = 0.0
        if self.kind == "apart":
            row[int(target) :: 2] = 0.0
        if self.kind == "certain":
            row = one_hot(rng.integers(vocab), vocab)
        return np.asarray(row / row.sum())


def prefix_of(block: Block, n: int, row: int) -> Prefix:
    """Tokens behind the anchor, down to a row."""
    prefix: Prefix = ()
    while row > 0:
        prefix = (int(block.tokens[n, row]), *prefix)
        row = row - 1 if block.parents is None else int(block.parents[n, row])
    return prefix


def targets(pair: Pair, block: Block) -> Array:
    """[N, W, V] the target's distribution behind each row; noise behind padding."""
    n, width = block.tokens.shape
    p = np.random.default_rng(0).dirichlet(np.ones(pair.vocab), (n, width))
    for i, row in zip(*np.nonzero(block.real), strict=True):
        p[i, row] = pair.target(prefix_of(block, i, row))
    return p


def block_of(pair: Pair, tokens: list[int], parents: list[int] | None, padding: int = 0) -> Block:
    """A block of one rollout from its rows, with q, and `padding` rows behind them."""
    size = len(tokens)
    above = list(range(-1, size - 1)) if parents is None else parents
    depth = [0]
    for row in range(1, size):
        depth.append(depth[above[row]] + 1)
    block = Block(
        tokens=np.asarray([tokens + [0] * padding]),
        positions=np.asarray([depth + [depth[-1]] * padding]),
        real=np.asarray([[True] * size + [False] * padding]),
        drafted=np.asarray([[False] + [True] * (size - 1) + [False] * padding]),
        parents=None if parents is None else np.asarray([parents + [-1] * padding]),
    )
    q = np.random.default_rng(1).dirichlet(np.ones(pair.vocab), block.tokens.shape)
    for row in range(1, size):
        q[0, row] = pair.drafter(prefix_of(block, 0, row)[:-1])
    block.q = q
    return block


Drafts = Iterator[tuple[float, Block]]


def chains(pair: Pair, depth: int, padding: int = 0) -> Drafts:
    """Every chain and its probability."""
    for tokens in product(range(pair.vocab), repeat=depth):
        weight = np.prod([pair.drafter(tokens[:i])[tokens[i]] for i in range(depth)])
        if weight > 0:
            yield float(weight), block_of(pair, [0, *tokens], None, padding)


def trees(pair: Pair, parents: list[int], padding: int = 0) -> Drafts:
    """Every filling of a tree's shape, siblings drawn without replacement in row order.

    Where a drafter has no token left for a row, the row and all below it are missing.
    """

    def fill(row: int, kept: list[int], tokens: list[int], above: list[int]) -> Drafts:
        if row == len(parents):
            yield 1.0, block_of(pair, tokens, above, padding)
            return
        parent = kept[parents[row]]
        left = np.zeros(pair.vocab)
        if parent >= 0:
            prefix = prefix_of(block_of(pair, tokens, above), 0, parent)
            left = pair.drafter(prefix).copy()
            left[[tokens[i] for i in range(len(tokens)) if above[i] == parent]] = 0.0
        if not left.any():
            yield from fill(row + 1, [*kept, -1], tokens, above)
        for token in np.flatnonzero(left):
            share = left[token] / left.sum()
            more = fill(row + 1, [*kept, len(tokens)], [*tokens, int(token)], [*above, parent])
            yield from ((share * weight, block) for weight, block in more)

    yield from fill(1, [0], [0], [-1])


def path_sets(pair: Pair, k: int, depth: int) -> Drafts:
    """Every set of k independent paths, as a trie."""
    single = [(w, prefix_of(block, 0, depth)) for w, block in chains(pair, depth)]
    for drawn in product(single, repeat=k):
        parents, tokens, rows = trie(np.asarray([path for _, path in drawn]))
        block = block_of(pair, [0, *tokens[1:].tolist()], parents.tolist())
        block.paths = rows[None]
        yield float(np.prod([w for w, _ in drawn])), block


def verdict(rule: str, block: Block, p: Array, world: World) -> tuple[int, Array]:
    """The rule's own verdict: last accepted row, distribution of the next token."""
    assert block.q is not None
    if block.parents is None:
        u = world.array(1, block.width, 1)[:, 1:, 0]
        args = (block.tokens[:, 1:], block.q[:, 1:], p, block.limit, u)
        accepted, after = CHAIN_RULES[rule](*args)
        return int(accepted[0]), after[0]
    u = world.array(block.width, 1 if block.paths is None else block.paths.shape[1])
    if rule == "traversal":
        u[0, 0] = u[0, 0] * (1 / world.factor)  # the root always stands
    return TREE_RULES[rule](block, 0, p[0], u)


Tamper = Callable[[Block, Array, int, Array], Array]  # block, p, row, after -> after


def emitted(
    rule: str, pair: Pair, drafts: Drafts, tamper: Tamper | None = None, factor: float = 1.0
) -> Iterator[tuple[float, int, Prefix]]:
    """Weight, accepted length and emitted tokens of everything a round may do."""
    for drafted, block in drafts:
        p = targets(pair, block)
        for world, (row, after) in worlds(lambda w, b=block, p=p: verdict(rule, b, p, w), factor):
            if tamper:
                after = tamper(block, p, row, after)
            assert (after >= 0).all()
            assert after.sum() > 0
            prefix = prefix_of(block, 0, row)
            weight = drafted * world.weight
            for token in np.flatnonzero(after):
                share = weight * after[token] / after.sum()
                yield share, len(prefix), (*prefix, int(token))


def distance(pair: Pair, pieces: Iterable[tuple[float, Prefix]], length: int) -> float:
    """Largest error of the joint of `length` tokens, the pieces completed by the target."""
    mass: dict[Prefix, float] = defaultdict(float)
    for weight, prefix in pieces:
        mass[prefix] += weight
    exact = {(): 1.0}
    for depth in range(length):
        exact = {
            (*prefix, token): weight * pair.target(prefix)[token]
            for prefix, weight in exact.items()
            for token in range(pair.vocab)
        }
        for prefix in [prefix for prefix in mass if 0 < len(prefix) == depth]:
            weight = mass.pop(prefix)
            for token in range(pair.vocab):
                mass[(*prefix, token)] += weight * pair.target(prefix)[token]
    assert all(len(prefix) == length for prefix in mass)
    return max(abs(mass[output] - weight) for output, weight in exact.items())


def judged(
    rule: str, pair: Pair, drafts: Drafts, length: int, **tampering: Any
) -> tuple[float, float]:
    """Largest error of a rule's output, and the expected accepted length."""
    everything = list(emitted(rule, pair, drafts, **tampering))
    expected = sum(weight * accepted for weight, accepted, _ in everything)
    return distance(pair, ((w, prefix) for w, _, prefix in everything), length), expected
