"""The target's word on a sequence, by fresh passes that share nothing with the decode loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import TwoPartCache
from runtime.engines.device import Buffer
from runtime.graphs import Graphs
from runtime.inputs import whole_pass
from runtime.prompt import Prompt
from runtime.sampling import distribution, restrict
from runtime.scaffold import Scaffold
from runtime.settings import Sampling
from runtime.tree import causal

Array = NDArray[Any]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RememberedPrefill(Graphs):
    """Graphs that pass a prompt once, and hand out the same rows when it comes again.

    A sample is drawn in many small decodes of one prompt; their prefills would be most of the work.
    """

    def __init__(self, graphs: Graphs) -> None:
        self.__dict__.update(graphs.__dict__)
        self._prompt = np.zeros(0, np.float32)
        self._rows: list[Buffer] = []
        self._out: tuple[Buffer, Buffer] = (self._prompt, self._prompt)

    def target(
        self,
        embeddings: Buffer,
        positions: Array,
        rows_bias: Array,
        cache: TwoPartCache,
        deepstack: Buffer | None = None,
    ) -> tuple[Buffer, Buffer]:
        if cache.trunk.used:
            return super().target(embeddings, positions, rows_bias, cache, deepstack)
        prompt = self.device.to_host(embeddings)
        if not np.array_equal(prompt, self._prompt):
            hidden, taps = super().target(embeddings, positions, rows_bias, cache, deepstack)
            self._prompt, self._out = prompt.copy(), (self._kept(hidden), self._kept(taps))
            self._rows = [self._kept(rows) for rows in cache.reserve(embeddings.shape[1])]
        else:
            for into, rows in zip(cache.reserve(embeddings.shape[1]), self._rows, strict=True):
                self.device.copy(rows, into)
        return self._out

    def _kept(self, buffer: Buffer) -> Buffer:
        """A copy that no later pass writes over; both dimensions in front stay."""
        a, b = buffer.shape[:2]
        kept: Buffer = self.device.gather([(buffer, np.arange(a * b).reshape(a, b))])
        return kept


@dataclass(frozen=True)
class FreshPass:
    """One causal pass over a whole sequence: hidden [S, d], taps [S, K*d], and its cache."""

    hidden: Array
    taps: Array
    cache: TwoPartCache


def fresh_pass(graphs: Graphs, sequence: Prompt | Ints) -> FreshPass:
    """A prefill of a sequence of S; its rows are committed to the cache's trunk."""
    prompt, limits = Prompt.of(sequence), graphs.manifest.limits
    trunk = max(limits.trunk, len(prompt))
    cache = graphs.cache(graphs.manifest.target, trunk, max(limits.branch, 1))
    hidden, taps = whole_pass(graphs, prompt, cache)
    cache.commit(np.ones((1, len(prompt)), np.bool_))
    to_host = graphs.device.to_host
    return FreshPass(to_host(hidden)[0].copy(), to_host(taps)[0].copy(), cache)


def value_laws(
    graphs: Graphs,
    prompt: Prompt | Ints,
    scaffold: Scaffold,
    output: Ints,
    at: Ints,
    sampling: Sampling,
) -> Floats:
    """[M, V] the processed distribution of the tokens output[at], each given all before it."""
    sequence = Prompt.of(prompt).followed_by(output[: int(at.max())])
    hidden = fresh_pass(graphs, sequence).hidden[len(prompt) - 1 + at]
    return _laws(graphs, hidden, scaffold, at, sampling)


def second_laws(
    graphs: Graphs,
    known: Prompt | Ints,
    scaffold: Scaffold,
    firsts: Ints,
    first: int,
    second: int,
    sampling: Sampling,
) -> Floats:
    """[A, V] the law of the value at output[second] behind each of `firsts` [A] at output[first].

    Between the two there are fixed tokens only; `known` is the prompt and output[:first].
    """
    between = scaffold.tokens[first + 1 : second]
    places = len(known) + np.arange(second - first)
    turned = Prompt.of(known).rotary(len(known) + len(places))
    positions = places if turned is None else turned[..., places]
    laws = []
    for batch in np.array_split(firsts, -(-len(firsts) // graphs.manifest.limits.rollouts)):
        cache = fresh_pass(graphs, known).cache
        cache.fork(len(batch))
        tokens = np.column_stack([batch, np.tile(between, (len(batch), 1))])
        rows = np.repeat(positions[..., None, :], len(batch), axis=-2)
        hidden, _ = graphs.target(graphs.embed(tokens), rows, causal(len(places)), cache)
        last = graphs.device.to_host(hidden)[:, -1]
        laws.append(_laws(graphs, last, scaffold, np.asarray(second), sampling))
    return np.concatenate(laws)


def _laws(
    graphs: Graphs, hidden: Array, scaffold: Scaffold, at: Ints, sampling: Sampling
) -> Floats:
    """[M, V] behind hidden rows [M, d], as the tokens at `at` ([M] or one for all)."""
    logits = graphs.head(np.ascontiguousarray(hidden)[None])[0]
    return distribution(restrict(logits, scaffold.bias_at(at)), sampling)
