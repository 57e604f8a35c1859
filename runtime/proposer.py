"""One method's proposals: how wide, whether drafted at all, and in which shape."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.ahead import Outlook, Split, drafts_ahead
from runtime.best_tree import best_nodes, best_tree
from runtime.bundle import DraftDims
from runtime.drafter import BlockDrafter
from runtime.draws import DRAFT, Draws
from runtime.gate import NO_DRAFT, Gate, Width
from runtime.marginals import Marginals
from runtime.propose import Block, Until, pad_with_anchor, root_only, scaffold_run
from runtime.race import Race
from runtime.schema import Reach
from runtime.script import Rollouts, Script
from runtime.self_drafter import SelfDrafter
from runtime.settings import BY_SCHEMA, FOLLOWING, DecodeSettings, Sampling
from runtime.shapes import chain, drawn_nodes, paths, sampled_tree
from runtime.telemetry import FrameStats
from runtime.tree import Nodes
from runtime.trial import ARMS, Arm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    drafter: BlockDrafter | SelfDrafter | None
    gate: Gate | None
    draws: Draws
    stats: FrameStats
    most_nodes: int
    arm: Arm = field(init=False)  # the gate's word on the present stretch
    reach: Reach = field(init=False)
    outlook: Outlook | None = field(init=False)  # where the target drafts ahead of itself

    def __post_init__(self) -> None:
        self.arm = ARMS[self.settings.method][0] if self.drafter else "plain"
        dims = self.drafter.dims if self.drafter else None
        self.reach = Reach.of(self.settings, self.script, dims)
        self.outlook = None
        if dims and drafts_ahead(dims, self.settings.method) and self.reach.ends is not None:
            self.outlook = Outlook(self.script, dims, self.reach.ends)

    def propose(self, rollouts: Rollouts, until: int, sampling: Sampling) -> Block:
        """The next block of every rollout, for tokens before position `until`."""
        if self.settings.method == "ar":
            return root_only(rollouts, self.script, until)
        if self.outlook and self.arm != "plain":
            return self._looking_ahead(self.outlook, rollouts, until, sampling)
        reached = self.reach(rollouts, until)
        width = self._width(rollouts, reached, sampling)
        if self.drafter is None or width == NO_DRAFT:
            return scaffold_run(rollouts, self.script, until)
        marginals = self.drafter.marginals(rollouts, self.script, width, reached, self.stats)
        return self._filled(marginals, rollouts, sampling)

    def _filled(self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling) -> Block:
        """The block with its drafts."""
        if not marginals.block.drafted.any():
            pad_with_anchor(marginals.block)
            return marginals.block
        if sampling.temperature > 0:
            return self._drawn(marginals, rollouts, sampling)
        return self._followed(marginals, rollouts, sampling, None)

    def _width(self, rollouts: Rollouts, until: Until, sampling: Sampling) -> Width:
        if self.drafter is None or self.arm == "plain":
            return NO_DRAFT
        if self.settings.block or self.gate is None:
            rows = self._given_rows(self.drafter.dims)
            return Width(rows, rows)
        if self.arm == "whole":
            return Width(self.gate.widths[-1], self.gate.widths[-1])
        sampled, tree = sampling.temperature > 0, self.arm == "tree"
        width = self.gate.choose(rollouts, self.script, until, sampled, tree)
        # how many rows of a best-first tree to verify is then said by its budget
        return Width(width.draft, width.draft) if self._best_first else width

    def _given_rows(self, dims: DraftDims) -> int:
        # where a block of the schema ends the reach says
        given = None if self.settings.method in BY_SCHEMA else self.settings.block
        return given or dims.block

    def _looking_ahead(
        self, outlook: Outlook, rollouts: Rollouts, until: int, sampling: Sampling
    ) -> Block:
        """What the target drafted before, and masks behind it."""
        assert isinstance(self.drafter, SelfDrafter)
        sampled = sampling.temperature > 0
        draws = self.draws if sampled and self.settings.rule == "coupled" else None
        offer = self.drafter.offer(rollouts, self.script, until, sampling, draws)
        kinds = None
        if self.gate is None:
            split = Split.whole(offer)
        else:
            kinds = self.gate.kinds_of(offer)
            split = self.gate.split(offer, kinds, rollouts, self.script, sampled)
        block = self.drafter.ahead(rollouts, outlook, split, until, offer.rows)
        block.kinds = kinds
        if sampled and self.settings.rule not in FOLLOWING and block.drafted.any():
            return self._drawn(self.drafter.said(block), rollouts, sampling)
        return block

    @property
    def _best_first(self) -> bool:
        return self.settings.method == "ddtree" and self.arm == "tree"

    def _drawn(self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling) -> Block:
        numbers = self.draws.of_round(rollouts.ids, rollouts.start)
        n, w = marginals.block.tokens.shape
        match self.settings.rule:
            case "match":
                return self._followed(marginals, rollouts, sampling, None)
            case "coupled":
                race = self.draws.at_position(rollouts.ids[:, None], marginals.block.positions)
                return self._followed(marginals, rollouts, sampling, race)
            case "rrs-wor" | "traversal" if self._best_first:
                nodes = drawn_nodes(marginals, sampling, self.settings.nodes or self.most_nodes)
                rows = self._rows(nodes, rollouts)
                u = numbers(np.zeros((n, rows), np.int64), DRAFT)
                return sampled_tree(marginals, nodes, rows, sampling, u)
            case "k-seq" | "rrs":
                k = self.settings.paths
                places = np.broadcast_to(np.arange(k), (n, w, k))
                return paths(marginals, k, sampling, numbers(places, DRAFT))
            case _:
                u = numbers(np.zeros((n, w), np.int64), DRAFT)
                return chain(marginals, sampling, u, want_q=True)

    def _followed(
        self, marginals: Marginals, rollouts: Rollouts, sampling: Sampling, race: Race | None
    ) -> Block:
        """Where the target's own choices decide; race [N, W] is what they come from, if used."""
        if self._best_first:
            return self._best_tree(marginals, rollouts, sampling, race)
        return chain(marginals, sampling, race, want_q=False)

    def _best_tree(
        self,
        marginals: Marginals,
        rollouts: Rollouts,
        sampling: Sampling,
        race: Race | None,
    ) -> Block:
        most = self.settings.nodes or self.most_nodes
        nodes, tokens = best_nodes(marginals, sampling, most, race)
        return best_tree(marginals, nodes, tokens, self._rows(nodes, rollouts))

    def _rows(self, nodes: Nodes, rollouts: Rollouts) -> int:
        """How many rows of a tree to verify, its root included."""
        budget = self.settings.nodes
        if budget is None and self.gate is not None:
            budget = self.gate.budget(nodes, int(rollouts.start.max()))
        return 1 + min(budget or self.most_nodes, nodes.most)
