"""The whole proof, check by check: greedy identity, distributions, caches, planted faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from runtime.costs import CostCurve
from runtime.decode import Decoder
from runtime.graphs import Graphs
from runtime.proof.cache import cache_check
from runtime.proof.cases import Case, name_of, outputs
from runtime.proof.controls import (
    ShiftedGraphs,
    accepts_leniently,
    blunted,
    residual_dropped,
)
from runtime.proof.fresh import RememberedPrefill
from runtime.proof.identity import identity_check
from runtime.proof.probes import Probe, choose_probes
from runtime.proof.results import Check, Control, ControlName
from runtime.proof.sampled import STREAM, TESTS, Looks, distribution_checks, grow, nothing
from runtime.settings import FOLLOWING, RULES, Accept, DecodeSettings, Method, Sampling

Ints = NDArray[np.int64]

ALPHA = 1e-3
LOOKS = (0.25, 0.5, 1.0)  # of the sample
CONTROL_LOOKS = (*LOOKS, 2.0, 4.0)  # a faint fault may need more draws than a rule is given
CONTROL_PROBES = 2  # those that tell most
TELLING = 20.0  # squared standard scores that a lenient rule should show, or drafts are blunted
# one for each method; K-SEQ divides by rho > 1, which hides most of a lenient comparison
LENIENT_RULES: tuple[Accept, ...] = ("token", "rrs-wor", "rrs")
FOLLOWING_ROLLOUTS, CACHE_ROLLOUTS = 4, 4
CACHE_CASES = 2
# measured on the shipped planner, in greedy outputs: a batch of draws from a probe on, the plain
# reference, a planted fault (caught early, or after four samples), caches with one rollout and more
_BATCH_EFFORT, _PLAIN_EFFORT, _FAULT_EFFORT, _CACHE_EFFORTS = 0.4, 3.0, 4.0, (8.0, 34.0)
_PLAIN_STREAM, _CONTROL_STREAM = 1, 100  # the rules' streams lie between


@dataclass(frozen=True)
class Options:
    """What to prove.

    Attributes:
        methods: the drafting methods, or some of them.
        samples: outputs drawn for each rule, over all places.
        temperature: of the sampled checks; above 0.
        nodes, paths: of ddtree and spectr.
    """

    methods: tuple[Method, ...] = ("dflash", "ddtree", "spectr")
    temperature: float = 1.0
    samples: int = 2048
    seed: int = 0
    nodes: int = 32
    paths: int = 4


class Suite:
    """One bundle's proof.

    Args:
        cases: frames to run on; `ar` is the reference on each.
        curve: lets the cost gate choose in the greedy check; without one it is left out.
        tell: called with what is done next.
    """

    def __init__(
        self,
        graphs: Graphs,
        curve: CostCurve | None,
        cases: Sequence[Case],
        options: Options,
        tell: Callable[[str], None] = lambda what: None,
    ) -> None:
        draft = graphs.manifest.draft
        assert draft is not None, "nothing drafts"
        self.graphs, self.cases, self.options, self.tell = graphs, cases, options, tell
        self.block = draft.block
        self.rollouts = graphs.manifest.limits.rollouts
        self.decoder = Decoder(graphs, None)
        self.sampler = Decoder(RememberedPrefill(graphs), None)  # the same, for small decodes
        self.gated = Decoder(graphs, curve) if curve else None
        self.sampling = Sampling(options.temperature)
        self.blunted = False  # so that the sampled checks can tell; known with the probes

    @property
    def efforts(self) -> list[float]:
        """About how much work each step of `run` is, in greedy outputs; for progress alone."""
        methods, frames = len(self.options.methods), len(self.cases)
        following = len(self._following)
        draws = _BATCH_EFFORT * self.options.samples / self.rollouts
        greedy = [float(frames)] * (methods * (2 if self.gated else 1))
        greedy[0] += _PLAIN_EFFORT * frames  # the reference is decoded on the way
        rules = [draws] * len(self._distribution_settings)
        if rules:
            rules[0] += _PLAIN_EFFORT * draws
        caches = list(_CACHE_EFFORTS) * methods
        faults = [_FAULT_EFFORT * draws] * len(self._faults)
        return [*greedy, *[frames / 2.0] * following, *rules, *caches, *faults]

    @property
    def threshold(self) -> float:
        """The p-value below which one test fails at one look."""
        tests = len(TESTS) * len(self._distribution_settings)
        return ALPHA / (len(LOOKS) * max(1, tests))

    def run(self) -> Iterator[list[Check] | Control]:
        """Everything, in order; each step's results as soon as they are there."""
        yield from self.greedy()
        yield from self.following()
        yield from self.distributions()
        yield from self.caches()
        yield from self.controls()

    def greedy(self) -> Iterator[list[Check]]:
        """Identity with `ar`, at the drafter's full block and at the gate's choice."""
        for method in self.options.methods:
            self.tell(f"{method}: greedy, token for token")
            fixed = self._settings(method)
            yield [
                identity_check(
                    self.decoder, self.cases, self.greedy_outputs, fixed, f"block {self.block}"
                )
            ]
            if self.gated:
                free = replace(fixed, block=None, nodes=None)
                yield [
                    identity_check(self.gated, self.cases, self.greedy_outputs, free, "cost gate")
                ]

    def following(self) -> Iterator[list[Check]]:
        """Rules that follow the target's own draws give what `ar` does, seed by seed; on every
        second frame."""
        cases = self.cases[::2]
        rollouts = min(FOLLOWING_ROLLOUTS, self.rollouts)
        plain: list[Ints] = []
        for method, rule in self._following:
            settings = replace(
                self._settings(method, rule), rollouts=rollouts, sampling=self.sampling
            )
            self.tell(f"{name_of(settings)}: sampled, token for token")
            same = replace(settings, method="ar", accept=None, block=None, nodes=None)
            plain = plain or outputs(self.decoder, cases, same)
            condition = f"block {self.block}, {rollouts} rollouts"
            yield [identity_check(self.decoder, cases, plain, settings, condition)]

    def distributions(self) -> Iterator[list[Check]]:
        """Every other rule has the target's distribution."""
        looks = self._looks(LOOKS, len(self.probes))
        for stream, settings in enumerate(self._distribution_settings, _PLAIN_STREAM + 1):
            self.tell(f"{name_of(settings)}: distribution")
            settings = self._in_stream(settings, stream)
            with self._telling_drafts():
                checks = distribution_checks(
                    self.sampler, self.probes, settings, looks, self.plain_draws
                )
            yield checks

    def caches(self) -> Iterator[list[Check]]:
        """Every method's caches, with one rollout and with several."""
        for method in self.options.methods:
            for rollouts in sorted({1, min(CACHE_ROLLOUTS, self.rollouts)}):
                settings = replace(
                    self._settings(method), rollouts=rollouts, sampling=self.sampling
                )
                self.tell(f"{name_of(settings)}: caches, rollouts {rollouts}")
                yield [
                    cache_check(self.graphs, case, settings, f"rollouts {rollouts}")
                    for case in self.cases[:CACHE_CASES]
                ]

    def controls(self) -> Iterator[Control]:
        """Planted faults."""
        for stream, (name, settings) in enumerate(self._faults, _CONTROL_STREAM):
            self.tell(f"{name_of(settings)}: planted fault, {name}")
            settings = self._in_stream(settings, stream)
            if name == "position shifted":
                yield self._shifted(settings)
                continue
            fault = residual_dropped if name == "residual dropped" else accepts_leniently
            with fault(settings.rule):
                yield self._faulty(name, self.sampler, settings)

    def _shifted(self, settings: DecodeSettings) -> Control:
        """Greedy first: there a single frame can show it."""
        decoder = Decoder(ShiftedGraphs(self.graphs), None)
        greedy = replace(settings, sampling=Sampling(), rollouts=1)
        for i, case in enumerate(self.cases):
            check = identity_check(decoder, [case], self.greedy_outputs[i : i + 1], greedy, "")
            if not check.passed:
                return _caught("position shifted", settings, [check], i + 1)
        control = self._faulty("position shifted", decoder, settings)
        if control.caught:
            return control
        check = cache_check(ShiftedGraphs(self.graphs), self.cases[0], settings, "")
        return control if check.passed else _caught("position shifted", settings, [check], 1)

    def _faulty(self, name: ControlName, decoder: Decoder, settings: DecodeSettings) -> Control:
        """The tests that a rule goes through, until one of them fails."""
        probes = sorted(self.probes, key=lambda probe: -probe.power)[:CONTROL_PROBES]
        looks = self._looks(CONTROL_LOOKS, len(probes))
        with self._telling_drafts():
            checks = distribution_checks(decoder, probes, settings, looks, None)
        return _caught(name, settings, checks, checks[0].samples)

    @cached_property
    def greedy_outputs(self) -> list[Ints]:
        """[1, L] of `ar` for every case."""
        self.tell("ar: greedy, the reference")
        return outputs(self.decoder, self.cases, DecodeSettings("ar"))

    @cached_property
    def probes(self) -> list[Probe]:
        """Where distributions are tested."""
        greedy = [rows[0] for rows in self.greedy_outputs]
        self.tell("looking for places that can tell")
        chosen = partial(
            choose_probes, self.decoder, self.cases, greedy, self.sampling, self.options.samples
        )
        probes = chosen()
        if sum(probe.power for probe in probes) / len(probes) * self.options.samples >= TELLING:
            return probes
        self.blunted = True
        with blunted():
            return chosen()

    @contextmanager
    def _telling_drafts(self) -> Iterator[None]:
        """Draft as the probes were chosen for."""
        assert self.probes
        with blunted() if self.blunted else nullcontext():
            yield

    @cached_property
    def plain_draws(self) -> list[Ints]:
        """[n, L] drawn by `ar` at every probe."""
        self.tell("ar: sampled, the reference")
        settings = replace(DecodeSettings("ar"), rollouts=self.rollouts, sampling=self.sampling)
        settings = self._in_stream(settings, _PLAIN_STREAM)
        wanted = max(self._looks(LOOKS, len(self.probes)).draws)
        return grow(self.sampler, self.probes, settings, nothing(self.probes), wanted)

    @property
    def _following(self) -> list[tuple[Method, Accept]]:
        """Methods and rules by which the target's own draws decide."""
        methods = self.options.methods
        return [(m, rule) for m in methods for rule in RULES[m] if rule in FOLLOWING]

    @property
    def _distribution_settings(self) -> list[DecodeSettings]:
        """Every rule with draws of its own, at full width."""
        return [
            replace(self._settings(method, rule), rollouts=self.rollouts, sampling=self.sampling)
            for method in self.options.methods
            for rule in RULES[method]
            if rule not in FOLLOWING
        ]

    @property
    def _faults(self) -> list[tuple[ControlName, DecodeSettings]]:
        """Every fault with the settings it is planted in."""
        rules = self._distribution_settings
        some = [each for each in rules if each.rule in LENIENT_RULES]
        return [
            *[("residual dropped", each) for each in rules],
            *[("accepts at 0.9", each) for each in some],
            *[("position shifted", each) for each in some],
        ]

    def _settings(self, method: Method, rule: Accept | None = None) -> DecodeSettings:
        nodes = min(self.options.nodes, self.graphs.manifest.limits.branch - 1)
        return DecodeSettings(
            method=method,
            accept=rule,
            block=self.block,
            nodes=nodes,
            paths=self.options.paths,
            seed=self.options.seed,
        )

    def _in_stream(self, settings: DecodeSettings, stream: int) -> DecodeSettings:
        return replace(settings, seed=settings.seed + stream * STREAM)

    def _looks(self, shares: Sequence[float], probes: int) -> Looks:
        each = self.options.samples / probes
        return Looks(tuple(max(1, round(each * share)) for share in shares), self.threshold)


def _caught(name: ControlName, settings: DecodeSettings, checks: list[Check], n: int) -> Control:
    """What the checks made of a planted fault; the first that failed, or the nearest to it."""
    nearest = min(checks, key=lambda check: (check.passed, check.p_value or 0.0))
    return Control(
        name=name,
        decoder=name_of(settings),
        caught=not nearest.passed,
        by="" if nearest.passed else nearest.name,
        samples=n,
        p_value=nearest.p_value,
    )
