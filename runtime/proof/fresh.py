"""The target's word on a sequence, by fresh passes that share nothing with the decode loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import TwoPartCache
from runtime.engines.device import Buffer
from runtime.graphs import Graphs
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
        self, embeddings: Buffer, positions: Array, rows_bias: Array, cache: TwoPartCache
    ) -> tuple[Buffer, Buffer]:
        if cache.trunk.used:
            return super().target(embeddings, positions, rows_bias, cache)
        prompt = self.device.to_host(embeddings)
        if not np.array_equal(prompt, self._prompt):
            hidden, taps = super().target(embeddings, positions, rows_bias, cache)
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


def fresh_pass(graphs: Graphs, tokens: Ints) -> FreshPass:
    """A prefill of tokens [S] at positions 0..S-1; its rows are committed to the cache's trunk."""
    limits = graphs.manifest.limits
    cache = graphs.cache(
        graphs.manifest.target, max(limits.trunk, len(tokens)), max(limits.branch, 1)
    )
    hidden, taps = _causal_pass(graphs, tokens[None], 0, cache)
    cache.commit(np.ones((1, len(tokens)), np.bool_))
    to_host = graphs.device.to_host
    return FreshPass(to_host(hidden)[0].copy(), to_host(taps)[0].copy(), cache)


def value_laws(
    graphs: Graphs, prompt: Ints, scaffold: Scaffold, output: Ints, at: Ints, sampling: Sampling
) -> Floats:
    """[M, V] the processed distribution of the tokens output[at], each given all before it."""
    sequence = np.concatenate([prompt, output])[: len(prompt) + int(at.max())]
    hidden = fresh_pass(graphs, sequence).hidden[len(prompt) - 1 + at]
    return _laws(graphs, hidden, scaffold, at, sampling)


def second_laws(
    graphs: Graphs,
    known: Ints,
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
    laws = []
    for batch in np.array_split(firsts, -(-len(firsts) // graphs.manifest.limits.rollouts)):
        cache = fresh_pass(graphs, known).cache
        cache.fork(len(batch))
        tokens = np.column_stack([batch, np.tile(between, (len(batch), 1))])
        hidden, _ = _causal_pass(graphs, tokens, len(known), cache)
        last = graphs.device.to_host(hidden)[:, -1]
        laws.append(_laws(graphs, last, scaffold, np.asarray(second), sampling))
    return np.concatenate(laws)


def _causal_pass(
    graphs: Graphs, tokens: Ints, start: int, cache: TwoPartCache
) -> tuple[Buffer, Buffer]:
    n, s = tokens.shape
    positions = np.tile(np.arange(start, start + s), (n, 1))
    return graphs.target(graphs.embed(tokens), positions, causal(s), cache)


def _laws(
    graphs: Graphs, hidden: Array, scaffold: Scaffold, at: Ints, sampling: Sampling
) -> Floats:
    """[M, V] behind hidden rows [M, d], as the tokens at `at` ([M] or one for all)."""
    logits = graphs.head(np.ascontiguousarray(hidden)[None])[0]
    return distribution(restrict(logits, scaffold.bias_at(at)), sampling)
