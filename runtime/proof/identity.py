"""Identity: greedy outputs, and samples by rules that follow the target, must be those of `ar`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from runtime.decode import Decoder
from runtime.draws import Draws
from runtime.graphs import Graphs
from runtime.neartie import first_difference, top_two_gap
from runtime.proof.cases import Case, name_of, outputs
from runtime.proof.fresh import value_laws
from runtime.proof.noise import noise_of
from runtime.proof.results import Check, Difference
from runtime.race import Race, is_wide
from runtime.settings import DecodeSettings, Sampling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def identity_check(
    decoder: Decoder,
    cases: Sequence[Case],
    reference: Sequence[Ints],
    settings: DecodeSettings,
    condition: str,
) -> Check:
    """Compare with the outputs [N, L] of `ar` under the same seed; every difference is explained.

    Outputs that part at a near tie may differ in everything behind it.
    """
    found = outputs(decoder, cases, settings)
    differences = [
        explain(decoder.graphs, case, settings, rollout, index, ours, theirs)
        for case, many, plain in zip(cases, found, reference, strict=True)
        for rollout, (ours, theirs) in enumerate(zip(many, plain, strict=True))
        if (index := first_difference(ours, theirs)) is not None
    ]
    compared = sum(len(many) for many in found)
    return Check(
        name="seed by seed" if settings.sampling.temperature > 0 else "greedy",
        decoder=name_of(settings),
        condition=condition,
        passed=all(difference.near_tie for difference in differences),
        samples=compared,
        identical=compared - len(differences),
        differences=differences,
    )


def explain(
    graphs: Graphs,
    case: Case,
    settings: DecodeSettings,
    rollout: int,
    index: int,
    ours: Ints,
    theirs: Ints,
) -> Difference:
    """How close the choice was at output[index], where two outputs [L] part."""
    forked = settings.rollouts > 1 or settings.sampling != settings.prefix_sampling
    sampling = settings.prefix_sampling if forked and index < case.fork else settings.sampling
    if sampling.temperature > 0:
        position = np.asarray(len(case.prompt) + index)
        race = Draws(settings.seed, case.frame).at_position(np.asarray(rollout), position)
        at, tokens = np.asarray([index]), (int(theirs[index]), int(ours[index]))
        law = value_laws(graphs, case.prompt, case.scaffold, theirs, at, sampling)[0]
        if is_wide(law):
            margin = edge_distance(law, tokens, float(race.numbers()))
            near = margin < noise_of(graphs).edge
        else:
            margin = race_gap(law, tokens, race, sampling)
            near = margin < noise_of(graphs).gap
    else:
        margin = top_two_gap(graphs, case.prompt, case.scaffold, theirs, index)
        near = margin < noise_of(graphs).gap
    return Difference(
        frame=case.frame, rollout=rollout, index=index, margin=margin, near_tie=bool(near)
    )


def race_gap(law: Floats, tokens: tuple[int, int], race: Race, sampling: Sampling) -> float:
    """How far the logits of two tokens are from arriving at once under a law [V]; large where one
    has no probability.

    Rounding can swap the winner for another only where this is as small as what it moves logits by.
    """
    noise = race.over(np.asarray(tokens)).noise
    assert noise is not None
    one, other = np.log(noise) - np.log(np.maximum(law[list(tokens)], np.finfo(law.dtype).tiny))
    return float(sampling.temperature * np.abs(one - other))


def edge_distance(law: Floats, tokens: tuple[int, int], u: float) -> float:
    """How far `u` is from the edges of the cumulated law [V] between two tokens.

    Rounding can swap the one for the other only where all edges between them are next to u.
    """
    low, high = sorted(tokens)
    return float(np.abs(law.cumsum()[low:high] - u).max())
