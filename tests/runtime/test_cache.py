"""The two-part cache against plain lists of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.bundle import AttentionDims
from runtime.cache import BUCKET, TwoPartCache
from runtime.errors import CacheFullError

DIMS = AttentionDims(layers=2, heads=2, kv_heads=2, head_dim=3)
TRUNK, BRANCH = 40, 37  # more than a bucket, and no multiple of one
ROW_BYTES = 4 * 2 * DIMS.layers * DIMS.kv_heads * DIMS.head_dim


def contents(label: int, layer: int) -> np.ndarray:
    """[Hkv, D] a row that no other label or layer has."""
    size = DIMS.kv_heads * DIMS.head_dim
    row = label * 100 + layer * 10 + np.arange(size, dtype=np.float32)
    return row.reshape(DIMS.kv_heads, DIMS.head_dim)


class Machine(RuleBasedStateMachine):
    """Passes, forks, leavings and resets; the oracle is a list of labels for each rollout."""

    @initialize()
    def open(self) -> None:
        self.cache = TwoPartCache(DIMS, TRUNK, BRANCH)
        self.labels = 0
        self.start()

    def start(self) -> None:
        self.trunk: list[int] = []
        self.branches: list[list[int]] = []
        self.n = 1

    @property
    def kept(self) -> list[list[int]]:
        return self.branches if self.cache.forked else [self.trunk]

    @rule(rows=st.integers(1, 12), data=st.data())
    def run_a_pass(self, rows, data) -> None:
        capacity = BRANCH if self.cache.forked else TRUNK
        part = self.cache.branches if self.cache.forked else self.cache.trunk
        longest = max(map(len, self.kept))
        if longest + rows > capacity:
            with pytest.raises(CacheFullError, match="branch" if self.cache.forked else "trunk"):
                self.cache.reserve(rows)
            return
        compacts = part.used + rows > capacity
        views = self.cache.reserve(rows)
        if compacts:
            assert part.used == longest
        labels = self.labels + np.arange(rows * self.n).reshape(rows, self.n)
        self.labels += labels.size
        assert len(views) == 2 * DIMS.layers
        for layer, view in enumerate(views):
            assert view.shape == (rows, self.n, DIMS.kv_heads, DIMS.head_dim)
            assert view.flags.c_contiguous
            for row, n in np.ndindex(rows, self.n):
                view[row, n] = contents(int(labels[row, n]), layer)
        flags = st.lists(st.booleans(), min_size=labels.size, max_size=labels.size)
        holds = np.asarray(data.draw(flags)).reshape(self.n, rows)
        self.cache.commit(holds)
        for n, row in zip(*np.nonzero(holds), strict=True):
            self.kept[n].append(int(labels[row, n]))

    @precondition(lambda self: not self.cache.forked)
    @rule(n=st.integers(1, 4))
    def fork(self, n) -> None:
        self.cache.fork(n)
        self.n, self.branches = n, [[] for _ in range(n)]

    @precondition(lambda self: self.cache.forked)
    @rule(data=st.data())
    def keep(self, data) -> None:
        some = st.lists(st.integers(0, self.n - 1), min_size=1, unique=True)
        rollouts = sorted(data.draw(some))
        self.cache.keep(np.asarray(rollouts))
        self.branches = [self.branches[n] for n in rollouts]
        self.n = len(rollouts)

    @rule()
    def reset(self) -> None:
        self.cache.reset()
        self.start()

    @invariant()
    def what_is_seen_is_what_was_kept(self) -> None:
        self.cache.check_integrity()
        trunk, trunk_bias, branch, branch_bias = self.cache.feeds()
        assert len(trunk_bias) >= 1
        assert branch_bias.shape[1] >= 1
        assert self.cache.rollouts == len(branch_bias) == (self.n if self.branches else 1)
        for layer in range(2 * DIMS.layers):
            seen = trunk[layer][trunk_bias == 0]
            expected = [contents(label, layer) for label in self.trunk]
            assert np.array_equal(seen, np.reshape(expected, seen.shape))
            for n, labels in enumerate(self.branches):
                seen = branch[layer][branch_bias[n] == 0, n]
                expected = [contents(label, layer) for label in labels]
                assert np.array_equal(seen, np.reshape(expected, seen.shape))

    @invariant()
    def memory_is_one_trunk_and_n_branches(self) -> None:
        branch = BRANCH if self.cache.forked else 1
        assert self.cache.nbytes == ROW_BYTES * (TRUNK + self.n * branch)

    @invariant()
    def shapes_are_few(self) -> None:
        for part in (self.cache.trunk, self.cache.branches):
            assert part.used <= part.bucket <= part.capacity
            assert part.bucket == part.capacity or part.bucket % BUCKET == 0


Machine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestTwoPartCache = Machine.TestCase


def write(cache: TwoPartCache, holds: list[list[bool]], value: float) -> None:
    for view in cache.reserve(len(holds[0])):
        view[...] = value
    cache.commit(np.asarray(holds))


@pytest.mark.parametrize("forked", [False, True])
def test_a_full_part_is_compacted_before_it_gives_up(forked) -> None:
    cache = TwoPartCache(DIMS, 8, 8)
    if forked:
        cache.fork(2)
    n = 2 if forked else 1
    for value in (1.0, 2.0, 3.0, 4.0):  # the first row falls, the second stands
        write(cache, [[False, True]] * n, value)
    write(cache, [[True] * 4] * n, 5.0)  # needs the four rows that fell
    cache.check_integrity()
    part, layers = (cache.branches, 2) if forked else (cache.trunk, 0)
    assert part.used == 8
    for rows in cache.feeds()[layers]:
        values = rows[..., 0, 0].reshape(8, n)
        assert values.tolist() == [[v] * n for v in (1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0)]
    with pytest.raises(CacheFullError, match="is full"):
        cache.reserve(1)


def test_forking_moves_no_key_and_a_later_frame_reuses_the_memory() -> None:
    cache = TwoPartCache(DIMS, 8, 8)
    before = cache.trunk.layers[0].ctypes.data
    cache.fork(4)
    address = cache.branches.layers[0].ctypes.data
    assert cache.trunk.layers[0].ctypes.data == before
    cache.keep(np.asarray([1, 3]))
    assert cache.branches.layers[0].ctypes.data == address
    cache.reset()
    cache.fork(3)
    assert cache.branches.layers[0].ctypes.data == address
