"""A comparison of made-up figures: two drafters, three seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from drives.results import Machine, Position
from slipstream.compare.results import (
    Acceptance,
    Budget,
    Comparison,
    Entry,
    Measured,
    Proven,
    SectionAcceptance,
    Study,
)


def acceptance(shape: str, heat: float, tau: float) -> Acceptance:
    return Acceptance(
        shape=shape,  # type: ignore[arg-type]
        rule="block",
        temperature=heat,
        tau=tau,
        target_passes=170 / tau,
        tokens_per_pass=tau,
        rate=0.5,
        by_position=[Position(position=k, drafted=10, accepted=10 - k) for k in (1, 2)],
        by_section={
            "motion": SectionAcceptance(tau=tau + 1, rate=0.9),
            "trajectory": SectionAcceptance(tau=tau - 1, rate=None),
        },
    )


def measured(seed: int, tau: float) -> Measured:
    return Measured(
        seed=seed,
        train_s=10.0,
        parameters=1_500_000,
        draft_ms=2.0,
        draft_share=0.25,
        cache_mb=4.0,
        weights_mb=6.5,
        latency_ms=100.0,
        speedup=3.0,
        speedup_scaffold=1.5,
        acceptance=[acceptance("chain", heat, tau - heat) for heat in (0.0, 1.0)],
    )


def proof(failed: Sequence[str] = (), missed: Sequence[str] = ()) -> Proven:
    return Proven(checks=9, failed=list(failed), faults=3, missed=list(missed), samples=64)


def entry(name: str, taus: tuple[float, ...], proof: Proven | None = None) -> Entry:
    return Entry(
        name=name,
        kind="dflash",
        layers=3,
        objective="1 ce",
        data=1.0,
        steps=100,
        seeds=[measured(seed, tau) for seed, tau in enumerate(taus)],
        proof=proof,
    )


@pytest.fixture
def comparison() -> Comparison:
    """`better` has twice the acceptance length of `base`, seed by seed."""
    return Comparison(
        created="2026-01-01T00:00:00+00:00",
        command="slipstream compare a.yaml -o out",
        machine=Machine(
            cpu="a CPU", cores=2, threads=1, memory_gb=8.0, system="Linux", versions={"numpy": "2"}
        ),
        budget=Budget(target="tiny", outputs=40, steps=100, batch=8, anchors=16, seeds=[0, 1, 2]),
        drives=["a drive"],
        frames=4,
        block=16,
        nodes=32,
        entries=[
            entry("base", (5.0, 6.0, 7.0), proof(missed=["residual dropped"])),
            entry("better", (10.0, 12.0, 14.0), proof(failed=["greedy"])),
        ],
        studies=[Study(name="both", question="Which?", base="base", entries=["base", "better"])],
    )
