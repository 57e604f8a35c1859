"""Proposals of a stepwise drafter: how deep, whether drafted at all, and in which shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.best_tree import LIKELIEST
from runtime.draws import DRAFT, Draws
from runtime.propose import Block, Until, scaffold_run
from runtime.sampling import distribution
from runtime.schema import Reach
from runtime.script import Rollouts, Script
from runtime.settings import BY_SCHEMA, DecodeSettings, Sampling
from runtime.shapes import merged_paths
from runtime.step_drafter import StepDrafter, Walk
from runtime.step_gate import StepGate
from runtime.step_shapes import Route, chain, paths, route
from runtime.step_tree import drawn_shape, drawn_tree, grow
from runtime.telemetry import FrameStats
from runtime.trial import ARMS, Arm

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWN = ("rrs-wor", "traversal")  # rules for trees of drawn tokens
FRONT = 8  # paths of a dynamic tree that are passed at each depth; EAGLE-3's code has 10


@dataclass
class StepProposer:
    """Proposes a frame's blocks; the counterpart of `Proposer` for a drafter that goes by steps.

    Attributes:
        gate: None without a measured cost curve: then a round drafts as deep as the drafter can.
        most_nodes: of a tree, so that a few rounds fit a branch of the cache.
    """

    settings: DecodeSettings
    script: Script
    drafter: StepDrafter
    gate: StepGate | None
    draws: Draws
    stats: FrameStats
    most_nodes: int
    arm: Arm = field(init=False)  # the gate's word on the present stretch
    reach: Reach = field(init=False)

    def __post_init__(self) -> None:
        self.arm = ARMS[self.settings.method][0]
        self.reach = Reach.of(self.settings, self.script, self.drafter.dims)

    def propose(self, rollouts: Rollouts, until: int, sampling: Sampling) -> Block:
        """The next block of every rollout, for tokens before position `until`."""
        reached = self.reach(rollouts, until)
        way = self._route(self._depth(rollouts, reached, sampling), rollouts, reached)
        if way is None:
            return scaffold_run(rollouts, self.script, until)
        room = int(self._aside(way)[: way.depth - 1].sum())
        walk = Walk(self.drafter, rollouts, self.script, way.ends, room, self.stats)
        block = self._shaped(walk, way, rollouts, sampling)
        walk.close()
        return block

    @property
    def _tree(self) -> bool:
        return self.settings.method == "ddtree" and self.arm == "tree"

    @property
    def _front(self) -> int:
        """Nodes that a step passes at most."""
        if self.settings.method == "spectr":
            return self.settings.paths
        if not self._tree:
            return 1
        return min(FRONT, self.settings.nodes or self.most_nodes)

    def _depth(self, rollouts: Rollouts, until: Until, sampling: Sampling) -> int:
        given = None if self.settings.method in BY_SCHEMA else self.settings.block
        most = (given or self.drafter.dims.block) - 1
        if self.arm == "plain":
            return 0
        sampled = sampling.temperature > 0
        grows = self._tree and not (sampled and self.settings.rule in DRAWN)
        if self.settings.block or self.gate is None or self.arm == "whole":
            return most
        if grows:  # a tree that grows stops by itself
            return most
        tree = self.arm == "tree"
        return self.gate.depth(
            self.drafter, rollouts, self.script, until, sampled, tree, self._front
        )

    def _route(self, depth: int, rollouts: Rollouts, until: Until) -> Route | None:
        """Up to `depth` drafts, as the drafter's cache has room for; None where there are none."""
        while depth > 0:
            way = route(self.drafter, rollouts, self.script, depth, until)
            if way.depth == 0:
                return None
            free = self.drafter.free_rows(self.script, rollouts.start)
            fits = 1 + int((self._aside(way)[:-1].cumsum() <= free).sum())
            if fits >= way.depth:
                return way
            depth = fits
        return None

    def _aside(self, way: Route) -> Ints:
        """[D] rows that the step over each place puts aside, at most."""
        if not (self._tree and self.settings.rule in DRAWN):
            return self._front * way.units
        nodes = drawn_shape(way, self.settings.nodes or self.most_nodes)
        counts = (nodes.depth[:, None] == way.rows[..., None]).sum(axis=2).max(axis=0)
        return np.asarray(np.maximum(counts, 1) * way.units)

    def _shaped(self, walk: Walk, way: Route, rollouts: Rollouts, sampling: Sampling) -> Block:
        if sampling.temperature == 0 or self.settings.rule == "match":
            return self._followed(walk, way, rollouts, sampling, False)
        if self.settings.rule == "coupled":
            return self._followed(walk, way, rollouts, sampling, True)
        numbers = self.draws.of_round(rollouts.ids, rollouts.start)
        n, w = way.block.tokens.shape
        vocab = self.script.scaffold.vocab
        if self._tree:
            nodes = drawn_shape(way, self.settings.nodes or self.most_nodes)
            rows = 1 + self._budget(nodes.score, way, way.depth, self._front, rollouts)
            u = numbers(np.zeros((n, min(rows, 1 + nodes.most)), np.int64), DRAFT)
            return drawn_tree(walk, way, self.script, nodes, sampling, u)
        if self.settings.rule in ("k-seq", "rrs"):
            k = self.settings.paths
            u = numbers(np.broadcast_to(np.arange(k), (n, w, k)), DRAFT)
            drawn, q = paths(walk, way, k, sampling, u, vocab)
            block = merged_paths(way.block, drawn.transpose(0, 2, 1))
            return _with_laws(block, q)
        u = numbers(np.zeros((n, w), np.int64), DRAFT)
        return chain(walk, way, sampling, u, True, vocab)

    def _followed(
        self, walk: Walk, way: Route, rollouts: Rollouts, sampling: Sampling, coupled: bool
    ) -> Block:
        """Where the target's own choices decide; `coupled` looks at the race they come from."""
        vocab = self.script.scaffold.vocab
        if not self._tree:
            race = None
            if coupled:
                race = self.draws.at_position(rollouts.ids[:, None], way.block.positions)
            return chain(walk, way, sampling, race, False, vocab)

        def law_of(logits: Array) -> Floats:
            q = distribution(logits, sampling if sampling.temperature > 0 else LIKELIEST)
            if not coupled:
                return q
            race = self.draws.at_position(rollouts.ids, walk.place)
            return race[:, None].foreseen(q)

        budget, front = self.settings.nodes or self.most_nodes, self._front
        worth = _Worth(self.gate, way, front, budget, rollouts)
        grown = grow(walk, way, self.script, law_of, front, budget, worth)
        rows = 1 + self._budget(grown.score, way, worth.depth, front, rollouts)
        return grown.block(way, self.script, min(rows, 1 + grown.most))

    def _budget(self, score: Floats, way: Route, depth: int, front: int, rollouts: Rollouts) -> int:
        """How many of the best nodes to verify."""
        if self.settings.nodes or self.gate is None:
            return self.settings.nodes or self.most_nodes
        n, length = len(rollouts), int(rollouts.start.max())
        drafted = self.gate.draft_seconds(way, depth, front, n, length)
        return self.gate.step_budget(score, drafted, length)


