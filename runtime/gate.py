"""The cost gate: how wide a block to draft, or none, so that drafting never costs a frame time.

CaDDTree's rule (arXiv 2606.01813) for chains: maximise expected tokens per second under the
measured cost curve, with acceptance learnt while driving.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.accept import Accepted
from runtime.costs import CostCurve
from runtime.propose import Block
from runtime.script import Rollouts, Script
from runtime.tree import Nodes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_RATE, PRIOR_COUNT = 0.85, 8.0  # what is believed of a section before it was ever drafted
MEMORY = 400.0  # value tokens after which old evidence fades
MARGIN = 1.03  # a draft must promise this much more per second, or noise decides
NO_DRAFT = 0


@dataclass
class Evidence:
    """Drafted value tokens of one section that were judged, and those that stood."""

    judged: float = PRIOR_COUNT
    stood: float = PRIOR_COUNT * PRIOR_RATE

    @property
    def rate(self) -> float:
        return min(self.stood / self.judged, 0.995)

    def add(self, judged: float, stood: float) -> None:
        fade = min(1.0, MEMORY / (self.judged + judged))
        self.judged = self.judged * fade + judged
        self.stood = self.stood * fade + stood

    def forget(self) -> None:
        """Drift back to the prior, so that a section judged badly once is tried again."""
        self.judged += 0.002 * (PRIOR_COUNT - self.judged)
        self.stood += 0.002 * (PRIOR_COUNT * PRIOR_RATE - self.stood)


@dataclass
class Gate:
    """Chooses each round's block width from `widths`, or NO_DRAFT.

    Attributes:
        host: s of host work a round costs besides its passes.
    """

    curve: CostCurve
    widths: tuple[int, ...]
    host: float = 3e-4
    evidence: dict[tuple[int, bool], Evidence] = field(default_factory=dict)

    def choose(self, rollouts: Rollouts, script: Script, until: int, sampled: bool) -> int:
        """The width with the most expected tokens a second, averaged over the rollouts."""
        n = len(rollouts)
        rates = np.asarray(
            [self._evidence(i, sampled).rate for i in range(len(script.scaffold.sections))]
        )
        length = int(rollouts.start.max())
        run = script.next_value[rollouts.start] - rollouts.start
        plain_rows = np.asarray([float(run.max())])
        plain = run.mean() / (self.curve.target_seconds(n, plain_rows, length)[0] + self.host)
        tokens = self._expected(rollouts, script, until, rates)
        rows = np.asarray(self.widths, np.float64)
        seconds = self.curve.target_seconds(n, rows, length)
        seconds = seconds + self.curve.draft_seconds(n, rows, length) + 2 * self.host
        best = int((tokens / seconds).argmax())
        if tokens[best] / seconds[best] > MARGIN * plain:
            return self.widths[best]
        for section in np.unique(script.section_ahead(rollouts.start)):
            self._evidence(int(section), sampled).forget()
        return NO_DRAFT

    def budget(self, nodes: Nodes, length: int) -> int:
        """How many of a tree's best nodes to verify: the best expected tokens a second.

        1 + Phi(n) tokens for the cost of n + 1 rows, Phi the nodes' cumulated probability; the
        draft is already paid for.
        """
        n = len(nodes.score)
        expected = 1.0 + np.exp(nodes.score).mean(axis=0).cumsum()
        rows = np.arange(2.0, expected.shape[0] + 2.0)
        seconds = self.curve.target_seconds(n, rows, length) + self.host
        return int((expected / seconds).argmax()) + 1

    def observe(self, script: Script, block: Block, accepted: Accepted, sampled: bool) -> None:
        """Learn from a round: the value tokens that stood, and those at which it ended."""
        sections = len(script.scaffold.sections)
        stood = block.drafted & accepted.holds
        all_stood = np.bincount(script.section[block.positions[stood]], minlength=sections)
        length = accepted.length
        ended = block.positions[:, 0] + length + 1
        fell = ended[(length < block.limit) & ~script.fixed[ended]]
        all_fell = np.bincount(script.section[fell], minlength=sections)
        for i in np.flatnonzero(all_stood + all_fell):
            evidence = self._evidence(int(i), sampled)
            evidence.add(float(all_stood[i] + all_fell[i]), float(all_stood[i]))

    def _evidence(self, section: int, sampled: bool) -> Evidence:
        return self.evidence.setdefault((section, sampled), Evidence())

    def _expected(self, rollouts: Rollouts, script: Script, until: int, rates: Floats) -> Floats:
        """[widths] tokens a round commits, the target's own included, averaged over rollouts."""
        ahead = rollouts.start[:, None] + np.arange(1, max(self.widths))
        real = ahead <= until - 2
        at = np.minimum(ahead, len(script) - 1)
        survives = np.where(script.fixed[at], 1.0, rates[script.section[at]]) * real
        expected = 1.0 + survives.cumprod(axis=1).cumsum(axis=1).mean(axis=0)
        return np.asarray(expected[np.asarray(self.widths) - 2])
