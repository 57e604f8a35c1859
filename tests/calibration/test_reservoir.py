"""Samples of several streams, in a bounded amount of memory."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.reservoir import Reservoirs
from runtime.errors import SlipstreamError

offers = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20)), max_size=80)


def sampled(given: list[tuple[str, int]], limit: int, seed: int = 0) -> Reservoirs[str, int]:
    reservoirs = Reservoirs[str, int](4, limit, seed)
    for number, (stream, nbytes) in enumerate(given):
        reservoirs.offer(stream, nbytes, lambda number=number: number)  # type: ignore[misc]
    return reservoirs


@given(offers, st.integers(60, 400), st.integers(0, 3))
def test_what_is_kept_is_bounded_ordered_and_repeatable(
    offered: list[tuple[str, int]], limit: int, seed: int
) -> None:
    found = sampled(offered, limit, seed)
    assert found.nbytes <= limit
    kept = found.kept()
    for stream, items in kept.items():
        numbers = [number for number, _ in items]
        assert 1 <= len(items) <= 4
        assert numbers == sorted(set(numbers))
        assert all(offered[value][0] == stream for _, value in items)
        assert all(number == value for number, value in items)
    assert found.seen() == dict(Counter(stream for stream, _ in offered))
    assert found.nbytes == sum(offered[v][1] for items in kept.values() for _, v in items)
    assert sampled(offered, limit, seed).kept() == kept


@pytest.mark.parametrize("limit", [10_000, 100])  # the latter for 10 of the wanted 16 items
def test_every_item_is_as_likely_as_any_other(limit: int) -> None:
    taken = np.zeros(40)
    for seed in range(600):
        reservoirs = Reservoirs[str, int](16, limit, seed)
        for number in range(40):
            reservoirs.offer("a", 10, lambda number=number: number)  # type: ignore[misc]
        for _, value in reservoirs.kept()["a"]:
            taken[value] += 1
    share = (16 if limit > 1000 else 10) / 40
    deviation = (taken - 600 * share) / np.sqrt(600 * share * (1 - share))
    assert np.abs(deviation).max() < 4.0  # of 40 normal deviates, 4 sigma is one in 400
    assert taken.sum() == 600 * share * 40


def test_nothing_is_made_that_is_not_kept() -> None:
    made: list[int] = []
    reservoirs = Reservoirs[str, None](2, 1000, 0)
    for number in range(200):
        reservoirs.offer("a", 1, lambda number=number: made.append(number))  # type: ignore[misc]
    assert 2 <= len(made) < 40  # about 2 (1 + ln(100)) of 200


def test_the_stream_that_holds_the_most_gives_way() -> None:
    found = sampled([("a", 30)] * 4 + [("b", 10)] * 4, 100)
    assert {stream: len(items) for stream, items in found.kept().items()} == {"a": 2, "b": 4}


def test_one_of_each_must_fit() -> None:
    with pytest.raises(SlipstreamError, match="not even one of each") as caught:
        sampled([("a", 60), ("b", 60)], 100)
    assert "at least 120 bytes" in caught.value.expected
    assert "100 bytes" in caught.value.found
