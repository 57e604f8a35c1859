"""Where a stepwise drafter's round leads, and its chains: one, or several independent ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.propose import Block, Until, known_block, pad_with_anchor
from runtime.race import Race, drawn
from runtime.sampling import distribution, draw, one_hot
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.step_drafter import StepDrafter, Walk

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Route:
    """Where a round's drafts stand.

    Attributes:
        block: every row of a chain with these drafts, VALUE where one is still to be drafted.
        places: [N, D] positions that take a draft; ends: [N, D] behind the rows that are passed
            with each: its own, and fixed tokens that come with it.
        open: [N, D] whether the place may be drafted.
    """

    block: Block
    places: Ints
    ends: Ints
    open: Bools

    @property
    def depth(self) -> int:
        """Places that some rollout drafts."""
        return int(self.open.any(axis=0).sum())

    @property
    def rows(self) -> Ints:
        """[N, D] row of each place in the chain; inside of the block where it is open."""
        rows = self.places - self.block.positions[:, :1]
        return np.asarray(np.minimum(rows, self.block.width - 1))

    @property
    def units(self) -> Ints:
        """[D] the most rows that a step over each place passes."""
        return np.asarray(np.maximum(self.ends - self.places, 1).max(axis=0))


def route(
    drafter: StepDrafter, rollouts: Rollouts, script: Script, depth: int, until: Until
) -> Route:
    """The next `depth` drafts of every rollout, before position `until`."""
    at, places = rollouts.start, []
    for _ in range(depth):
        at = drafter.next_place(script, np.minimum(at, len(script) - 1))
        places.append(at)
    steps = np.stack(places, axis=1)
    column = np.reshape(until, (-1, 1))
    open_ = steps <= column - 2
    inside = np.minimum(steps, len(script) - 1)
    # a chain ends behind the fixed tokens that follow its last draft
    known = script.next_value[np.concatenate([rollouts.start[:, None], inside], axis=1)]
    reached = np.maximum(known[:, 0], np.where(open_, known[:, 1:], 0).max(axis=1))
    stop = np.maximum(np.minimum(reached, until - 1), rollouts.start + 1)
    block = known_block(rollouts, script, int((stop - rollouts.start).max()), until)
    block.real &= rollouts.start[:, None] + np.arange(block.width) < stop[:, None]
    block.drafted &= block.real
    block.draft_width = drafter.dims.block  # a draft does not depend on how many follow it
    ends = np.minimum(drafter.next_place(script, inside), column - 1)
    return Route(block, steps, ends, open_)


def chain(
    walk: Walk,
    way: Route,
    sampling: Sampling,
    numbers: Floats | Race | None,
    want_q: bool,
    vocab: int,
) -> Block:
    """The likeliest token at every place, or a draw, each given those before it.

    Args:
        numbers: [N, W] uniforms, or the target's own race; None for the likeliest.
        want_q: keep the distributions that the drafts were drawn from.
    """
    block, n = way.block, np.arange(len(way.places))
    laws: list[Floats] = []
    tokens = np.zeros(len(n), np.int64)
    for i in range(way.depth):
        if i:
            walk.step(tokens[:, None], np.zeros((len(n), 1), np.int64))
        logits, rows = walk.logits()[:, 0], way.rows[:, i]
        if numbers is None:
            tokens = logits.argmax(axis=-1)
        else:
            laws.append(distribution(logits, sampling))
            tokens = drawn(laws[-1], numbers[n, rows])
        on = way.open[:, i]
        block.tokens[n[on], rows[on]] = tokens[on]
    pad_with_anchor(block)
    if want_q and laws:
        block.q = one_hot(block.tokens, vocab)
        for i, law in enumerate(laws):
            on = way.open[:, i]
            block.q[n[on], way.rows[on, i]] = law[on]
    return block


def paths(
    walk: Walk, way: Route, k: int, sampling: Sampling, u: Floats, vocab: int
) -> tuple[Ints, Floats]:
    """k independent chains: tokens [N, k, W] and what each was drawn from [N, k, W, V].

    Args:
        u: [N, W, k] uniforms.
    """
    block, n = way.block, np.arange(len(way.places))
    drawn = np.repeat(np.maximum(block.tokens, 0)[:, None], k, axis=1)
    q = one_hot(drawn, vocab)
    front, tokens = np.zeros((len(n), k), np.int64), np.zeros((len(n), k), np.int64)
    for i in range(way.depth):
        if i:
            walk.step(tokens, front)
            front = np.tile(np.arange(k), (len(n), 1))
        law = np.take_along_axis(distribution(walk.logits(), sampling), front[..., None], axis=1)
        on, rows = way.open[:, i], way.rows[:, i]
        tokens = draw(law, u[n, rows])
        drawn[n[on], :, rows[on]] = tokens[on]
        q[n[on], :, rows[on]] = law[on]
    return drawn, q
