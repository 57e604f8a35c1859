"""The planner: one observation in, one plan out."""

from __future__ import annotations

import time
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planners.language import Language, ParseError
from planners.observation import FUTURE_STATES, RATE_HZ, Observation
from planners.plan import Aggregate, Plan
from planners.prompt import prompt_text
from planners.rollouts import aggregate, impossible
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import Bundle
from runtime.costs import CostCurve, load_or_measure
from runtime.decode import Decoder
from runtime.engines.backend import CPU, Backend
from runtime.engines.onnx import usable_cores
from runtime.errors import BundleError, SlipstreamError
from runtime.graphs import Graphs
from runtime.prompt import Patches, Prompt
from runtime.settings import DecodeSettings
from runtime.tune import Threading, check_threads, fastest

if TYPE_CHECKING:
    from planners.cameras import CameraPrompts

Floats = NDArray[np.float64]
TIMES = np.arange(1, FUTURE_STATES + 1) / RATE_HZ


class Planner:
    """A bundle, opened and ready: its graphs, language and tokenizer.

    It serves one thread at a time: caches and the engine's buffers belong to the frame at work.

    Attributes:
        bundle, language, tokenizer: what was loaded.
        threading: the engines' threads.
        backend: what runs the graphs.
    """

    def __init__(
        self, bundle: Bundle, graphs: Graphs, threading: Threading, backend: Backend = CPU
    ) -> None:
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
        self._cameras = _camera_prompts(bundle, self.tokenizer)
        self.threading, self.backend = threading, backend
        how = ("spin" if threading.spinning else "wait") if backend == CPU else backend.name
        self._costs = f"{bundle.key}-{how.replace(':', '-')}"
        self.decoder = Decoder(graphs, self._curve(graphs) if manifest.draft else None)
        self._at_work = Lock()

    @classmethod
    def load(cls, folder: str | Path, threads: int | None = None, provider: str = "cpu") -> Planner:
        """Open a bundle.

        Args:
            threads: of the engine; None measures which number is fastest on this machine, and
                takes one where the passes run on a GPU.
            provider: what runs the graphs; see `runtime.engines.backend.Backend.parse`.

        Raises:
            BundleError, EngineError: see there.
            SlipstreamError: threads out of range, or an unknown provider.
        """
        check_threads(threads)
        backend = Backend.parse(provider)
        bundle = Bundle.open(folder)
        if threads is not None or backend != CPU:
            threading = Threading(threads or 1)
        else:
            threading = fastest(lambda each: backend.open(bundle, each), usable_cores(), bundle.key)
        return cls(bundle, backend.open(bundle, threading), threading, backend)

    def plan(
        self,
        observation: Observation,
        settings: DecodeSettings | None = None,
        rule: Aggregate = "guarded",
    ) -> Plan:
        """Plan the next five seconds. A plan's latency begins when its pictures are decoded.

        A budget (`settings.budget_ms`) is one of that latency: cutting and encoding the pictures,
        the prompt, parsing and aggregation included. The plan is made of as many rollouts as it has
        time for; one that is late all the same is whole, and has the flag "late".

        Args:
            settings: how to decode; its frame is replaced by the observation's.
            rule: how the rollouts become one trajectory.

        Raises:
            SlipstreamError: an observation in another frame than that of its last state, more
                rollouts than the bundle was made for, settings that it can't run, a picture that is
                missing or of another size, or another thread's plan is not done yet.
        """
        settings = DecodeSettings() if settings is None else settings
        _check_kind("observation", observation, Observation)
        _check_kind("settings", settings, DecodeSettings)
        observation.check_frame()
        if not self._at_work.acquire(blocking=False):
            raise SlipstreamError(
                "a Planner serves one thread at a time",
                expected="the plan before to be done",
                found="a second call of plan while another thread's is at work",
                fix="slipstream.load one planner for each thread, or guard this one with a lock",
            )
        try:
            if settings.budget_ms is not None and self.decoder.curve is None:
                self.decoder.curve = self._curve(self.decoder.graphs)
            return self._plan(observation, settings, rule)
        finally:
            self._at_work.release()

    def _plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        pictures = self._cameras.pictures(observation) if self._cameras else []
        began = time.perf_counter()
        settings = replace(settings, frame=observation.frame)
        patches = self._cameras.patches(pictures) if self._cameras else None
        cut = time.perf_counter() - began
        prompt = self._prompt(observation, patches)
        fork, elapsed = self.language.fork_section, time.perf_counter() - began
        decoded = self.decoder.decode(prompt, self.scaffold, settings, fork, elapsed)
        decoded.stats.add_before("patches", cut)
        speed = float(observation.speeds[-1])
        rollouts, problems = self._trajectories(
            decoded.tokens, speed, float(observation.accelerations[-1])
        )
        valid = np.asarray([not problem for problem in problems])
        chosen = aggregate(rollouts, valid, speed, rule)
        latency = time.perf_counter() - began
        decoded.done(latency)
        late = ("late",) if decoded.stats.met is False else ()
        return Plan(
            trajectory=chosen.trajectory,
            times=TIMES,
            rollouts=rollouts,
            valid=valid,
            problems=tuple(problems),
            tokens=decoded.tokens,
            rule=chosen.rule,
            spread=chosen.spread,
            latency=latency,
            stats=decoded.stats,
            frame=observation.frame,
            time=observation.time,
            flags=(*chosen.flags, *late),
        )

    def prompt(self, observation: Observation) -> Prompt:
        """What the target reads of an observation, pictures included.

        Raises:
            SlipstreamError: a picture is missing, or is not what the bundle was exported for.
        """
        if self._cameras is None:
            return self._prompt(observation, None)
        return self._prompt(observation, self._cameras.patches(self._cameras.pictures(observation)))

    def _prompt(self, observation: Observation, patches: Patches | None) -> Prompt:
        if self._cameras is None:
            tokens = self.tokenizer.encode(prompt_text(observation))
            return Prompt(np.asarray(tokens, np.int64))
        return self._cameras.prompt(observation, patches)

    def forget(self) -> None:
        """Forget what earlier frames taught the cost gate, as if the planner were just loaded."""
        self.decoder.forget()

    def _curve(self, graphs: Graphs) -> CostCurve:
        return load_or_measure(graphs, self._costs, self.threading.threads)

    def text(self, tokens: NDArray[np.int64]) -> str:
        """An output [L] as text, padding left out.

        Raises:
            SlipstreamError: no tokens of the vocabulary in one row.
        """
        row = _row(tokens, self.tokenizer.vocab)
        silent = {self.tokenizer.null, self.tokenizer.eos, *self.bundle.manifest.stop_tokens}
        return self.tokenizer.decode([token for token in row if token not in silent])

    def _trajectories(
        self, tokens: NDArray[np.int64], speed: float, acceleration: float
    ) -> tuple[Floats, list[str]]:
        """[N, 20, 2] m, NaN where an output is unusable, and each rollout's problem or ''."""
        rollouts = np.full((len(tokens), FUTURE_STATES, 2), np.nan)
        problems = [""] * len(tokens)
        for i, output in enumerate(tokens):
            try:
                parsed = self.language.parse(output, self.tokenizer)
                rollouts[i] = self.language.trajectory(parsed, speed, acceleration)
            except ParseError as error:
                problems[i] = f"parse: {error.kind}"
        for i, trajectory in enumerate(rollouts):
            problems[i] = problems[i] or impossible(trajectory, speed)
            if problems[i]:
                rollouts[i] = np.nan
        return rollouts, problems


def _camera_prompts(bundle: Bundle, tokenizer: Tokenizer) -> CameraPrompts | None:
    """What writes the prompts of a bundle with cameras or a `prompt.json`, and loads what it needs
    for that; None for slipstream's own text planners."""
    if bundle.manifest.vision is None and "prompt.json" not in bundle.manifest.files:
        return None
    from planners.cameras import CameraPrompts

    return CameraPrompts(bundle, tokenizer)


def _row(tokens: Any, vocab: int) -> list[int]:
    """One row of tokens as plain numbers; whatever else may be given is refused."""
    try:
        row = list(tokens)
        if all(isinstance(token, Integral) and 0 <= int(token) < vocab for token in row):
            return [int(token) for token in row]
    except TypeError:  # nothing that has a length
        pass
    raise SlipstreamError(
        "tokens can't be told as text",
        expected=f"one row of whole numbers below {vocab}, such as plan.tokens[0]",
        found=" ".join(repr(tokens).split())[:200],
        fix="give the row of one rollout",
    )


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise SlipstreamError(
            f"{name} of a plan has the wrong type",
            expected=f"a slipstream.{kind.__name__}",
            found=f"a {type(value).__name__}",
            fix="see the docstring of `slipstream.Planner.plan`",
        )
