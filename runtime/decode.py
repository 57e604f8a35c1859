"""The decode loop: propose, verify, accept, commit, until every rollout is complete."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.accept import Accepted, by_choice, by_rule
from runtime.anytime import Anytime, Fork
from runtime.cache import TwoPartCache
from runtime.costs import CostCurve
from runtime.draws import Draws
from runtime.engines.device import Buffer
from runtime.fits import branch_rows, check_fits
from runtime.gate import Gate, widths_of
from runtime.graphs import Graphs
from runtime.inputs import Inputs
from runtime.judge import Judge
from runtime.parts import open_drafter, open_proposer
from runtime.prompt import Prompt
from runtime.propose import Block
from runtime.reuse import TrunkMemory
from runtime.scaffold import Scaffold
from runtime.script import Rollouts, Script
from runtime.section_diffusion import SectionDiffusion
from runtime.settings import DRAFTING, UNVERIFIED, DecodeSettings, Sampling
from runtime.step_gate import StepGate
from runtime.telemetry import FrameStats
from runtime.tree import causal, tree_bias
from runtime.trial import ARMS

Array = NDArray[Any]
Ints = NDArray[np.int64]

# sees the end of a round: the rollouts, the target's cache, and the drafter's
Observer = Callable[[Rollouts, TwoPartCache, "TwoPartCache | None"], None]


@dataclass(frozen=True)
class Decoded:
    """Output tokens [N, L] in the order of the rollouts, and what they cost."""

    tokens: Ints
    stats: FrameStats
    fork: Fork | None = None

    def done(self, seconds: float) -> None:
        """The plan stands, `seconds` after the frame's work began: judge its budget, and learn for
        the next frame's."""
        if self.stats.budget is not None:
            self.stats.met = seconds <= self.stats.budget
        if self.fork:
            self.fork.learn(seconds)


class Decoder:
    """Decodes one frame after another with one bundle's graphs.

    Args:
        curve: the measured cost curve; without one a block width must be given to `dflash`.
        observe: called after every round's commit; it must change nothing.
    """

    def __init__(
        self, graphs: Graphs, curve: CostCurve | None, observe: Observer | None = None
    ) -> None:
        manifest = graphs.manifest
        self.graphs, self.curve, self.observe = graphs, curve, observe
        limits = manifest.limits
        self.cache = graphs.cache(manifest.target, limits.trunk, limits.branch)
        self.draft_cache: TwoPartCache | None = None
        if manifest.draft and not manifest.draft.of_target:
            self.draft_cache = graphs.cache(manifest.draft, limits.trunk, limits.branch)
        self._gates: dict[tuple[str, str], Gate] = {}
        ahead = int(bool(manifest.draft and manifest.draft.stepwise))
        self.memory = TrunkMemory(manifest.vision, ahead)
        self.anytime = Anytime(manifest.draft, limits.rollouts)

    def gate(self, settings: DecodeSettings) -> Gate | None:
        """The gate of a method and rule, for each accepts in its own way; None where a block width
        or a tree's size is given, or nothing can be drafted or was measured."""
        draft = self.graphs.manifest.draft
        drafting = settings.method in DRAFTING and settings.block is None
        given = settings.method == "ddtree" and settings.nodes is not None
        if draft is None or self.curve is None or given or not drafting:
            return None
        key = settings.method, settings.rule
        if key not in self._gates:
            widths, arms = widths_of(draft, settings.method), ARMS[settings.method]
            kind = StepGate if draft.stepwise else Gate
            self._gates[key] = kind(self.curve, widths, arms)
        return self._gates[key]

    def forget(self) -> None:
        """Forget what was learned of drafts and times, and the last frame: the next one is decoded
        like the first."""
        self._gates.clear()
        self.anytime.forget()
        self.memory.forget()

    def decode(
        self,
        prompt: Prompt | Ints,
        scaffold: Scaffold,
        settings: DecodeSettings,
        fork_at: str | None,
        elapsed: float = 0.0,
    ) -> Decoded:
        """Decode one output.

        Leading rows of the prompt that are the same as in the frame before stay in the cache. With
        a budget there may be fewer outputs than rollouts were asked for: the first ones. A budget
        that is spent cuts nothing short. `Decoded.done` wants to know when the plan stands.

        Args:
            prompt: at least two tokens; [Lp] tokens stand for a prompt of text.
            fork_at: section whose first value the rollouts part at; None forks at the very start.
            elapsed: s of the frame's budget that were spent before.

        Raises:
            SlipstreamError: the settings ask for what the bundle does not have, or the prompt does
                not fit it.
            CacheFullError: prompt or output are longer than the bundle's limits.
        """
        prompt = Prompt.of(prompt)
        prompt.check(self.graphs.manifest)
        script = Script.of(prompt, scaffold)
        fork = script.first_value(fork_at or scaffold.sections[0].name)
        check_fits(self.graphs.manifest, script, fork, settings)
        frame = _Frame(self, prompt, script, settings)
        frame.prefill()
        if settings.rollouts > 1 or settings.sampling != settings.prefix_sampling:
            frame.advance(fork, settings.prefix_sampling)
        if settings.rollouts == 1:
            frame.advance(len(script), settings.sampling)
            return Decoded(frame.finish(), frame.stats)
        spent = elapsed + time.perf_counter() - frame.began
        parting = self.anytime.fork(settings, script, fork, spent, self.curve)
        frame.close_trunk(fork)
        for ids in batches(parting.rollouts, settings.batch):
            frame.fork(ids)
            frame.advance(len(script), settings.sampling)
        return Decoded(frame.finish(), frame.stats, parting)


