"""A drafter's bundle in the real loop: acceptance, passes and time on held-out frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import slipstream
from drives.costs import latencies, positions, sections, stages
from drives.replay import replay
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from runtime.settings import Accept, DecodeSettings, Method, Sampling
from slipstream.commands.session import output_length
from slipstream.compare.results import Acceptance, Measured, SectionAcceptance, Shape

METHOD: dict[Shape, Method] = {"chain": "dflash", "tree": "ddtree"}
RULE: dict[Shape, Accept] = {"chain": "block", "tree": "coupled"}
_REFERENCES: tuple[Method, ...] = ("ar", "ar-scaffold")


@dataclass(frozen=True)
class Evaluation:
    """How every bundle is measured.

    Attributes:
        windows: held-out frames.
        temperatures: of the trajectory.
        shapes: of the proposals.
        block: width of a drafted block, anchor included; fixed, so that outputs repeat.
        nodes: of a tree, its root not counted.
        threads: of the engine.
    """

    windows: Sequence[Window]
    temperatures: Sequence[float]
    shapes: Sequence[Shape]
    block: int
    nodes: int
    threads: int = 1

    def settings(self, shape: Shape, temperature: float, widest: int) -> DecodeSettings:
        """Of one decoder; no block is wider than the drafter's own."""
        return DecodeSettings(
            method=METHOD[shape],
            accept=RULE[shape],
            block=min(self.block, widest),
            nodes=self.nodes if shape == "tree" else None,
            sampling=Sampling(temperature),
        )


def measure(
    bundle: Path,
    evaluation: Evaluation,
    *,
    seed: int,
    train_s: float,
    parameters: int,
    progress: Callable[[int], None] = lambda frames: None,
) -> Measured:
    """Replay the windows with both references, and with the drafter at every temperature.

    All decoders run frame by frame in turn, so a busy machine slows them alike.

    Raises:
        SlipstreamError: the bundle can't be loaded.
    """
    planner = slipstream.load(bundle, evaluation.threads)
    assert planner.bundle.manifest.draft is not None
    widest = planner.bundle.manifest.draft.block
    drafting = {
        (shape, temperature): evaluation.settings(shape, temperature, widest)
        for shape in evaluation.shapes
        for temperature in evaluation.temperatures
    }
    named = {_name(*key): settings for key, settings in drafting.items()}
    for reference in _REFERENCES:
        named[reference] = DecodeSettings(method=reference)
    ran = replay(planner, evaluation.windows, named, progress=progress)
    quickest = _name("chain", min(evaluation.temperatures))
    plans = ran.plans[quickest]
    latency, stage = latencies(plans), stages(plans)
    passes = float(np.mean([plan.stats.draft_passes for plan in plans]))
    return Measured(
        seed=seed,
        train_s=train_s,
        parameters=parameters,
        draft_ms=stage["draft"] / max(passes, 1e-9),
        draft_share=stage["draft"] / float(latency.mean()),
        cache_mb=max(plan.stats.cache_bytes for plan in plans) / 1e6,
        weights_mb=sum(file.stat().st_size for file in bundle.glob("draft*")) / 1e6,
        latency_ms=float(np.median(latency)),
        speedup=float(np.median(latencies(ran.plans["ar"]) / latency)),
        speedup_scaffold=float(np.median(latencies(ran.plans["ar-scaffold"]) / latency)),
        acceptance=[
            acceptance(planner, shape, settings, ran.plans[_name(shape, temperature)])
            for (shape, temperature), settings in drafting.items()
        ],
    )


def acceptance(
    planner: Planner, shape: Shape, settings: DecodeSettings, plans: Sequence[Plan]
) -> Acceptance:
    """What verification kept over all frames."""
    rounds, committed, proposed, accepted, passes = (
        sum(getattr(plan.stats, name) for plan in plans)
        for name in ("rounds", "committed", "proposed", "accepted", "target_passes")
    )
    tokens = len(plans) * output_length(planner).of(settings.rollouts)
    return Acceptance(
        shape=shape,
        rule=settings.rule,
        temperature=settings.sampling.temperature,
        tau=committed / max(rounds, 1),
        target_passes=passes / len(plans),
        tokens_per_pass=tokens / max(passes, 1),
        rate=accepted / proposed if proposed else None,
        by_position=positions(plans),
        by_section={
            name: SectionAcceptance(tau=section.acceptance_length, rate=section.acceptance_rate)
            for name, section in sections(plans).items()
        },
    )


def _name(shape: Shape, temperature: float) -> str:
    return f"{shape} T={temperature:g}"
