"""The planner: one observation in, one plan out."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planners.language import Language, ParseError
from planners.observation import FUTURE_STATES, RATE_HZ, Observation
from planners.plan import Aggregate, Plan
from planners.prompt import prompt_text
from planners.rollouts import aggregate, impossible
from planners.tokens import SpecialNames, Tokenizer
from planners.trajectory import to_trajectory
from runtime.bundle import Bundle
from runtime.costs import load_or_measure
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine, usable_cores
from runtime.errors import BundleError
from runtime.graphs import Graphs
from runtime.settings import DecodeSettings
from runtime.tune import Threading, check_threads, fastest

Floats = NDArray[np.float64]
TIMES = np.arange(1, FUTURE_STATES + 1) / RATE_HZ


class Planner:
    """A bundle, opened and ready: its graphs, language and tokenizer.

    Attributes:
        bundle, language, tokenizer: what was loaded.
        threading: the engines' threads.
    """

    def __init__(self, bundle: Bundle, graphs: Graphs, threading: Threading) -> None:
        manifest = bundle.manifest
        if manifest.language is None:
            raise BundleError(
                f"{bundle.folder} names no language",
                expected="`language` in bundle.json: what the outputs look like",
                found="none",
                fix="export a driving planner: its folder holds a language.json",
            )
        self.bundle = bundle
        self.tokenizer = Tokenizer.load(
            bundle.folder / manifest.tokenizer,
            SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token),
            vocab=manifest.target.vocab,
        )
        self.language = Language.load(bundle.folder / manifest.language)
        self.scaffold = self.language.compile(self.tokenizer)
        self.threading = threading
        key = f"{bundle.key}-{'spin' if threading.spinning else 'wait'}"
        curve = load_or_measure(graphs, key, threading.threads) if manifest.draft else None
        self.decoder = Decoder(graphs, curve)

    @classmethod
    def load(cls, folder: str | Path, threads: int | None = None) -> Planner:
        """Open a bundle with ONNX Runtime.

        Args:
            threads: of the engine; None measures which number is fastest on this machine.

        Raises:
            BundleError, EngineError: see there.
        """
        check_threads(threads)
        bundle = Bundle.open(folder)

        def open_graphs(threading: Threading) -> Graphs:
            return Graphs(
                bundle,
                lambda path: OnnxEngine(
                    path, threads=threading.threads, spinning=threading.spinning
                ),
            )

        if threads is None:
            threading = fastest(open_graphs, usable_cores(), bundle.key)
        else:
            threading = Threading(threads)
        return cls(bundle, open_graphs(threading), threading)

    def plan(
        self,
        observation: Observation,
        settings: DecodeSettings | None = None,
        rule: Aggregate = "guarded",
    ) -> Plan:
        """Plan the next five seconds.

        Args:
            settings: how to decode; its frame is replaced by the observation's.
            rule: how the rollouts become one trajectory.

        Raises:
            SlipstreamError: an observation in another frame than that of its last state, more
                rollouts than the bundle was made for, or settings that it can't run.
        """
        observation.check_frame()
        began = time.perf_counter()
        settings = replace(settings or DecodeSettings(), frame=observation.frame)
        prompt = np.asarray(self.tokenizer.encode(prompt_text(observation)), np.int64)
        decoded = self.decoder.decode(prompt, self.scaffold, settings, self.language.fork_section)
        speed = float(observation.speeds[-1])
        rollouts, problems = self._trajectories(
            decoded.tokens, speed, float(observation.accelerations[-1])
        )
        valid = np.asarray([not problem for problem in problems])
        chosen = aggregate(rollouts, valid, speed, rule)
        return Plan(
            trajectory=chosen.trajectory,
            times=TIMES,
            rollouts=rollouts,
            valid=valid,
            problems=tuple(problems),
            tokens=decoded.tokens,
            rule=chosen.rule,
            spread=chosen.spread,
            latency=time.perf_counter() - began,
            stats=decoded.stats,
            frame=observation.frame,
            time=observation.time,
            flags=chosen.flags,
        )

    def text(self, tokens: NDArray[np.int64]) -> str:
        """An output [L] as text, padding left out."""
        silent = {self.tokenizer.null, self.tokenizer.eos}
        return self.tokenizer.decode([int(t) for t in tokens if t not in silent])

    def _trajectories(
        self, tokens: NDArray[np.int64], speed: float, acceleration: float
    ) -> tuple[Floats, list[str]]:
        """[N, 20, 2] m, NaN where an output is unusable, and each rollout's problem or ''."""
        waypoints = np.full((len(tokens), 5, 2), np.nan)
        problems = [""] * len(tokens)
        for i, output in enumerate(tokens):
            try:
                parsed = self.language.parse(output, self.tokenizer)
                waypoints[i] = self.language.waypoints(parsed)
            except ParseError as error:
                problems[i] = f"parse: {error.kind}"
        rollouts = to_trajectory(waypoints, speed, acceleration)
        for i, trajectory in enumerate(rollouts):
            problems[i] = problems[i] or impossible(trajectory, speed)
            if problems[i]:
                rollouts[i] = np.nan
        return rollouts, problems
