"""How many engine threads pay on this machine, measured: more are not always faster.

A pass of a few milliseconds has a hundred operators, each of which waits for its slowest thread. On
a machine that other processes use as well, one thread may beat two.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from runtime.costs import UNREADABLE, cache_file, draft_pass, seconds, target_pass
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.graphs import Graphs

REPEATS = 9
MOST_THREADS = 256  # they wait busily: thousands would take the machine down


@dataclass(frozen=True)
class Threading:
    """Engine threads, and whether they wait busily between operators."""

    threads: int
    spinning: bool = True


def check_threads(threads: int | None) -> None:
    """Insist on a number of threads that an engine may be given; None stands for the measured one.

    Raises:
        SlipstreamError: it is below 1 or above MOST_THREADS.
    """
    if threads is None:
        return
    given: Any = threads  # Python's callers may give anything
    whole = isinstance(given, Integral) and not isinstance(given, bool)
    if not whole or not 1 <= threads <= MOST_THREADS:
        raise SlipstreamError(
            "threads is out of range",
            expected=f"a whole number, 1 to {MOST_THREADS}",
            found=repr(threads)[:80],
            fix="leave --threads out to have it measured",
        )


def candidates(cores: int) -> list[Threading]:
    """One thread, and all cores with and without busy waiting."""
    every = [Threading(1), Threading(cores, spinning=False), Threading(cores)]
    return every if cores > 1 else every[:1]


def fastest(open_graphs: Callable[[Threading], Graphs], cores: int, key: str) -> Threading:
    """The candidate with the shortest typical passes, remembered per bundle and machine."""
    offered = candidates(cores)
    if len(offered) == 1:
        return offered[0]
    name = f"{key}-threading"
    with suppress(*UNREADABLE):
        return Threading(**json.loads(cache_file(name, cores).read_text(encoding="utf-8")))
    best = offered[int(np.argmin([_typical(open_graphs(each)) for each in offered]))]
    with suppress(SlipstreamError):
        write_atomic(cache_file(name, cores), json.dumps(asdict(best)))
    return best


def _typical(graphs: Graphs) -> float:
    """s for the passes of a frame: plain decoding, a drafted block, a few rollouts."""
    limits, draft = graphs.manifest.limits, graphs.manifest.draft
    length, few = min(128, limits.trunk // 2), min(4, limits.rollouts)
    width = draft.block if draft else 4
    passes = [target_pass(graphs, 1, s, length) for s in (1, width)]
    passes.append(target_pass(graphs, few, max(2, width // 2), length))
    if draft:
        passes.append(draft_pass(graphs, 1, width, length))
    return float(sum(np.median([seconds(run) for _ in range(REPEATS)]) for run in passes))
