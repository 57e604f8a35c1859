"""The cost gate: how wide a block to draft, or none, so that drafting never costs a frame time.

CaDDTree's rule (arXiv 2606.01813) for chains: maximise expected tokens per second under the
measured cost curve, with acceptance learnt while driving.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.accept import Accepted
from runtime.ahead import Offer, Split, drafts_ahead
from runtime.bundle import DraftDims
from runtime.costs import CostCurve
from runtime.propose import Block, Until
from runtime.script import Rollouts, Script
from runtime.settings import BY_SCHEMA, Method
from runtime.tree import Nodes
from runtime.trial import ARMS, Arm, Trial
from runtime.window import MISLED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIOR_RATE, PRIOR_COUNT = 0.85, 4.0  # what is believed of a place before it was ever drafted
MEMORY = 50.0  # times a place was judged after which old evidence fades
DRIFT = 0.01  # how far belief returns to the prior when a place is passed without a draft
MARGIN = 1.03  # a draft must promise this much more per second, or noise decides
NARROWEST = 4  # half a block is worth offering from this width on
MASK_WORTH = 0.6  # of its time that a mask must save if all stands: otherwise it still saves some
# what a draft's confidence must reach for each class of sureness but the lowest
SURE = np.asarray([0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 0.993, 0.997, 0.999])
AHEAD = 64  # values that a target drafts behind the rows it verifies, at most
ROWS = 128  # of a pass, per rollout, that costs are tabulated for
LASTING = 0.93 ** np.arange(1.0, AHEAD + 1)  # believed of a window's values at first
LEARN = 0.05  # weight of a window in what is believed of others
LENGTHS = 64  # cache lengths are rounded to this for the cost tables


@dataclass
class Evidence:
    """How often drafts of each kind [K] were judged, and how often they stood.

    A kind is a place of the output, since places differ (a sign is easy, a last digit is hard), or
    a class of how sure the drafter was, for each of what a draft may rest on.
    """

    judged: Floats
    stood: Floats
    prior: Floats

    @classmethod
    def believing(cls, prior: Floats) -> Evidence:
        """Before anything was judged: rates [K]."""
        return cls(np.full(len(prior), PRIOR_COUNT), PRIOR_COUNT * prior, prior)

    @classmethod
    def of_places(cls, places: int) -> Evidence:
        return cls.believing(np.full(places, PRIOR_RATE))

    @classmethod
    def of_sureness(cls) -> Evidence:
        """Kinds are classes of fresh drafts, then those of drafts that are not (`runtime.window`).
        Believed at first: a draft falls half as often as the drafter says, or unsure ones would
        never be tried."""
        said = np.tile((np.append(SURE, 1.0) + np.append(0.0, SURE)) / 2, 1 + MISLED)
        return cls.believing((1.0 + said) / 2)

    @property
    def rates(self) -> Floats:
        return self.stood / self.judged

    def add(self, stood: Ints, fell: Ints) -> None:
        """Count places that stood and places that fell; one may be named several times."""
        good = np.bincount(stood, minlength=len(self.stood))
        all_ = good + np.bincount(fell, minlength=len(self.stood))
        fade = np.minimum(1.0, MEMORY / (self.judged + all_))
        self.judged = self.judged * fade + all_
        self.stood = self.stood * fade + good

    def drift(self, kinds: Ints) -> None:
        """Return towards the prior, so that what was judged badly once is tried again."""
        self.judged[kinds] += DRIFT * (PRIOR_COUNT - self.judged[kinds])
        self.stood[kinds] += DRIFT * (PRIOR_COUNT * self.prior[kinds] - self.stood[kinds])


def widths_of(draft: DraftDims, method: Method) -> tuple[int, ...]:
    """Rows of the blocks that a method's gate chooses among."""
    if method in BY_SCHEMA:
        return (draft.block,)
    half = (draft.block // 2,) if draft.block // 2 >= NARROWEST else ()
    return (*half, draft.block)


def arms_of(draft: DraftDims, method: Method) -> tuple[Arm, ...]:
    """Ways of decoding that a method's gate tries. A target that drafts ahead says how sure it is
    of each draft, so that whole blocks show nothing that it does not know."""
    arms = ARMS[method]
    return arms[1:] if drafts_ahead(draft, method) else arms


class Width(NamedTuple):
    """Rows of a block, the anchor included: as drafted, and how many of them are verified.

    A drafter is best at the widths it was trained for; verifying fewer rows costs it nothing.
    """

    draft: int
    verify: int


NO_DRAFT = Width(0, 0)
Stretch = tuple[int, int, bool]  # rollouts at its start, last position, sampled


@dataclass
class Gate:
    """Chooses each round's block width, or NO_DRAFT.

    Attributes:
        widths: to draft; the drafter's own, and others that it was trained for.
        arms: the method's.
        host: s of host work a round costs besides its passes.
        pace: s a token took in the present stretch before.
    """

    curve: CostCurve
    widths: tuple[int, ...]
    arms: tuple[Arm, ...]
    host: float = 5e-4
    pace: float = 0.0
    evidence: dict[tuple[int, int, bool, bool], Evidence] = field(default_factory=dict)
    sureness: dict[bool, Evidence] = field(default_factory=dict)  # by whether drafts are sampled
    lasting: dict[tuple[int, bool], Floats] = field(default_factory=dict)  # by section, and that
    trials: dict[Stretch, Trial] = field(default_factory=dict)
    _tables: dict[tuple[int, int], tuple[Floats, Floats]] = field(default_factory=dict)

    def trial(self, rollouts: Rollouts, until: int, sampled: bool) -> Trial:
        """What decoding these rollouts up to `until` took before."""
        return self.trials.setdefault((len(rollouts), until, sampled), Trial(self.arms))

    def arm(self, trial: Trial, rollouts: Rollouts, script: Script, until: int) -> Arm:
        """How to decode up to `until`, by what that took before.

        Rollouts that finish apart, and host work that grows with them, are in no cost curve: the
        stretch is timed as a whole.
        """
        start = int(rollouts.start.min())
        values = int((~script.fixed[start + 1 : until]).sum())
        rows = (until - 1 - start) / max(values, 1)
        target, _ = self._seconds(len(rollouts), start)
        one_pass = float(np.interp(rows, np.arange(ROWS + 1), target)) + self.host
        plain = values * one_pass
        self.pace = min([plain, *trial.seconds.values()]) / max(until - 1 - start, 1)
        return trial.next(plain)

    def choose(
        self, rollouts: Rollouts, script: Script, until: Until, sampled: bool, tree: bool
    ) -> Width:
        """The width with the most expected tokens a second, averaged over the rollouts."""
        target, draft = self._seconds(len(rollouts), int(rollouts.start.max()))
        run = script.next_value[rollouts.start] - rollouts.start
        plain = run.mean() / (target[min(int(run.max()), ROWS)] + self.host)
        best, most = NO_DRAFT, MARGIN * plain
        left = int(np.max(until - 1 - rollouts.start))  # rows that a block may have
        for width in self.widths:
            rates = self._evidence(script, width, sampled, tree).rates
            tokens = self._tokens(rollouts, script, until, rates, min(width, ROWS))
            seconds = draft[min(width, left, ROWS)]
            promised = tokens / (target[2 : width + 1] + seconds + 2 * self.host)
            rows = int(promised.argmax())
            if promised[rows] > most:
                best, most = Width(width, rows + 2), promised[rows]
        if best == NO_DRAFT:
            for width in self.widths:
                places = self._ahead(rollouts, script, width) - script.prompt
                self._evidence(script, width, sampled, tree).drift(places)
        return best

    def split(
        self, offer: Offer, kinds: Ints, rollouts: Rollouts, script: Script, sampled: bool
    ) -> Split:
        """How much of what a target offers to verify, and how much to draft behind it.

        A row is worth its time while what it is expected to commit would take longer otherwise, at
        the stretch's pace. What is drafted behind the chain counts if the whole chain stands.

        Args:
            kinds: [N, K] those of the offered drafts (`kinds_of`).
        """
        row = self._row_seconds(len(rollouts), int(rollouts.start.max()))
        evidence = self._sureness(sampled)
        rates = evidence.rates[kinds]
        stands = np.ones((len(rollouts), 1 + rates.shape[1]))  # the anchor, and what is behind it
        np.where(offer.drafted, rates, 1.0).cumprod(axis=1, out=stands[:, 1:])
        worth = stands[:, 1:] * self.pace > row
        chain = np.minimum(worth.cumprod(axis=1).sum(axis=1), offer.reach)
        cut = np.flatnonzero(chain < offer.reach)
        evidence.drift(kinds[cut, chain[cut]])
        whole = stands[np.arange(len(chain)), chain]
        lasting = self._learn_lasting(offer, rates, rollouts, script, sampled)
        drafted = whole[:, None] * lasting * (self.pace - row)
        masks = (drafted > MASK_WORTH * row).cumprod(axis=1).sum(axis=1)
        verified = stands[:, 1:] * self.pace
        width = int((chain + masks).max())
        # a pass is as wide for all rollouts: a column is judged by what its rows save on average
        saved = np.zeros((len(chain), width))
        for own, end, before, behind in zip(saved, chain, verified, drafted, strict=True):
            both = np.concatenate([before[:end], behind])[:width]
            own[: len(both)] = both
        columns = np.flatnonzero(saved.mean(axis=0) > MASK_WORTH * row)
        width = int(columns[-1]) + 1 if len(columns) else 0
        chain = np.minimum(chain, width)
        return Split(chain, width - chain)

    def kinds_of(self, offer: Offer) -> Ints:
        """[N, K] kind of each offered draft: how sure the drafter was, and what it rests on."""
        kinds = np.searchsorted(SURE, offer.confidence, side="right")
        return np.asarray(kinds + (len(SURE) + 1) * offer.rests)

    def _learn_lasting(
        self, offer: Offer, rates: Floats, rollouts: Rollouts, script: Script, sampled: bool
    ) -> Floats:
        """[N, AHEAD] how likely each value of a fresh window and all before it stand."""
        found = np.empty((len(rollouts), AHEAD))
        for row, section in enumerate(script.section_ahead(rollouts.start)):
            lasting = self.lasting.setdefault((int(section), sampled), LASTING.copy())
            each = rates[row, offer.drafted[row]][:AHEAD].cumprod()
            if offer.fresh[row] and len(each):
                lasting[: len(each)] += LEARN * (each - lasting[: len(each)])
            found[row] = lasting
        return found

    def budget(self, nodes: Nodes, length: int) -> int:
        """How many of a tree's best nodes to verify: the best expected tokens a second.

        1 + Phi(n) tokens for the cost of n + 1 rows, Phi the nodes' cumulated probability; the
        draft is paid for as well.
        """
        n, most = nodes.score.shape
        expected = 1.0 + np.exp(nodes.score).mean(axis=0).cumsum()
        target, draft = self._seconds(n, length)
        drafted = draft[min(self.widths[-1], ROWS)]
        seconds = target[np.minimum(np.arange(2, most + 2), ROWS)] + drafted + 2 * self.host
        return int((expected / seconds).argmax()) + 1

    def observe(self, script: Script, block: Block, accepted: Accepted, sampled: bool) -> None:
        """Learn from a round: the value tokens that stood, and those at which it ended."""
        stood, length = block.drafted & accepted.holds, accepted.length
        at = np.flatnonzero(length < block.limit)
        ended = length[at] + 1
        if block.kinds is not None:
            value = block.drafted[at, ended]
            row, column = np.nonzero(stood)
            known = block.kinds[row, column - 1]
            self._sureness(sampled).add(known, block.kinds[at[value], ended[value] - 1])
            return
        fell = block.positions[at, 0] + ended
        fell = fell[~script.fixed[fell]]
        evidence = self._evidence(script, block.draft_width, sampled, block.parents is not None)
        evidence.add(block.positions[stood] - script.prompt, fell - script.prompt)

    def _tokens(
        self, rollouts: Rollouts, script: Script, until: Until, rates: Floats, width: int
    ) -> Floats:
        """[width - 1] tokens that verifying 2, 3, .. width rows commits, the target's own
        included, averaged over rollouts."""
        places = self._ahead(rollouts, script, width)
        survives = np.where(script.fixed[places], 1.0, rates[places - script.prompt])
        survives *= rollouts.start[:, None] + np.arange(1, width) <= np.reshape(until, (-1, 1)) - 2
        return np.asarray(1.0 + survives.cumprod(axis=1).cumsum(axis=1).mean(axis=0))

    def _ahead(self, rollouts: Rollouts, script: Script, width: int) -> Ints:
        """[N, width - 1] positions that a block would draft, up to the end."""
        ahead = rollouts.start[:, None] + np.arange(1, width)
        return np.asarray(np.minimum(ahead, len(script) - 1))

    def _evidence(self, script: Script, width: int, sampled: bool, tree: bool) -> Evidence:
        key = len(script.scaffold), width, sampled, tree
        if key not in self.evidence:
            self.evidence[key] = Evidence.of_places(len(script.scaffold))
        return self.evidence[key]

    def _sureness(self, sampled: bool) -> Evidence:
        if sampled not in self.sureness:
            self.sureness[sampled] = Evidence.of_sureness()
        return self.sureness[sampled]

    def _row_seconds(self, n: int, length: int) -> float:
        """s that one more row of each rollout takes."""
        target, _ = self._seconds(n, length)
        few, many = 8, 24
        return float(target[many] - target[few]) / (many - few)

    def _seconds(self, n: int, length: int) -> tuple[Floats, Floats]:
        """s of a target pass and of a draft, each by rows [0..ROWS]."""
        key = (n, length // LENGTHS)
        if key not in self._tables:
            rows = np.arange(ROWS + 1.0)
            self._tables[key] = (
                self.curve.target_seconds(n, rows, length),
                self.curve.draft_seconds(n, rows, length),
            )
        return self._tables[key]
