"""Trees against oracles that walk parents, list every prefix, or follow a dictionary."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.accept import by_choice
from runtime.cache import MASKED
from runtime.propose import Block
from runtime.tree import ancestors, best_first, tree_bias, trie

FEW = settings(max_examples=60, deadline=None)


@st.composite
def parent_rows(draw) -> list[int]:
    """A random tree with parents before children, then padding."""
    size = draw(st.integers(1, 9))
    parents = [draw(st.integers(0, row - 1)) for row in range(1, size)]
    return [-1, *parents] + [-1] * draw(st.integers(0, 3))


@st.composite
def batches(draw) -> np.ndarray:
    """[N, W] parents of several trees, padded to one width."""
    trees = draw(st.lists(parent_rows(), min_size=1, max_size=4))
    width = max(map(len, trees))
    return np.asarray([tree + [-1] * (width - len(tree)) for tree in trees])


def walked(parents: np.ndarray, row: int) -> set[int]:
    """A row and all above it."""
    seen = set()
    while row >= 0:
        seen.add(row)
        row = int(parents[row])
    return seen


@FEW
@given(batches())
def test_a_row_sees_its_ancestors_and_itself(parents) -> None:
    sees, bias = ancestors(parents), tree_bias(parents)
    assert bias.dtype == np.float32
    for n, tree in enumerate(parents):
        for row in range(len(tree)):
            assert set(np.flatnonzero(sees[n, row])) == walked(tree, row)
    assert np.array_equal(bias == 0, sees)
    assert (bias[~sees] == MASKED).all()


# Best-first trees.


@st.composite
def log_probabilities(draw) -> np.ndarray:
    """[N, D, R] falling; coarse, so that ties are common; some -inf, some fixed tokens."""
    n, depths, ranks = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    logs = np.full((n, depths, ranks), -np.inf)
    for i, depth in product(range(n), range(depths)):
        kind = draw(st.sampled_from(["coarse", "smooth", "fixed", "none"]))
        if kind == "fixed":
            logs[i, depth, 0] = 0.0
        elif kind != "none":
            count = draw(st.integers(1, ranks))
            step = st.integers(1, 4) if kind == "coarse" else st.floats(0.01, 3)
            values = -np.asarray(draw(st.lists(step, min_size=count, max_size=count)), float)
            logs[i, depth, :count] = np.sort(values)[::-1] / (2 if kind == "coarse" else 1)
    return logs


def every_prefix(logs: np.ndarray) -> list[float]:
    """Scores of all prefixes of [D, R] with any probability, the best first."""
    depths, ranks = logs.shape
    scores = []
    for depth in range(1, depths + 1):
        for prefix in product(range(ranks), repeat=depth):
            total = 0.0
            for i, rank in enumerate(prefix):
                total += logs[i, rank]
            scores.append(total)
    return sorted((score for score in scores if score > -np.inf), reverse=True)


@FEW
@given(log_probabilities(), st.integers(1, 20))
def test_the_best_nodes_are_the_likeliest_prefixes_of_all(logs, budget) -> None:
    nodes = best_first(logs, budget)
    for n in range(len(logs)):
        best = every_prefix(logs[n])[:budget]
        score = nodes.score[n]
        real = np.isfinite(score)
        assert np.array_equal(score[real], best)  # as many as there are, in falling order
        assert real[: len(best)].all()
        assert (nodes.parents[n, ~real] == -1).all()
    assert nodes.most == max(min(budget, len(every_prefix(logs[n]))) for n in range(len(logs)))


@FEW
@given(log_probabilities(), st.integers(1, 20))
def test_the_best_nodes_form_a_tree(logs, budget) -> None:
    nodes = best_first(logs, budget)
    assert nodes.parents.shape[1] <= budget
    for n in range(len(logs)):
        prefixes: list[tuple[int, ...]] = [()]
        for i in np.flatnonzero(np.isfinite(nodes.score[n])):
            parent = int(nodes.parents[n, i])
            assert 0 <= parent <= i  # row i + 1: the parent stands before it
            prefix = (*prefixes[parent], int(nodes.rank[n, i]))
            assert nodes.depth[n, i] == len(prefix)
            total = 0.0
            for depth, rank in enumerate(prefix):
                total += logs[n, depth, rank]
            assert nodes.score[n, i] == total
            prefixes.append(prefix)
        assert len(set(prefixes)) == len(prefixes)
        for prefix in prefixes[1:]:  # siblings come in falling order, with none left out
            assert prefix[-1] == 0 or (*prefix[:-1], prefix[-1] - 1) in prefixes


@FEW
@given(log_probabilities(), st.integers(1, 20))
def test_a_tree_does_not_depend_on_its_batch(logs, budget) -> None:
    together = best_first(logs, budget)
    for n in range(len(logs)):
        alone = best_first(logs[n : n + 1], budget)
        for name in ("parents", "depth", "rank", "score"):
            assert np.array_equal(getattr(alone, name)[0], getattr(together, name)[n])


@FEW
@given(log_probabilities(), st.integers(2, 20))
def test_a_smaller_budget_is_a_beginning_of_a_larger_one(logs, budget) -> None:
    large, small = best_first(logs, budget), best_first(logs, budget - 1)
    shared = min(small.score.shape[1], large.score.shape[1])
    assert np.array_equal(small.score[:, :shared], large.score[:, :shared])


def test_a_fixed_token_is_an_only_child() -> None:
    """It costs the path nothing, so its subtree is as good as its parent."""
    logs = np.log([[[0.6, 0.4], [1.0, 1.0], [0.9, 0.1]]])
    logs[0, 1] = [0.0, -np.inf]
    nodes = best_first(logs, 6)
    assert nodes.depth[0].tolist() == [1, 2, 3, 1, 2, 3]
    assert nodes.parents[0].tolist() == [0, 1, 2, 0, 4, 5]
    assert np.allclose(np.exp(nodes.score[0]), [0.6, 0.6, 0.54, 0.4, 0.4, 0.36])


# Tries.

PATHS = st.integers(1, 5).flatmap(
    lambda k: st.integers(1, 4).flatmap(
        lambda depth: st.lists(
            st.lists(st.integers(0, 2), min_size=depth, max_size=depth), min_size=k, max_size=k
        )
    )
)


@FEW
@given(PATHS)
def test_a_trie_merges_what_is_shared_and_nothing_else(drawn) -> None:
    parents, tokens, rows = trie(np.asarray(drawn))
    prefixes = {tuple(path[:depth]) for path in drawn for depth in range(1, len(path) + 1)}
    assert len(parents) == len(tokens) == 1 + len(prefixes)
    assert (parents[0], tokens[0]) == (-1, -1)
    assert (parents[1:] < np.arange(1, len(parents))).all()
    for path, path_rows in zip(drawn, rows, strict=True):
        for depth, row in enumerate(path_rows):
            assert [tokens[r] for r in sorted(walked(parents, int(row)))[1:]] == path[: depth + 1]


def test_paths_of_no_length_are_the_root_alone() -> None:
    parents, tokens, rows = trie(np.zeros((3, 0), np.int64))
    assert (parents.tolist(), tokens.tolist(), rows.shape) == ([-1], [-1], (3, 0))


# Following the target's choices.


def naive_walk(parents: list[int], tokens: list[int], real: list[bool], choices: list[int]):
    """(rows of the walk, the choice at its end), through a dictionary of children."""
    children = {
        (parents[row], tokens[row]): row for row in range(len(parents) - 1, 0, -1) if real[row]
    }
    rows = [0]
    while (rows[-1], choices[rows[-1]]) in children:
        rows.append(children[rows[-1], choices[rows[-1]]])
    return rows, choices[rows[-1]]


@FEW
@given(batches(), st.data())
def test_choices_are_followed_to_where_they_leave_the_tree(parents, data) -> None:
    shape = parents.shape
    numbers = st.lists(st.integers(0, 3), min_size=parents.size, max_size=parents.size)
    tokens = np.asarray(data.draw(numbers)).reshape(shape)
    choices = np.asarray(data.draw(numbers)).reshape(shape)
    real = parents >= 0
    real[:, 0] = True
    depth = ancestors(parents).sum(axis=2) - 1
    block = Block(tokens, depth, real, real.copy(), parents)
    accepted = by_choice(block, choices)
    for n in range(len(parents)):
        rows, token = naive_walk(*(x[n].tolist() for x in (parents, tokens, real, choices)))
        assert np.flatnonzero(accepted.holds[n]).tolist() == rows
        assert accepted.token[n] == token
        assert accepted.length[n] == len(rows) - 1


@FEW
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_a_chain_and_the_same_tree_agree(n, width, data) -> None:
    numbers = st.lists(st.integers(0, 1), min_size=n * width, max_size=n * width)
    tokens = np.asarray(data.draw(numbers)).reshape(n, width)
    choices = np.asarray(data.draw(numbers)).reshape(n, width)
    limit = np.asarray(data.draw(st.lists(st.integers(0, width - 1), min_size=n, max_size=n)))
    offsets = np.arange(width)
    real = offsets <= limit[:, None]
    positions = np.minimum(offsets, limit[:, None])
    parents = np.where(real, offsets - 1, -1)
    as_chain = by_choice(Block(tokens, positions, real, real.copy()), choices)
    as_tree = by_choice(Block(tokens, positions, real, real.copy(), parents), choices)
    assert np.array_equal(as_chain.holds, as_tree.holds)
    assert np.array_equal(as_chain.token, as_tree.token)
