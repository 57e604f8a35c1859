"""The caches: after every round, each valid row must be what a fresh prefill gives there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import Part, TwoPartCache
from runtime.decode import Decoder
from runtime.graphs import Graphs
from runtime.inputs import Inputs
from runtime.prompt import Prompt
from runtime.proof.cases import Case, name_of, outputs
from runtime.proof.fresh import FreshPass, fresh_pass
from runtime.proof.noise import noise_of
from runtime.proof.results import Check
from runtime.script import Rollouts
from runtime.settings import DecodeSettings
from runtime.telemetry import FrameStats
from runtime.tree import causal

Array = NDArray[Any]
Ints = NDArray[np.int64]
Layers = list[Array]  # each [rows, Hkv, D]


def cache_check(graphs: Graphs, case: Case, settings: DecodeSettings, condition: str) -> Check:
    """Decode twice with the same seed: once for the tokens, once to watch the caches.

    Keys and values of a row depend on the tokens up to it alone, so one fresh prefill of a
    finished output serves all of its rounds.
    """
    decoded = outputs(Decoder(graphs, None), [case], settings)[0]
    watcher = CacheWatcher(graphs, case, decoded)
    again = outputs(Decoder(graphs, None, watcher), [case], settings)[0]
    if not np.array_equal(decoded, again):
        watcher.fault = watcher.fault or "the same seed gave another output"
    return Check(
        name="cache",
        decoder=name_of(settings),
        condition=condition,
        passed=not watcher.fault and watcher.worst <= noise_of(graphs).rows,
        samples=watcher.rounds,
        figure=watcher.worst,
        null=0.0,
        note=watcher.fault,
    )


@dataclass
class _Fresh:
    """A rollout's sequence [E], and both networks' rows for all of it."""

    sequence: Ints
    target: Layers
    draft: Layers


class CacheWatcher:
    """Compares after every round.

    Attributes:
        worst: largest absolute difference of a key or value so far.
        fault: what else was wrong, or "".
    """

    def __init__(self, graphs: Graphs, case: Case, decoded: Ints) -> None:
        self.worst, self.rounds, self.fault = 0.0, 0, ""
        self._fresh = [
            _fresh_rows(graphs, Prompt.of(case.prompt).followed_by(row)) for row in decoded
        ]

    def __call__(
        self, rollouts: Rollouts, target: TwoPartCache, draft: TwoPartCache | None
    ) -> None:
        self.rounds += 1
        for n, number in enumerate(rollouts.ids):
            fresh, start = self._fresh[int(number)], int(rollouts.start[n])
            if not np.array_equal(rollouts.tokens[n, :start], fresh.sequence[:start]):
                self.fault = self.fault or "the same seed gave another output"
                continue
            rows = valid_rows(target, n)
            if len(rows[0]) != start:
                self.fault = self.fault or f"{len(rows[0])} rows are valid, {start} tokens verified"
                continue
            self._compare(rows, fresh.target)
            # the drafter may lag: it takes verified rows only when it is asked for a block
            if draft is not None:
                self._compare(valid_rows(draft, n), fresh.draft)

    def _compare(self, rows: Layers, fresh: Layers) -> None:
        for ours, theirs in zip(rows, fresh, strict=True):
            if len(ours) > len(theirs):
                self.fault = self.fault or "more rows are valid than there are tokens"
            elif len(ours):
                worst = float(np.abs(ours - theirs[: len(ours)]).max())
                self.worst = max(self.worst, worst)


def valid_rows(cache: TwoPartCache, rollout: int) -> Layers:
    """Every layer's rows that a rollout of the batch sees, in cache order: that of positions."""
    row = cache.trunk.layers[0].shape[-2:]
    parts: list[tuple[Part, int]] = [(cache.trunk, 0)]
    if cache.forked:
        parts.append((cache.branches, rollout))
    return [
        np.concatenate(
            [
                cache.device.to_host(part.layers[i]).reshape(part.capacity, -1, *row)[
                    part.bias[n] == 0, n
                ]
                for part, n in parts
            ]
        )
        for i in range(len(cache.trunk.layers))
    ]


def _fresh_rows(graphs: Graphs, sequence: Prompt) -> _Fresh:
    known = sequence.short_of(1)  # the last token is never passed
    fresh = fresh_pass(graphs, known)
    draft = _draft_rows(graphs, fresh, known) if len(graphs.manifest.networks) > 1 else []
    return _Fresh(sequence.tokens, valid_rows(fresh.cache, 0), draft)


def _step_rows(graphs: Graphs, fresh: FreshPass, known: Prompt) -> Layers:
    """A stepwise drafter's rows: each token but the first, with the feature in front of it."""
    dims, limits = graphs.manifest.draft, graphs.manifest.limits
    assert dims is not None
    n = len(known) - 1
    cache = graphs.cache(dims, max(limits.trunk, n), limits.branch)
    features = graphs.fuse(fresh.taps[None, :-1])
    inputs, places = Inputs(graphs, known), 1 + np.arange(n)[None]
    inputs.encode(1, FrameStats())
    embeddings = inputs.embed(known.tokens[None, 1:], places, draft=True)
    graphs.step(embeddings, features, places, causal(n), cache)
    cache.commit(np.ones((1, n), np.bool_))
    return valid_rows(cache, 0)


def _draft_rows(graphs: Graphs, fresh: FreshPass, known: Prompt) -> Layers:
    """The drafter's context rows for all taps; the block drafted behind them is of no interest."""
    dims, limits = graphs.manifest.draft, graphs.manifest.limits
    assert dims is not None
    if dims.stepwise:
        return _step_rows(graphs, fresh, known)
    n = len(fresh.taps)
    cache = graphs.cache(dims, max(limits.trunk, n), limits.branch)
    block = graphs.embed_draft(np.full((1, dims.block), dims.mask_token))
    at = np.minimum(n + np.arange(dims.block), limits.max_position - 1)[None]
    bias = np.zeros((1, dims.block, n + dims.block), np.float32)
    graphs.draft(block, at, fresh.taps[None], np.arange(n)[None], bias, cache)
    cache.commit(np.ones((1, n), np.bool_))
    return valid_rows(cache, 0)
