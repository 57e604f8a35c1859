"""Which passes are captured, and that they stay few."""

from __future__ import annotations

import gc
import weakref

from runtime.engines.captures import WARM, Captures


class Graph:
    """Stands for a captured graph; a weak reference shows when it is dropped."""


def test_a_pass_is_captured_after_it_came_again() -> None:
    captures: Captures[Graph] = Captures(2)
    assert [captures.due("a") for _ in range(WARM + 1)] == [False] * WARM + [True]
    graph = Graph()
    captures.put("a", graph)
    assert captures.get("a") is graph
    assert captures.get("b") is None


def test_the_least_recently_used_graph_is_dropped() -> None:
    captures: Captures[Graph] = Captures(2)
    alive = {}
    for key in "ab":
        graph = Graph()
        alive[key] = weakref.ref(graph)
        captures.put(key, graph)
    del graph
    captures.get("a")
    captures.put("c", Graph())
    gc.collect()
    assert alive["a"]() is not None
    assert alive["b"]() is None
    assert len(captures) == 2


def test_counts_of_passes_that_never_come_again_are_forgotten() -> None:
    captures: Captures[Graph] = Captures(2)
    for key in range(1000):
        assert not captures.due(key)
    assert len(captures._seen) <= 16


def test_none_may_be_kept_at_all() -> None:
    captures: Captures[Graph] = Captures(0)
    assert not any(captures.due("a") for _ in range(10))


def test_clearing_forgets_graphs_and_counts() -> None:
    captures: Captures[Graph] = Captures(2)
    captures.put("a", Graph())
    captures.clear()
    assert captures.get("a") is None
    assert not captures.due("a")
