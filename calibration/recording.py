"""What a bundle's graphs are fed while it really plans: a sample of the passes of recorded windows.

A quantizer that sees random tensors calibrates for passes that never occur. Here whole frames are
planned, with drafts and several rollouts, so that both parts of the cache are filled as they are on
the road, and every kind of pass is sampled by itself: a frame has one prefill and many rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibration.reservoir import Reservoirs
from drives.windows import Window
from planners.planner import Planner
from runtime.bundle import GraphName, Manifest
from runtime.engines.around import EngineAround
from runtime.engines.base import Engine
from runtime.engines.device import Device
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Method, Sampling

Array = NDArray[Any]
Feeds = dict[str, Array]

# "single" verifies one token a rollout, "draft" lets rows see later ones or is the drafter's;
# heads and `fuse` go by the pass before them, "inputs" are the graphs that come before a pass
Kind = Literal["prefill", "single", "verify", "draft", "inputs"]
_BEFORE: tuple[GraphName, ...] = ("embed", "draft_embed", "vision")
_FEW = 4  # rollouts that fill the branches


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass of a graph: its kind, and copies of every input by name."""

    kind: Kind
    feeds: Feeds


@dataclass(frozen=True, eq=False)
class Recording:
    """A sample of passes, uniform within each graph and kind.

    Attributes:
        passes: of each graph that ran, in the order in which they ran.
        seen: how many passes of each kind there were to choose from.
        frames: planned windows.
    """

    passes: Mapping[GraphName, Sequence[Pass]]
    seen: Mapping[GraphName, Mapping[Kind, int]]
    frames: int

    def feeds(self, graph: GraphName, kind: Kind | None = None) -> list[Feeds]:
        """Inputs of a graph's recorded passes, or of those of one kind.

        Raises:
            SlipstreamError: there are none.
        """
        of_graph = self.passes.get(graph, ())
        found = [one.feeds for one in of_graph if kind is None or one.kind == kind]
        if not found:
            raise SlipstreamError(
                f"no pass of {graph} was recorded",
                expected=f"a pass{f' of kind {kind}' if kind else ''} in {self.frames} frames",
                found=", ".join(f"{n} {k}" for k, n in self.seen.get(graph, {}).items()) or "none",
                fix="record with settings that run it: see `calibration.recording.usual_settings`",
            )
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of all recorded inputs."""
        of_each = (one.feeds.values() for passes in self.passes.values() for one in passes)
        return sum(array.nbytes for arrays in of_each for array in arrays)


def usual_settings(manifest: Manifest) -> tuple[DecodeSettings, ...]:
    """How a bundle decodes on the road: drafts and a few rollouts, and plain decoding now and then.

    Widths are fixed, not the cost gate's, so that the same passes run again on another machine.
    """
    draft, rollouts = manifest.draft, min(_FEW, manifest.limits.rollouts)
    warm = Sampling(temperature=0.5)
    plain = DecodeSettings(method="ar", rollouts=rollouts, sampling=warm)
    if draft is None:
        return (plain,)
    method: Method = "scaffold-spec" if draft.of_target else "dflash"
    drafted = DecodeSettings(method=method, block=draft.block, rollouts=rollouts, sampling=warm)
    return drafted, drafted, drafted, plain


def record(
    planner: Planner,
    windows: Sequence[Window],
    settings: DecodeSettings | Sequence[DecodeSettings],
    *,
    passes: int = 16,
    limit_bytes: int = 512 << 20,
    seed: int = 0,
) -> Recording:
    """Plan windows, and keep a sample of what the graphs are fed.

    The planner itself is left as it was: another one works with its engines. The cache's rows in
    use are copied (rounded up, as engines see them), not its buffers.

    Args:
        settings: how to decode; of several, each window takes the next. Deadlines are left out.
            Without a fixed `block` the cost gate's widths, and so the passes, follow this
            machine's times.
        passes: kept of each graph and kind at most.
        limit_bytes: of all of them; where it is reached, the kind that holds the most gives way.
        seed: the same passes and seed give the same recording.

    Raises:
        SlipstreamError: nothing to record, a number out of range, one pass of each kind is more
            than `limit_bytes`, or see `Planner.plan`.
    """
    ways = [settings] if isinstance(settings, DecodeSettings) else list(settings)
    if not windows or not ways or passes < 1 or limit_bytes < 1 or seed < 0:
        raise SlipstreamError(
            "no passes can be recorded",
            expected="at least one window, way to decode, pass and byte, and a seed of at least 0",
            found=f"{len(windows)} windows, {len(ways)} settings, passes {passes}, "
            f"limit_bytes {limit_bytes}, seed {seed}",
            fix="slipstream drives info DRIVE says what a drive's windows lack",
        )
    graphs = planner.decoder.graphs
    recorder = Recorder(graphs.device, passes, limit_bytes, seed)
    watched = Planner(
        planner.bundle, graphs.wrapped(recorder.watch), planner.threading, planner.backend
    )
    for window, way in zip(windows, cycle(ways), strict=False):
        recorder.begin_frame()
        watched.plan(window.observation, replace(way, budget_ms=None))
    return recorder.recording()


class Recorder:
    """Sees every pass of every graph, tells its kind, and keeps a sample.

    Passes before the first frame are not recorded: a planner may time some while it is made.

    Args:
        device: of the engines.
        passes, limit_bytes, seed: see `record`.
    """

    def __init__(self, device: Device, passes: int, limit_bytes: int, seed: int) -> None:
        self._device = device
        self._kept = Reservoirs[tuple[GraphName, Kind], Feeds](passes, limit_bytes, seed)
        self._frames = 0
        self._last: Kind = "prefill"  # of the last pass of target or drafter
        self._prefilled = False

    def watch(self, graph: GraphName, engine: Engine) -> Engine:
        """An engine that shows its feeds, for `Graphs.wrapped`."""
        return _Watched(graph, engine, self)

    def begin_frame(self) -> None:
        """The next pass of the target is a frame's prefill."""
        self._frames += 1
        self._prefilled = False

    def see(self, graph: GraphName, feeds: Mapping[str, Any]) -> None:
        """Take a pass into the sample, or don't; what is kept is copied."""
        if not self._frames:
            return
        kind = self._kind(graph, feeds)
        size = sum(feed.nbytes for feed in feeds.values())
        self._kept.offer((graph, kind), size, lambda: self._copies(feeds))

    def recording(self) -> Recording:
        """What was kept so far."""
        passes: dict[GraphName, list[tuple[int, Pass]]] = {}
        for (graph, kind), kept in self._kept.kept().items():
            numbered = passes.setdefault(graph, [])
            numbered += [(number, Pass(kind, feeds)) for number, feeds in kept]
        seen: dict[GraphName, dict[Kind, int]] = {}
        for (graph, kind), count in self._kept.seen().items():
            seen.setdefault(graph, {})[kind] = count
        ordered = {
            graph: [one for _, one in sorted(numbered, key=lambda each: each[0])]
            for graph, numbered in passes.items()
        }
        return Recording(ordered, seen, self._frames)

    def _kind(self, graph: GraphName, feeds: Mapping[str, Any]) -> Kind:
        if graph in _BEFORE:
            return "inputs"
        if graph == "draft":
            self._last = "draft"
        elif graph == "target":
            self._last = self._target_kind(feeds)
        return self._last

    def _target_kind(self, feeds: Mapping[str, Any]) -> Kind:
        if not self._prefilled:  # a frame's first pass
            self._prefilled = True
            return "prefill"
        rows = int(feeds["embeddings"].shape[1])
        if rows == 1:
            return "single"
        among_new = self._device.to_host(feeds["branch_bias"])[:, :, -rows:]
        return "draft" if np.triu(among_new == 0.0, 1).any() else "verify"

    def _copies(self, feeds: Mapping[str, Any]) -> Feeds:
        return {
            name: np.array(feed if isinstance(feed, np.ndarray) else self._device.to_host(feed))
            for name, feed in feeds.items()
        }


class _Watched(EngineAround):
    """An engine whose feeds a recorder sees before each run."""

    def __init__(self, graph: GraphName, engine: Engine, recorder: Recorder) -> None:
        super().__init__(engine)
        self._graph, self._recorder = graph, recorder

    def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
        """See `runtime.engines.base.Engine.run`."""
        self._recorder.see(self._graph, feeds)
        return self._engine.run(feeds, into)
