"""Which way of quantizing is fastest for a graph on this machine, by measurement.

Ways take turns on the same pass, so that what else the machine does falls on all of them, and of
each the fastest turn counts: other work only ever makes one slower. An engine of one thread is
timed by what that thread computed, which leaves waiting for a core out. A way has to win by more
than the noise, else the graph stays in fp32: quantizing never makes a bundle slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from calibration.channels import Feeds
from runtime.engines.base import Engine
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError

Clock = Callable[[], float]
PLAIN = "fp32"
REPEATS = 9
MARGIN = 0.03  # of fp32's time; less is noise
WORTH = 0.08  # of fp32's time, that a way with more error has to save


@dataclass(frozen=True)
class Timing:
    """What one kind of pass takes.

    Attributes:
        seconds: s of fp32, the median over passes of each one's fastest turn.
        ratios: of each way to fp32, the median over passes of fastest turn to fastest turn; fp32
            is 1.
    """

    seconds: float
    ratios: dict[str, float]


def measure(
    paths: Mapping[str, Path],
    feeds: Mapping[str, Sequence[Feeds]],
    threads: int,
    repeats: int = REPEATS,
) -> dict[str, Timing]:
    """Time the ways of one graph.

    Args:
        paths: the graph in each way, "fp32" among them; all with the same inputs.
        feeds: recorded passes by kind, such as "prefill" or "verify".
        threads: of the engine.
        repeats: turns of each way on each pass, after one that warms up.

    Returns:
        by kind, where there are passes of it.

    Raises:
        SlipstreamError: no fp32 among the ways, no passes, or no repeats.
    """
    if PLAIN not in paths or not any(feeds.values()) or repeats < 1:
        raise SlipstreamError(
            "ways of quantizing can't be compared",
            expected=f"a graph in {PLAIN} among them, recorded passes and at least 1 repeat",
            found=f"{', '.join(paths) or 'no graph'}; {sum(map(len, feeds.values()))} passes, "
            f"{repeats} repeats",
            fix="pass the bundle's own graph as fp32, and what calibration.recording recorded",
        )
    engines = {way: OnnxEngine(path, threads) for way, path in paths.items()}
    clock = time.thread_time if threads == 1 else time.perf_counter
    return {
        kind: _timing(engines, passes, repeats, clock) for kind, passes in feeds.items() if passes
    }


def choose(
    timings: Mapping[str, Timing],
    counts: Mapping[str, float],
    among: Collection[str] | None = None,
) -> str:
    """The way with the least time over a drive; "fp32" where none is faster by MARGIN.

    Ways are named by their error, the least first: a later one has to save WORTH.

    Args:
        timings: of one graph, by kind of pass.
        counts: passes of each kind in a frame; relative numbers will do.
        among: the ways that may be taken besides "fp32"; None: all.
    """
    shares = share_of_plain(timings, counts)
    chosen = PLAIN
    for way, share in shares.items():
        if among is not None and way not in among:
            continue
        if share < shares[chosen] - (MARGIN if chosen == PLAIN else WORTH):
            chosen = way
    return chosen


def share_of_plain(timings: Mapping[str, Timing], counts: Mapping[str, float]) -> dict[str, float]:
    """Each way's time as a share of fp32's, over all passes of a drive."""
    plain = sum(counts.get(kind, 0.0) * each.seconds for kind, each in timings.items())
    first = next(iter(timings.values()))
    if not plain:
        return dict.fromkeys(first.ratios, 1.0)
    return {
        way: sum(counts.get(k, 0.0) * t.seconds * t.ratios[way] for k, t in timings.items()) / plain
        for way in first.ratios
    }


def _timing(
    engines: Mapping[str, Engine], passes: Sequence[Feeds], repeats: int, clock: Clock
) -> Timing:
    ways = list(engines)
    fastest: dict[str, list[float]] = {way: [] for way in ways}
    for feeds in passes:
        for way in ways:
            engines[way].run(feeds, {})
        turns: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(repeats):
            start = turn % len(ways)
            for way in ways[start:] + ways[:start]:
                turns[way].append(_seconds(engines[way], feeds, clock))
        for way in ways:
            fastest[way].append(min(turns[way]))
    ratios = {
        way: median(own / plain for own, plain in zip(times, fastest[PLAIN], strict=True))
        for way, times in fastest.items()
    }
    return Timing(median(fastest[PLAIN]), ratios)


def _seconds(engine: Engine, feeds: Feeds, clock: Clock) -> float:
    start = clock()
    engine.run(feeds, {})
    return clock() - start