def batches(rollouts: int, most: int | None) -> list[Ints]:
    """Numbers of rollouts that are decoded together, as even as can be."""
    count = -(-rollouts // min(most or rollouts, rollouts))
    return np.array_split(np.arange(rollouts), count)


class _Frame:
    """One frame in the making: its caches, rollouts and counters."""

    def __init__(
        self, decoder: Decoder, prompt: Prompt, script: Script, settings: DecodeSettings
    ) -> None:
        self.began = time.perf_counter()
        self.graphs, self.gate, self.settings = decoder.graphs, decoder.gate(settings), settings
        self.observe = decoder.observe
        self.script = script
        self.inputs = Inputs(self.graphs, prompt)
        self.cache, self.memory = decoder.cache, decoder.memory
        self.draft_cache = decoder.draft_cache if settings.method in DRAFTING else None
        most = self._first_anchor - 1
        kept = self.memory.keep(prompt, settings.frame, most, self.cache, self.draft_cache)
        self.cache.reset(kept)
        caches = self.cache, self.draft_cache
        self.drafter = open_drafter(self.graphs, settings, *caches, self.inputs, kept)
        self.rollouts = Rollouts(
            np.zeros(1, np.int64), self.script.tokens[None].copy(), np.full(1, kept)
        )
        self.stats = FrameStats(asked=settings.rollouts)
        if settings.budget_ms is not None:
            self.stats.budget = settings.budget_ms / 1e3
        self.sampling = settings.prefix_sampling
        self.finished: dict[int, Ints] = {}
        self.draws = Draws(settings.seed, settings.frame)
        self.judge = Judge(self.graphs, self.script, self.draws, self.stats)
        self.proposer = open_proposer(
            self.graphs, settings, script, self.drafter, self.gate, self.draws, self.stats
        )
        self.diffusion: SectionDiffusion | None = None
        if settings.method in UNVERIFIED:
            shared = self.cache, self.script, settings, self.draws, self.stats
            self.diffusion = SectionDiffusion(self.graphs, *shared)

    def prefill(self) -> None:
        """Everything known from the start that is not kept, short of the token that anchors round
        one."""
        kept = int(self.rollouts.start[0])
        self.stats.prompt_rows, self.stats.kept_rows = self._first_anchor, kept
        self.inputs.encode(kept, self.stats)
        self._known_pass(self._first_anchor, "prefill")

    def advance(self, until: int, sampling: Sampling) -> None:
        """Decode all rollouts up to position `until`, exclusive."""
        self.sampling = sampling
        if self.diffusion is not None:
            self._fill(self.diffusion, until)
            return
        if self.gate is None:
            self._rounds(until)
            return
        sampled, began = sampling.temperature > 0, time.perf_counter()
        trial = self.gate.trial(self.rollouts, until, sampled)
        self.proposer.arm = self.gate.arm(trial, self.rollouts, self.script, until)
        self._rounds(until)
        trial.add(self.proposer.arm, time.perf_counter() - began)

    def _rounds(self, until: int) -> None:
        while len(self.rollouts):
            self._leave(until)
            if not self._unfinished(until).any():
                return
            block = self._propose(until)
            hidden, taps = self._verify(block)
            accepted = self._accept(block, hidden)
            self._commit(block, accepted, taps)
            if self.observe:
                draft_cache = self.drafter.cache if self.drafter else None
                self.observe(self.rollouts, self.cache, draft_cache)

    def _fill(self, diffusion: SectionDiffusion, until: int) -> None:
        """Block by block; each is cached when the next one begins, or at the fork."""
        blocks = diffusion.open_blocks(self.rollouts, until)
        done = blocks[0].anchor if blocks else until
        for block in blocks:
            if self.rollouts.start[0] < block.anchor:
                self._known_pass(block.anchor, "verify")
            for _ in diffusion.passes(self.rollouts, block, self.sampling):
                self._note_first_token()
            tokens = len(self.rollouts) * (block.last - done)
            self.stats.count_filling(block.section, 0, tokens)
            done = block.last
        if until == len(self.script):
            self.rollouts.start[:] = until - 1  # nothing reads the last block from the cache
        self._leave(until)

    def close_trunk(self, at: int) -> None:
        """Before rollouts part at a place: what is fixed there is passed once, not n times."""
        if self.rollouts.start[0] < at - 1:
            self._known_pass(at - 1, "verify")
        if self.drafter:
            self.drafter.absorb(self.rollouts, self.script, self.stats)
        self.stem = self.rollouts
        self.rows = branch_rows(self.graphs.manifest, len(self.script) - at, self.settings)
        self.stats.rollouts = 0

    def fork(self, ids: Ints) -> None:
        """Open branches for these rollouts, in place of any that are done."""
        self.stats.rollouts += len(ids)
        self.rollouts = self.stem.forked(ids)
        self.cache.fork(len(ids), self.rows)
        if self.drafter:
            self.drafter.fork(len(ids))
        self._measure_memory()

    def finish(self) -> Ints:
        """[N, L] the outputs."""
        tokens = np.stack([self.finished[i] for i in range(len(self.finished))])
        self._measure_memory()
        self.memory.remember(self.cache, self.draft_cache)
        self.stats.total = time.perf_counter() - self.began
        return tokens[:, self.script.prompt :]

    # The four steps of a round.

    def _propose(self, until: int) -> Block:
        return self.proposer.propose(self.rollouts, until, self.sampling)

    def _verify(self, block: Block) -> tuple[Buffer, Buffer]:
        bias = causal(block.width) if block.parents is None else tree_bias(block.parents)
        with self.stats.stage("embed"):
            embeddings = self.graphs.embed(block.tokens)
        with self.stats.stage("verify"):
            positions = self.script.turned(block.positions)
            hidden, taps = self.graphs.target(embeddings, positions, bias, self.cache)
        self.stats.target_passes += 1
        return hidden, taps

    def _accept(self, block: Block, hidden: Buffer) -> Accepted:
        if block.q is None:
            return by_choice(block, self.judge.choices(block, hidden, self.rollouts, self.sampling))
        p = self.judge.distributions(block, hidden, self.sampling)
        numbers = self.draws.of_round(self.rollouts.ids, self.rollouts.start)
        return by_rule(self.settings.rule, block, p, numbers)

    def _commit(self, block: Block, accepted: Accepted, taps: Buffer) -> None:
        self._count(block, accepted)
        at = np.nonzero(accepted.holds)
        following = self.rollouts.start + accepted.length + 1
        self.rollouts.tokens[at[0], block.positions[at]] = block.tokens[at]
        self.rollouts.tokens[np.arange(len(following)), following] = accepted.token
        self.rollouts.start = following
        self.cache.commit(accepted.holds)
        if self.drafter:
            self.drafter.observe(taps, block.positions, accepted.holds)

    # What the steps lean on.

    @property
    def _first_anchor(self) -> int:
        """Place of the token that anchors round one: the last that is known from the start."""
        if self.settings.method == "ar":
            return self.script.prompt - 1
        return int(self.script.next_value[self.script.prompt - 1]) - 1

    def _known_pass(self, last: int, stage: str) -> None:
        """Put the known tokens from start to last-1 into the cache; `last` becomes the anchor.

        All rollouts are at the same place.
        """
        start = int(self.rollouts.start[0])
        positions = np.tile(np.arange(start, last), (len(self.rollouts), 1))
        with self.stats.stage("embed"):
            embeddings = self.inputs.embed(self.rollouts.tokens[:, start:last], positions)
            deepstack = self.inputs.deepstack(positions)
        turned, bias = self.script.turned(positions), causal(last - start)
        with self.stats.stage(stage):
            _, taps = self.graphs.target(embeddings, turned, bias, self.cache, deepstack)
        holds = np.ones(positions.shape, np.bool_)
        self.cache.commit(holds)
        if self.drafter:
            self.drafter.observe(taps, positions, holds)
        if stage != "prefill":
            self.stats.target_passes += 1
            if self.diffusion is not None:
                section = self.script.section[start + 1]
                name = self.script.scaffold.sections[section].name
                self.stats.count_filling(name, len(self.rollouts), 0)
        self.rollouts.start[:] = last

    def _measure_memory(self) -> None:
        """Keep the most: branches shrink when rollouts leave."""
        own = self.drafter.cache if self.drafter else None
        held = self.cache.nbytes + (own.nbytes if own else 0)
        self.stats.cache_bytes = max(self.stats.cache_bytes, held)
        self.stats.device_bytes = max(self.stats.device_bytes, self.graphs.nbytes)

    def _unfinished(self, until: int) -> NDArray[np.bool_]:
        """[N]: a value is still open before `until` (for `ar`, any token)."""
        start = self.rollouts.start
        if self.settings.method == "ar":
            return np.less(start, until - 1)
        return np.less(self.script.next_value[start], until)

    def _leave(self, until: int) -> None:
        """Finished rollouts leave the batch: each row of a pass costs time."""
        if until < len(self.script):
            return
        unfinished = self._unfinished(until)
        if unfinished.all():
            return
        for row in np.flatnonzero(~unfinished):
            self.finished[int(self.rollouts.ids[row])] = self.rollouts.tokens[row]
        rows = np.flatnonzero(unfinished)
        self.rollouts.keep(rows)
        if len(rows) and self.cache.forked:
            self.cache.keep(rows)
            if self.drafter:
                self.drafter.keep(rows)

    def _count(self, block: Block, accepted: Accepted) -> None:
        ahead = self.script.section_ahead(self.rollouts.start)
        names = [span.name for span in self.script.scaffold.sections]
        self.stats.count_round(block.depth, block.drafted, accepted.holds, ahead, names)
        if self.gate and block.drafted.any():
            self.gate.observe(self.script, block, accepted, self.sampling.temperature > 0)
        self._note_first_token()

    def _note_first_token(self) -> None:
        if self.stats.first_token == 0.0:
            self.stats.first_token = time.perf_counter() - self.began
