"""One frame: propose, verify, accept, commit, until every rollout is complete."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from runtime.accept import Accepted, by_choice, by_rule
from runtime.cache import TwoPartCache
from runtime.draws import Draws
from runtime.engines.device import Buffer
from runtime.fits import branch_rows
from runtime.inputs import Inputs
from runtime.judge import Judge, Reading
from runtime.parts import open_drafter, open_proposer
from runtime.prompt import Prompt
from runtime.propose import Block
from runtime.script import Rollouts, Script
from runtime.section_diffusion import SectionDiffusion
from runtime.self_drafter import SelfDrafter
from runtime.settings import DRAFTING, UNVERIFIED, DecodeSettings, Sampling
from runtime.telemetry import FrameStats
from runtime.tree import causal, looking_ahead, tree_bias

if TYPE_CHECKING:
    from runtime.decode import Decoder

Ints = NDArray[np.int64]

# sees the end of a round: the rollouts, the target's cache, and the drafter's
Observer = Callable[[Rollouts, TwoPartCache, "TwoPartCache | None"], None]


class Frame:
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
        self.stem: Rollouts | None = None  # the one that parted
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
            reading = self.judge.read(block, hidden)
            accepted = self._accept(block, reading)
            self._commit(block, accepted, taps)
            if block.ahead is not None:
                self._look_ahead(block, accepted, reading)
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

    def fork(self, ids: Ints) -> None:
        """Open branches for these rollouts, in place of any that are done."""
        if self.stem is None:
            self.stem = self.rollouts
        self.rollouts = self.stem.forked(ids)
        left = len(self.script) - 1 - int(self.stem.start[0])
        self.cache.fork(len(ids), branch_rows(self.graphs.manifest, left, self.settings))
        if self.drafter:
            self.drafter.fork(len(ids))
        self._measure_memory()

    def finish(self) -> Ints:
        """[N, L] the outputs."""
        tokens = np.stack([self.finished[i] for i in range(len(self.finished))])
        self.stats.rollouts = len(tokens)
        self._measure_memory()
        self.memory.remember(self.cache, self.draft_cache)
        self.stats.total = time.perf_counter() - self.began
        return tokens[:, self.script.prompt :]

    # The four steps of a round.

    def _propose(self, until: int) -> Block:
        return self.proposer.propose(self.rollouts, until, self.sampling)

    def _verify(self, block: Block) -> tuple[Buffer, Buffer]:
        if block.ahead is not None:
            bias = looking_ahead(block.ahead)
        else:
            bias = causal(block.width) if block.parents is None else tree_bias(block.parents)
        with self.stats.stage("embed"):
            embeddings = self.graphs.embed(block.tokens)
        with self.stats.stage("verify"):
            positions = self.script.turned(block.positions)
            hidden, taps = self.graphs.target(embeddings, positions, bias, self.cache)
        self.stats.target_passes += 1
        return hidden, taps

    def _accept(self, block: Block, reading: Reading) -> Accepted:
        if block.q is None:
            choices = self.judge.choices(block, reading, self.rollouts, self.sampling)
            return by_choice(block, choices)
        p = self.judge.distributions(block, reading, self.sampling)
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

    def _look_ahead(self, block: Block, accepted: Accepted, reading: Reading) -> None:
        assert isinstance(self.drafter, SelfDrafter)
        self.drafter.look(reading, block, accepted, self.rollouts, self.script)

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
