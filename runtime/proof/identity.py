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
from runtime.settings import DecodeSettings, Sampling

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
        u = float(Draws(settings.seed, case.frame).at_position(np.asarray(rollout), position))
        margin = edge_distance(graphs, case, theirs, index, int(ours[index]), u, sampling)
        near = margin < noise_of(graphs).edge
    else:
        margin = top_two_gap(graphs, case.prompt, case.scaffold, theirs, index)
        near = margin < noise_of(graphs).gap
    return Difference(
        frame=case.frame, rollout=rollout, index=index, margin=margin, near_tie=bool(near)
    )


def edge_distance(
    graphs: Graphs, case: Case, output: Ints, index: int, other: int, u: float, sampling: Sampling
) -> float:
    """How far `u` is from the edges of the cumulated distribution between two tokens.

    Rounding can swap output[index] for `other` only where all edges between them are next to u.
    """
    law = value_laws(graphs, case.prompt, case.scaffold, output, np.asarray([index]), sampling)[0]
    low, high = sorted((int(output[index]), other))
    return float(np.abs(law.cumsum()[low:high] - u).max())
