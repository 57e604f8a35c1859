"""One method's proposals: how wide, whether drafted at all, and in which shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.drafter import BlockDrafter, Marginals
from runtime.draws import DRAFT, Draws
from runtime.gate import NO_DRAFT, Gate, Width
from runtime.propose import Block, root_only, scaffold_run
from runtime.script import Rollouts, Script
from runtime.settings import DecodeSettings, Sampling
from runtime.shapes import best_nodes, best_tree, chain, paths, sampled_tree
from runtime.telemetry import FrameStats
from runtime.tree import Nodes

Ints = NDArray[np.int64]

MAX_NODES = 64  # of a tree whose size the cost curve chooses


@dataclass
class Proposer:
    """Proposes a frame's blocks.

    Attributes:
        drafter: None for methods that draft nothing.
        gate: None without a measured cost curve: then blocks are as wide as the drafter's.
        most_nodes: of a tree, so that a few rounds fit a branch of the cache.
    """

    settings: DecodeSettings
    script: Script
    drafter: BlockDrafter | None
    gate: Gate | None
    draws: Draws
    stats: FrameStats
    most_nodes: int
    drafting: bool = True  # the gate's word on the present stretch

    def propose(self, rollouts: Rollouts, until: int, sampling: Sampling) -> Block:
        """The next block of every rollout, for tokens before position `until`."""
        if self.settings.method == "ar":
            return root_only(rollouts, self.script, until)
        width = self._width(rollouts, until, sampling)
        if self.drafter is None or width == NO_DRAFT:
            return scaffold_run(rollouts, self.script, until)
        marginals = self.drafter.marginals(rollouts, self.script, width, until, self.stats)
        if not marginals.block.drafted.any():
            return marginals.block
        if sampling.temperature > 0:
            return self._drawn(marginals, rollouts, sampling)
        return self._greedy(marginals, rollouts, sampling)

    def _width(self, rollouts: Rollouts, until: int, sampling: Sampling) -> Width:
        if self.drafter is None or not self.drafting:
            return NO_DRAFT
        if self.settings.block or self.gate is None:
            block = self.settings.block or self.drafter.dims.block
            return Width(block, block)
        width = self.gate.choose(rollouts, self.script, until, sampling.temperature > 0)
        # a tree's rows are chosen by its own budget
        return Width(width.draft, width.draft) if self.settings.method == "ddtree" else width

    def _greedy(self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling) -> Block:
        if self.settings.method == "ddtree":
            return self._best_tree(marginals, rollouts, sampling)
        return chain(marginals, sampling, None, want_q=False)

    def _drawn(self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling) -> Block:
        numbers = self.draws.of_round(rollouts.ids, rollouts.start)
        n, w = marginals.block.tokens.shape
        match self.settings.method, self.settings.rule:
            case "ddtree", "coupled":
                return self._best_tree(marginals, rollouts, sampling)
            case "ddtree", _:
                nodes, _tokens, rows = self._nodes(marginals, rollouts, sampling)
                u = numbers(np.zeros((n, rows), np.int64), DRAFT)
                return sampled_tree(marginals, nodes, rows, sampling, u)
            case "spectr", _:
                k = self.settings.paths
                places = np.broadcast_to(np.arange(k), (n, w, k))
                return paths(marginals, k, sampling, numbers(places, DRAFT))
            case _, "coupled":
                u = self.draws.at_position(rollouts.ids[:, None], marginals.block.positions)
                return chain(marginals, sampling, u, want_q=False)
            case _:
                u = numbers(np.zeros((n, w), np.int64), DRAFT)
                return chain(marginals, sampling, u, want_q=True)

    def _best_tree(self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling) -> Block:
        nodes, tokens, rows = self._nodes(marginals, rollouts, sampling)
        return best_tree(marginals, nodes, tokens, rows)

    def _nodes(
        self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling
    ) -> tuple[Nodes, Ints, int]:
        """Candidate nodes, their tokens by depth and rank, and how many rows to verify."""
        nodes, tokens = best_nodes(marginals, sampling, self.settings.nodes or self.most_nodes)
        budget = self.settings.nodes
        if budget is None and self.gate is not None:
            budget = self.gate.budget(nodes, int(rollouts.start.max()))
        return nodes, tokens, 1 + min(budget or self.most_nodes, nodes.most)