@dataclass
class _Worth:
    """Whether a dynamic tree should go a step deeper: what that adds per second, against the rate
    of the tree so far (the rule of CaDDTree, arXiv 2606.01813, for a draft that takes passes).

    Attributes:
        depth: places drafted so far.
        expected: tokens of the tree so far; mass: likelihood that it reaches its last depth.
    """

    gate: StepGate | None
    way: Route
    front: int
    budget: int
    rollouts: Rollouts
    depth: int = 1
    expected: float = 1.0
    mass: float = 1.0

    def __call__(self, likelihoods: Floats, depth: int) -> bool:
        before, self.mass = self.mass, float(likelihoods.sum(axis=1).mean())
        unit = self.way.units
        self.expected += self.mass * float(unit[depth - 1])
        if self.gate is not None:
            n, length = len(self.rollouts), int(self.rollouts.start.max())
            cost = [
                self.gate.draft_seconds(self.way, each, self.front, n, length)
                for each in (depth, depth + 1)
            ]
            so_far = cost[0] + self.gate.verify_seconds(self.budget, n, length)
            gain = self.mass * self.mass / max(before, 1e-9) * float(unit[depth])
            if gain * so_far < self.expected * (cost[1] - cost[0] + self.gate.host):
                return False
        self.depth = depth + 1
        return True


def _with_laws(block: Block, q: Floats) -> Block:
    """Give a trie's rows what they were drawn from; q [N, k, W, V] by path and depth."""
    assert block.paths is not None
    block.q = np.zeros((*block.tokens.shape, q.shape[-1]))
    block.q[:, 0] = q[:, 0, 0]
    n, path, above = np.nonzero(block.paths >= 0)
    block.q[n, block.paths[n, path, above]] = q[n, path, above + 1]
    return block
