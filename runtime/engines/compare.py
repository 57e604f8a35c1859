"""One engine's outputs against another's, on passes that were recorded from real frames."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.bundle import GraphName
from runtime.engines.around import EngineAround
from runtime.engines.base import Engine
from runtime.engines.device import Array, Device
from runtime.engines.store import Precision

# of the tensor's largest absolute value; fp32 differs by the order of its sums
TOLERANCE: dict[Precision, float] = {
    "fp32": 1e-3,
    "fp16": 2e-2,
    "bf16": 1e-1,
    "int8": 2e-1,
    "fp8": 2e-1,
}


@dataclass(frozen=True)
class Pass:
    """One call of an engine: what it was fed and what came of it, all copies."""

    graph: GraphName
    feeds: dict[str, Array]
    outputs: dict[str, Array]


class Recorder(EngineAround):
    """An engine on the CPU whose passes are kept.

    Args:
        passes: where to; shared by the recorders of a bundle.
        left: passes still to be kept, at most two of the same shapes.
    """

    def __init__(self, graph: GraphName, engine: Engine, passes: list[Pass], left: int = 0) -> None:
        super().__init__(engine)
        self._graph, self._passes, self.left = graph, passes, left
        self._seen: Counter[tuple[Any, ...]] = Counter()

    def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        """See `runtime.engines.base.Engine.run`."""
        shapes = tuple(feeds[name].shape for name in sorted(feeds))
        self._seen[shapes] += 1
        if self.left == 0 or self._seen[shapes] > 2:
            return self._engine.run(feeds, into)
        self.left -= 1
        fed = {name: array.copy() for name, array in feeds.items()}  # a pass writes into its cache
        out = self._engine.run(feeds, into)
        kept = {name: array.copy() for name, array in out.items()}
        self._passes.append(Pass(self._graph, fed, kept))
        return out


@dataclass(frozen=True)
class Difference:
    """The worst of one output over all passes.

    Attributes:
        worst: largest absolute difference, as a share of the tensor's largest absolute value; of
            tokens the share that is another one where the logits don't tie.
    """

    graph: GraphName
    tensor: str
    passes: int
    worst: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.passes > 0 and self.worst <= self.tolerance  # NaN fails


def compare(
    graph: GraphName,
    passes: Sequence[Pass],
    engine: Engine,
    device: Device,
    precision: Precision,
) -> list[Difference]:
    """Run a graph's recorded passes on another engine.

    Args:
        passes: of all graphs.
        device: of the other engine.
        precision: whose tolerance holds.

    Raises:
        EngineError: the engine does not take what was recorded.
    """
    tolerance = TOLERANCE[precision]
    worst: dict[str, float] = {}
    mine = [each for each in passes if each.graph == graph]
    for each in mine:
        found = {
            name: device.to_host(buffer) for name, buffer in engine.run(each.feeds, {}).items()
        }
        for name, wanted in each.outputs.items():
            if name == "top_tokens":
                error = _other_tokens(found, each.outputs, tolerance)
            else:
                error = _error(found[name], wanted)
            worst[name] = float(np.maximum(worst.get(name, 0.0), error))  # keeps a NaN
    return [Difference(graph, name, len(mine), worst[name], tolerance) for name in sorted(worst)]


def _error(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape:
        return float("inf")
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    scale = float(np.abs(b).max())
    return float(np.abs(a - b).max()) / (scale or 1.0)


def _other_tokens(
    found: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float
) -> float:
    """Share of ranks with another token, where it is not for want of precision: a token may trade
    places with one whose logit is within the tolerance, and the last one may fall out."""
    logits = wanted["top_logits"].astype(np.float64)
    if found["top_tokens"].shape != logits.shape:
        return float("inf")
    if logits.shape[-1] == 1:
        return 0.0
    differs = (found["top_tokens"] != wanted["top_tokens"])[..., :-1]
    steps = np.abs(np.diff(logits, axis=-1))  # of each rank to the next
    before = np.concatenate([np.full((*steps.shape[:-1], 1), np.inf), steps[..., :-1]], axis=-1)
    near = np.minimum(before, steps) <= 2 * tolerance * np.abs(logits).max()
    return float((differs & ~near).mean())
