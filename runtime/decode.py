"""Decodes outputs: prefill, the prefix once, fork, then the rollouts in batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.anytime import Anytime, Fork
from runtime.cache import TwoPartCache
from runtime.costs import CostCurve
from runtime.fits import check_fits
from runtime.frame import Frame, Observer
from runtime.gate import Gate, arms_of, widths_of
from runtime.graphs import Graphs
from runtime.prompt import Prompt
from runtime.reuse import TrunkMemory
from runtime.scaffold import Scaffold
from runtime.script import Script
from runtime.settings import DRAFTING, DecodeSettings
from runtime.step_gate import StepGate
from runtime.telemetry import FrameStats
from runtime.threads import one_blas_thread

Array = NDArray[Any]
Ints = NDArray[np.int64]


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
            widths, arms = widths_of(draft, settings.method), arms_of(draft, settings.method)
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
        with one_blas_thread():
            return self._decode(prompt, script, settings, fork, elapsed)

    def _decode(
        self, prompt: Prompt, script: Script, settings: DecodeSettings, fork: int, elapsed: float
    ) -> Decoded:
        frame = Frame(self, prompt, script, settings)
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
