"""The measured cost curve: seconds of a pass by rollouts, rows and cache length.

Measured once per bundle, engine and machine, then kept in the user's cache folder.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import AttentionDims
from runtime.cache import TwoPartCache
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.graphs import Graphs
from runtime.user_cache import user_cache

Floats = NDArray[np.float64]
REPEATS = 7
SCHEMA_ROWS = 64
VERSION = 4
# none yet, half a file from elsewhere, or no cache at all
UNREADABLE = (OSError, ValueError, TypeError, SlipstreamError)


@dataclass(frozen=True)
class CostCurve:
    """Seconds of a pass on a grid, linear in between.

    Attributes:
        rollouts [A], rows [B], lengths [C]: the grid; `rows` are new tokens per rollout, `lengths`
            cache rows of the trunk.
        target, draft: [A, B, C] s; the head and the embedding included. `draft` is inf without a
            drafter.
    """

    rollouts: Floats
    rows: Floats
    lengths: Floats
    target: Floats
    draft: Floats

    def target_seconds(self, n: int, rows: Floats, length: int) -> Floats:
        """[...] s for [...] rows."""
        return self._interpolate(self.target, n, rows, length)

    def draft_seconds(self, n: int, rows: Floats, length: int) -> Floats:
        return self._interpolate(self.draft, n, rows, length)

    def _interpolate(self, grid: Floats, n: int, rows: Floats, length: int) -> Floats:
        at_n = _blend(self.rollouts, n)
        at_length = _blend(self.lengths, length)
        over_rows = np.einsum("a,abc,c->b", at_n, grid, at_length)
        beyond = np.maximum(rows / self.rows[-1], 1.0)
        return np.asarray(np.interp(rows, self.rows, over_rows) * beyond)

    def to_json(self) -> str:
        return json.dumps({name: value.tolist() for name, value in vars(self).items()})

    @classmethod
    def from_json(cls, text: str) -> CostCurve:
        """The curve that `to_json` wrote.

        Raises:
            ValueError, TypeError: the text is something else.
        """
        raw: Any = json.loads(text)
        if not isinstance(raw, dict):
            raise TypeError("a cost curve is an object")
        curve = cls(**{name: np.asarray(value, np.float64) for name, value in raw.items()})
        grid = tuple(len(axis) for axis in (curve.rollouts, curve.rows, curve.lengths))
        if not grid == curve.target.shape == curve.draft.shape:
            raise ValueError("a cost curve's costs don't fit its grid")
        return curve


def load_or_measure(graphs: Graphs, key: str, threads: int) -> CostCurve:
    """The curve of this bundle on this machine, measured now if it never was."""
    with suppress(*UNREADABLE):
        return CostCurve.from_json(cache_file(key, threads).read_text(encoding="utf-8"))
    curve = measure(graphs)
    with suppress(SlipstreamError):  # a read-only home costs a few seconds at every start, no more
        write_atomic(cache_file(key, threads), curve.to_json())
    return curve


def measure(graphs: Graphs) -> CostCurve:
    """Time both passes over the grid; about two seconds for a small model."""
    limits, draft = graphs.manifest.limits, graphs.manifest.draft
    rollouts = sorted({1, min(4, limits.rollouts), limits.rollouts})
    # a stepwise drafter's block says how many passes it makes, not how wide they are
    wide = draft.block if draft and not draft.stepwise else 16
    rows = sorted({1, 2, 4, 8, wide})
    if draft and draft.of_target:  # a block of the schema holds fixed tokens too
        rows = sorted({*rows, min(SCHEMA_ROWS, limits.branch)})
    lengths = sorted({min(128, limits.trunk // 2), limits.trunk})
    shape = (len(rollouts), len(rows), len(lengths))
    target, drafter = np.empty(shape), np.full(shape, np.inf)
    for a, n in enumerate(rollouts):
        for b, s in enumerate(rows):
            for c, length in enumerate(lengths):
                target[a, b, c] = _shortest(target_pass(graphs, n, s, length))
                if draft:
                    drafter[a, b, c] = _shortest(draft_pass(graphs, n, s, length))
    a_n, a_rows, a_lengths = (np.asarray(axis, np.float64) for axis in (rollouts, rows, lengths))
    return CostCurve(a_n, a_rows, a_lengths, target, drafter)


def target_pass(graphs: Graphs, n: int, s: int, length: int) -> Callable[[], None]:
    """A target pass of n rollouts and s rows over a trunk of `length`, head and embedding too."""
    cache = _filled(graphs, graphs.manifest.target, n, length)
    tokens, positions = np.zeros((n, s), np.int32), np.zeros((n, s), np.int32)
    causal = np.zeros((s, s), np.float32)

    def run() -> None:
        hidden, _ = graphs.target(graphs.embed(tokens), positions, causal, cache)
        graphs.head(hidden)

    return run


def draft_pass(graphs: Graphs, n: int, s: int, length: int) -> Callable[[], None]:
    """A drafter pass over a block of s, with the rows of half a block as new context; of a stepwise
    drafter, a step over s rows; of a target that drafts for itself, its pass over them."""
    manifest = graphs.manifest
    assert manifest.draft is not None
    if manifest.draft.of_target:
        return target_pass(graphs, n, s, length)
    if manifest.draft.stepwise:
        return _step_pass(graphs, n, s, length)
    cache = _filled(graphs, manifest.draft, n, length)
    tokens, positions = np.zeros((n, s), np.int32), np.zeros((n, s), np.int32)
    context = max(1, s // 2)
    taps = np.zeros((n, context, len(manifest.target.taps) * manifest.target.width), np.float32)
    bias = np.zeros((n, s, context + s), np.float32)

    def run() -> None:
        block = graphs.embed_draft(tokens)
        hidden = graphs.draft(block, positions, taps, positions[:, :context], bias, cache)
        graphs.draft_head(hidden)

    return run


def _step_pass(graphs: Graphs, n: int, s: int, length: int) -> Callable[[], None]:
    assert graphs.manifest.draft is not None
    cache = _filled(graphs, graphs.manifest.draft, n, length)
    tokens, positions = np.zeros((n, s), np.int32), np.zeros((n, s), np.int32)
    bias = np.zeros((n, s, s), np.float32)
    features = graphs.device.to_device(np.zeros((n, s, graphs.manifest.target.width), np.float32))

    def run() -> None:
        hidden = graphs.step(graphs.embed_draft(tokens), features, positions, bias, cache)
        graphs.draft_head(hidden)

    return run


def _filled(graphs: Graphs, dims: AttentionDims, n: int, length: int) -> TwoPartCache:
    """A cache as in the middle of a frame: a trunk of `length` rows and a bucket of branch rows."""
    limits = graphs.manifest.limits
    cache = graphs.cache(dims, limits.trunk, limits.branch)
    cache.trunk.used = length
    cache.trunk.bias[:, :length] = 0.0
    cache.fork(n)
    return cache


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _shortest(run: Callable[[], None]) -> float:
    """s; the shortest, after a pass that allocates: a curve is kept, and what else the machine did
    when it was taken says nothing of later frames."""
    run()
    return min(seconds(run) for _ in range(REPEATS))


def _blend(axis: Floats, x: float) -> Floats:
    """Weights [len(axis)] that interpolate at x, clamped to the axis' ends."""
    return np.asarray([np.interp(x, axis, row) for row in np.eye(len(axis))])


def cache_file(key: str, threads: int) -> Path:
    """Where what was measured for a bundle on this machine is kept; raises as `user_cache`."""
    try:
        engine = version("onnxruntime")
    except PackageNotFoundError:
        engine = "none"
    machine = f"{platform.node()}-{platform.machine()}-{threads}t-ort{engine}"
    return user_cache("costs") / f"{key}-v{VERSION}-{machine}.json"
