"""Distribution: what a sampled rule gives must have the target's distribution, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.decode import Decoder
from runtime.proof.cases import name_of, outputs
from runtime.proof.probes import Probe
from runtime.proof.results import Check, CheckName
from runtime.proof.statistics import Distance, chi_square_p, fit, permutation_test, pull
from runtime.settings import DecodeSettings

Ints = NDArray[np.int64]

STREAM = 1 << 32  # seeds from one stream to the next: no two samples share a number
TESTS: tuple[CheckName, ...] = ("first token", "two tokens", "drafter's pull", "total variation")


@dataclass(frozen=True)
class Looks:
    """When to look at a growing sample, and below which p-value a test fails.

    Looks and tests share alpha by Bonferroni, so stopping at the first failure is sound.

    Attributes:
        draws: per probe, at which the tests are made, rising.
    """

    draws: tuple[int, ...]
    threshold: float


def grow(
    decoder: Decoder,
    probes: Sequence[Probe],
    settings: DecodeSettings,
    drawn: Sequence[Ints],
    wanted: int,
) -> list[Ints]:
    """Draw at every probe until there are at least `wanted` outputs [n, L]; seeds count up."""
    grown = []
    for probe, rows in zip(probes, drawn, strict=True):
        parts = [rows]
        for done in range(len(rows), wanted, settings.rollouts):
            seed = settings.seed + done // settings.rollouts
            parts += outputs(decoder, [probe.case], replace(settings, seed=seed))
        grown.append(np.concatenate(parts))
    return grown


def nothing(probes: Sequence[Probe]) -> list[Ints]:
    """Before the first draw: [0, L] of every probe."""
    return [np.zeros((0, len(probe.case.scaffold)), np.int64) for probe in probes]


def distribution_checks(
    decoder: Decoder,
    probes: Sequence[Probe],
    settings: DecodeSettings,
    looks: Looks,
    plain: Sequence[Ints] | None,
) -> list[Check]:
    """Draw and test, look by look, until a test fails or the sample is complete.

    Args:
        settings: its seed begins a stream of its own.
        plain: outputs of `ar` at every probe, of another stream, for the total variation; None
            makes the tests against the exact distribution alone.
    """
    drawn = nothing(probes)
    checks: list[Check] = []
    for wanted in looks.draws:
        drawn = grow(decoder, probes, settings, drawn, wanted)
        checks = [
            _check(name, figure, looks, settings, probes, drawn)
            for name, figure in _exact(probes, drawn).items()
        ]
        if plain is not None and all(check.passed for check in checks):
            rng = np.random.default_rng([settings.seed, wanted])
            figure = permutation_test(_values(probes, drawn, plain), looks.threshold, rng)
            checks.append(_check("total variation", figure, looks, settings, probes, drawn))
        if not all(check.passed for check in checks):
            break
    return checks


def _exact(probes: Sequence[Probe], drawn: Sequence[Ints]) -> dict[CheckName, Distance]:
    """Against the exact distributions, over all probes together."""
    firsts = [rows[:, probe.values[0]] for probe, rows in zip(probes, drawn, strict=True)]
    first = [
        fit(np.bincount(tokens, minlength=len(probe.first)), probe.first)
        for probe, tokens in zip(probes, firsts, strict=True)
    ]
    both = [
        fit(probe.joint_counts(rows), probe.joint)
        for probe, rows in zip(probes, drawn, strict=True)
        if probe.second is not None
    ]
    p, q = [probe.first for probe in probes], [probe.drafter for probe in probes]
    return {
        "first token": _summed(first),
        "two tokens": _summed(both),
        "drafter's pull": pull(firsts, p, q),
    }


def _summed(fits: Sequence[tuple[float, int]]) -> Distance:
    """Chi-squares of independent samples, added up."""
    statistic = sum(each for each, _ in fits)
    freedom = sum(each for _, each in fits)
    return Distance(statistic, float(freedom), chi_square_p(statistic, freedom))


def _values(
    probes: Sequence[Probe], drawn: Sequence[Ints], plain: Sequence[Ints]
) -> list[tuple[Ints, Ints]]:
    return [
        (ours[:, probe.values], theirs[:, probe.values])
        for probe, ours, theirs in zip(probes, drawn, plain, strict=True)
    ]


def _check(
    name: CheckName,
    distance: Distance,
    looks: Looks,
    settings: DecodeSettings,
    probes: Sequence[Probe],
    drawn: Sequence[Ints],
) -> Check:
    finite = bool(np.isfinite(distance.figure))
    return Check(
        name=name,
        decoder=name_of(settings),
        condition=f"{len(probes)} places",
        passed=distance.p_value >= looks.threshold,
        samples=sum(len(rows) for rows in drawn),
        p_value=distance.p_value,
        figure=distance.figure if finite else None,
        null=distance.null,
        note="" if finite else "a token that the target can't give",
    )
