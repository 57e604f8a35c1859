"""Every acceptance rule hands the target's distribution on: exact, by enumeration."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from runtime.verify_tree import k_seq_rho
from tests.runtime.enumeration import (
    Drafts,
    Pair,
    chains,
    judged,
    path_sets,
    targets,
    trees,
    verdict,
)
from tests.runtime.symbolic import Middle, worlds

TOLERANCE = 1e-9
KINDS = ("free", "peaked", "holes", "allowed", "equal", "apart", "certain")
FIXED: tuple[dict[int, int], ...] = ({}, {0: 1}, {1: 2})
CHAIN_RULES, PATH_RULES, TREE_RULES = ("token", "block"), ("k-seq", "rrs"), ("rrs-wor", "traversal")
BUSHY, MIXED, DEEP = [-1, 0, 0, 1, 1], [-1, 0, 0, 0, 1, 2], [-1, 0, 1, 2, 0, 1]


def drafts_of(rule: str, pair: Pair, size: str) -> tuple[Drafts, int]:
    """All drafts of one size, and the number of tokens whose joint is compared."""
    if rule in CHAIN_RULES:
        depth, padding = {"small": (2, 0), "padded": (2, 2), "large": (3, 0)}[size]
        return chains(pair, depth, padding), depth + 1
    if rule in PATH_RULES:
        k, depth = {"small": (2, 2), "padded": (1, 2), "large": (3, 1)}[size]
        return path_sets(pair, k, depth), depth + 1
    parents, padding = {"small": (BUSHY, 0), "padded": (DEEP, 2), "large": (MIXED, 0)}[size]
    return trees(pair, parents, padding), 4 if parents is DEEP else 3


@cache
def outcome(rule: str, kind: str, fixed: int, size: str, seed: int = 0) -> tuple[float, float]:
    """(largest error, expected accepted length) of one case."""
    vocab = 4 if size == "large" and rule in PATH_RULES else 3
    pair = Pair(kind, vocab, seed, FIXED[fixed])
    drafts, length = drafts_of(rule, pair, size)
    return judged(rule, pair, drafts, length)


CASES = [
    (rule, kind, fixed, size)
    for rule, kind, fixed, size in product(
        CHAIN_RULES + PATH_RULES + TREE_RULES, KINDS, range(3), ("small", "padded", "large")
    )
    if fixed == 0 or (size == "small" and kind in ("free", "holes"))
]


@pytest.mark.parametrize(("rule", "kind", "fixed", "size"), CASES)
def test_a_rule_hands_the_targets_joint_on(rule, kind, fixed, size) -> None:
    assert outcome(rule, kind, fixed, size)[0] < TOLERANCE


@pytest.mark.parametrize("rule", CHAIN_RULES + PATH_RULES + TREE_RULES)
@pytest.mark.parametrize("seed", range(1, 4))
def test_other_random_models(rule, seed) -> None:
    assert outcome(rule, "free", 0, "small", seed)[0] < TOLERANCE
    assert outcome(rule, "holes", 0, "small", seed)[0] < TOLERANCE


def test_the_largest_error_of_all() -> None:
    largest = {
        rule: float(max(outcome(*case)[0] for case in CASES if case[0] == rule))
        for rule in CHAIN_RULES + PATH_RULES + TREE_RULES
    }
    print("\nlargest enumeration errors:", largest)
    assert max(largest.values()) < TOLERANCE


@pytest.mark.parametrize("rule", CHAIN_RULES + PATH_RULES + TREE_RULES)
def test_symbolic_uniforms_stand_for_plain_ones(rule) -> None:
    """In the middle of every world, floats lead to the same verdict."""
    pair = Pair("free", 3, 1)
    seen = 0
    for _, block in drafts_of(rule, pair, "small")[0]:
        p = targets(pair, block)
        for world, (row, after) in worlds(lambda w, b=block, p=p: verdict(rule, b, p, w)):
            plain_row, plain_after = verdict(rule, block, p, Middle(intervals=world.intervals))
            assert plain_row == row
            assert np.array_equal(plain_after, after)
            seen += 1
    assert seen > 10


# What must fail.


@pytest.mark.parametrize("rule", CHAIN_RULES + PATH_RULES + TREE_RULES)
def test_a_dropped_residual_is_caught(rule) -> None:
    pair = Pair("free", 3, 0)
    drafts, length = drafts_of(rule, pair, "small")
    error, _ = judged(rule, pair, drafts, length, tamper=lambda block, p, row, after: p[0, row])
    assert error > 1e-3


@pytest.mark.parametrize("rule", CHAIN_RULES + PATH_RULES + TREE_RULES)
def test_accepting_too_seldom_is_caught(rule) -> None:
    pair = Pair("free", 3, 0)
    drafts, length = drafts_of(rule, pair, "small")
    error, _ = judged(rule, pair, drafts, length, factor=1 / 0.9)
    assert error > 1e-3


# How much is accepted.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["small", "padded", "large"])
def test_block_verification_accepts_no_less_than_token_by_token(kind, size) -> None:
    token, block = (outcome(rule, kind, 0, size)[1] for rule in CHAIN_RULES)
    assert block >= token - 1e-12
    if kind == "free" and size == "large":
        assert block > token + 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["small", "padded", "large"])
def test_traversal_accepts_no_less_than_recursive_rejection(kind, size) -> None:
    rejection, traversed = (outcome(rule, kind, 0, size)[1] for rule in TREE_RULES)
    assert traversed >= rejection - 1e-12
    if kind == "free" and size == "padded":
        assert traversed > rejection + 1e-3


def test_block_verification_reaches_the_papers_example() -> None:
    """Sun et al. 2024, section 3: 10/9 accepted by token, 11/9 by block."""
    pair = Pair("free", 2, 0)
    for prefix in [(), (0,), (1,), *product(range(2), repeat=2)]:
        pair.rows[True, prefix] = np.asarray([1 / 3, 2 / 3])
        pair.rows[False, prefix] = np.asarray([2 / 3, 1 / 3])
    _, token = judged("token", pair, chains(pair, 2), 3)
    _, block = judged("block", pair, chains(pair, 2), 3)
    assert token == pytest.approx(10 / 9, abs=1e-12)
    assert block == pytest.approx(11 / 9, abs=1e-12)


@pytest.mark.parametrize("kind", ["free", "peaked", "holes", "equal"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_k_seq_accepts_what_the_paper_says(kind, k) -> None:
    """arXiv 2310.15141: 1-(1-beta)^k, at least 1-(1-1/k)^k of what optimal transport reaches."""
    pair = Pair(kind, 3, 2)
    p, q = pair.target(()), pair.drafter(())
    _, accepted = judged("k-seq", pair, path_sets(pair, k, 1), 2)
    beta = np.minimum(q, p / k_seq_rho(q, p, k)).sum()
    assert accepted == pytest.approx(1 - (1 - beta) ** k, abs=1e-12)
    optimum = optimal_acceptance(p, q, k)
    assert (1 - (1 - 1 / k) ** k) * optimum - 1e-9 <= accepted <= optimum + 1e-9


def optimal_acceptance(p: np.ndarray, q: np.ndarray, k: int) -> float:
    """The most that any rule can accept of k drafts of q: a linear programme over couplings."""
    linprog = pytest.importorskip("scipy.optimize", reason="the optimum needs scipy").linprog
    drafts = list(product(range(len(p)), repeat=k))
    hit = np.asarray([[float(token in drawn) for token in range(len(p))] for drawn in drafts])
    rows = np.kron(np.eye(len(drafts)), np.ones(len(p)))
    columns = np.kron(np.ones(len(drafts)), np.eye(len(p)))
    sums = np.concatenate([np.prod(q[np.asarray(drafts)], axis=1), p])
    solved = linprog(-hit.ravel(), A_eq=np.vstack([rows, columns]), b_eq=sums, method="highs")
    return float(-solved.fun)
