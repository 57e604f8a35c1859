"""Blocks with a Markov head, and a drafter by its definition that they are held against."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from runtime.marginals import Marginals
from runtime.markov import Markov
from runtime.propose import Block
from runtime.race import Race
from runtime.sampling import distribution, one_hot
from runtime.scaffold import VALUE
from runtime.settings import Sampling

FEW = settings(max_examples=60, deadline=None)
VOCAB = 5
HOT = st.sampled_from([Sampling(1.0), Sampling(0.7, 2), Sampling(1.3, 0, 0.6)])


@st.composite
def cases(draw) -> tuple[Marginals, np.random.Generator]:
    """Blocks of a few rollouts with known tokens, tokens that are not allowed, and padding."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, w = draw(st.integers(1, 3)), draw(st.integers(2, 5))
    tokens = rng.integers(0, VOCAB, (n, w))
    limit = rng.integers(1, w, n)
    real = np.arange(w) <= limit[:, None]
    drafted = real & (rng.random((n, w)) < 0.7)
    drafted[:, 0], drafted[0, 1] = False, True
    positions = 4 + np.minimum(np.arange(w), limit[:, None])
    block = Block(np.where(drafted, VALUE, tokens), positions, real, drafted)
    logits = rng.normal(size=(int(drafted.sum()), VOCAB)).astype(np.float32) * 2
    forbidden = rng.random(logits.shape) < 0.25
    forbidden[:, 1] &= forbidden.sum(axis=1) < VOCAB
    logits[forbidden] = -np.inf
    w1, w2 = rng.normal(size=(2, VOCAB, 3)).astype(np.float32)
    if not draw(st.booleans()):
        return Marginals(block, logits, Markov(w1, w2)), rng
    head = Markov(w1, w2, rng.normal(size=(3, 4)).astype(np.float32))
    hidden = rng.normal(size=(len(logits), 4)).astype(np.float32)
    return Marginals(block, logits, head, head.gates(hidden)), rng


class Reference:
    """The drafter by its definition: q(x | previous) ~ exp(logits_k + W2 (g_k * W1[previous]))."""

    def __init__(self, marginals: Marginals, sampling: Sampling, race: Race | None = None):
        self.known, self.sampling, self.race = copied(marginals.block), sampling, race
        head = marginals.markov
        assert head is not None
        self.w1, self.w2 = (table.astype(np.float64) for table in (head._w1, head._w2))
        self.logits = np.full((*self.known.tokens.shape, VOCAB), np.nan)
        self.logits[self.known.drafted] = marginals.logits
        self.gates = np.ones((*self.known.tokens.shape, self.w1.shape[1]))
        if marginals.gates is not None:
            self.gates[self.known.drafted] = marginals.gates

    def scores(self, n: int, depth: int, previous: int) -> np.ndarray:
        scores = self.logits[n, depth] + self.w2 @ (self.gates[n, depth] * self.w1[previous])
        return np.asarray(scores)

    @cache  # noqa: B019 - a reference lives for one example
    def q(self, n: int, depth: int, previous: int) -> np.ndarray:
        if not self.known.drafted[n, depth]:
            return one_hot(self.known.tokens[n, depth], VOCAB)
        q = distribution(self.scores(n, depth, previous), self.sampling)
        return q if self.race is None else self.race[n, depth].foreseen(q)

    def likelihood(self, n: int, prefix: tuple[int, ...]) -> float:
        path = (int(self.known.tokens[n, 0]), *prefix)
        steps = zip(path, prefix, strict=False)
        return float(np.prod([self.q(n, k, x)[y] for k, (x, y) in enumerate(steps, 1)]))


def copied(block: Block) -> Block:
    return Block(*(x.copy() for x in (block.tokens, block.positions, block.real, block.drafted)))


def check_q(block: Block, reference: Reference) -> None:
    """Every row's q is its distribution behind its parent's token, and gives the token some."""
    assert block.q is not None
    for n, row in zip(*np.nonzero(block.real), strict=True):
        if row:
            previous = int(block.tokens[n, block.above[n, row]])
            q = reference.q(n, int(block.depth[n, row]), previous)
            np.testing.assert_allclose(block.q[n, row], q, atol=1e-6)
            assert block.q[n, row, block.tokens[n, row]] > 0
