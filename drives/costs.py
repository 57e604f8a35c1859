"""What decoding cost over the frames of a replay: latency, stages and acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drives.results import Position, Section, Settings
from planners.plan import Plan
from runtime.settings import UNVERIFIED, DecodeSettings
from runtime.telemetry import STAGES

Floats = NDArray[np.float64]

OUTLIER = 5.0  # medians
LEAST_FOR_P99 = 100  # frames; with fewer, p99 is the slowest frame


def latencies(plans: Sequence[Plan]) -> Floats:
    """[W] ms, observation to plan."""
    return np.array([1e3 * plan.latency for plan in plans])


def outliers(milliseconds: Floats) -> NDArray[np.int64]:
    """Places of the frames slower than OUTLIER medians: what stalled the machine is in them."""
    return np.flatnonzero(milliseconds > OUTLIER * percentile(milliseconds, 50))


def percentile(values: Floats, percent: float) -> float:
    """A value that was measured (no interpolation), so that p99 of few frames invents nothing."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def stages(plans: Sequence[Plan]) -> dict[str, float]:
    """Mean ms a frame by engine stage, then `host` and `planning`; they add up to the latency."""
    mean = {name: 1e3 * float(np.mean([p.stats.seconds[name] for p in plans])) for name in STAGES}
    mean["host"] = 1e3 * float(np.mean([plan.stats.host for plan in plans]))
    mean["planning"] = 1e3 * float(np.mean([plan.latency - plan.stats.total for plan in plans]))
    return mean


def positions(plans: Sequence[Plan]) -> list[Position]:
    """Drafted and accepted value tokens by place in the block, up to the last place used."""
    drafted, accepted = np.sum([plan.stats.by_position for plan in plans], axis=0)
    return [
        Position(position=int(place), drafted=int(drafted[place]), accepted=int(accepted[place]))
        for place in np.flatnonzero(drafted)
    ]


def sections(plans: Sequence[Plan]) -> dict[str, Section]:
    """Verification by output section, summed over frames and rollouts."""
    totals: dict[str, NDArray[np.int64]] = {}
    for plan in plans:
        for name, counts in plan.stats.by_section.items():
            totals[name] = totals.get(name, np.zeros(4, np.int64)) + counts
    return {name: _section([int(count) for count in total]) for name, total in totals.items()}


def _section(counts: Sequence[int]) -> Section:
    rounds, committed, proposed, accepted = counts
    return Section(
        rounds=rounds,
        committed=committed,
        proposed=proposed,
        accepted=accepted,
        acceptance_length=committed / rounds if rounds else None,
        acceptance_rate=accepted / proposed if proposed else None,
    )


def settings_of(settings: DecodeSettings) -> Settings:
    return Settings(
        method=settings.method,
        accept=settings.rule,
        block=settings.block,
        nodes=settings.nodes,
        paths=settings.paths,
        threshold=settings.threshold if settings.method in UNVERIFIED else None,
        rollouts=settings.rollouts,
        temperature=settings.sampling.temperature,
        top_k=settings.sampling.top_k,
        top_p=settings.sampling.top_p,
        prefix_temperature=settings.prefix_sampling.temperature,
        seed=settings.seed,
        budget_ms=settings.budget_ms,
    )
