"""How close a greedy choice was: two engines' passes of other widths may round it either way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.graphs import Graphs
from runtime.inputs import whole_pass
from runtime.prompt import Prompt
from runtime.sampling import restrict
from runtime.scaffold import Scaffold

Ints = NDArray[np.int64]


def first_difference(one: Ints, other: Ints) -> int | None:
    """Index of the first place where two outputs [L] differ."""
    differs = np.flatnonzero(one != other)
    return int(differs[0]) if len(differs) else None


def top_two_gap(
    graphs: Graphs, prompt: Prompt | Ints, scaffold: Scaffold, output: Ints, index: int
) -> float:
    """Logit gap of the two likeliest allowed tokens at `output[index]`, given what precedes it.

    Computed by one fresh pass over prompt and output, without any cache. Where greedy outputs part
    at a gap of the order of rounding noise, neither is wrong.
    """
    sequence = Prompt.of(prompt).followed_by(output[:index])
    limits = graphs.manifest.limits
    trunk = max(limits.trunk, len(sequence))  # a frame with rollouts has rows in its branches too
    cache = graphs.cache(graphs.manifest.target, trunk, limits.branch)
    hidden, _ = whole_pass(graphs, sequence, cache)
    last = np.zeros(1, np.int64), np.full(1, len(sequence) - 1)
    logits = graphs.head_at(hidden, last)[0]
    second, first = np.sort(restrict(logits[None], scaffold.bias_at(np.asarray([index])))[0])[-2:]
    return float(first - second)
