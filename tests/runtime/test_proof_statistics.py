"""The proof's tests: known values, and how often they cry wolf."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime.proof.statistics import chi_square_p, fit, permutation_test, pull


@pytest.mark.parametrize(
    ("statistic", "freedom", "p"),
    [
        (3.841458820694124, 1, 0.05),
        (6.634896601021213, 1, 0.01),
        (18.307038053275146, 10, 0.05),
        (37.56623478662507, 20, 0.01),
        (124.34211340400407, 100, 0.05),
        (0.0, 7, 1.0),
        (math.inf, 1, 0.0),
        (5.0, 0, 1.0),
    ],
)
def test_chi_square_by_the_tables(statistic, freedom, p) -> None:
    assert chi_square_p(statistic, freedom) == pytest.approx(p, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("half", [1, 2, 5, 30])
@pytest.mark.parametrize("x", [0.01, 0.5, 3.0, 20.0, 80.0])
def test_chi_square_by_the_closed_form_of_even_freedom(half, x) -> None:
    terms = [(x / 2) ** i / math.factorial(i) for i in range(half)]
    exact = math.exp(-x / 2) * sum(terms)
    assert chi_square_p(x, 2 * half) == pytest.approx(exact, rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("x", [0.2, 1.0, 6.0, 40.0])
def test_chi_square_of_one_degree_is_the_normal_tail(x) -> None:
    assert chi_square_p(x, 1) == pytest.approx(math.erfc(math.sqrt(x / 2)), rel=1e-9)


def test_rare_cells_are_pooled_and_impossible_ones_are_said() -> None:
    p = np.asarray([0.5, 0.48, 0.01, 0.01, 0.0])
    statistic, freedom = fit(np.asarray([50, 48, 1, 1, 0]), p)
    assert (statistic, freedom) == (pytest.approx(0.0), 1)
    assert fit(np.asarray([500, 480, 10, 10, 0]), p)[1] == 3
    assert fit(np.asarray([50, 48, 1, 0, 1]), p)[0] == math.inf
    assert fit(np.asarray([3, 0, 0, 0, 0]), p)[1] == 0  # too few to say anything


def test_looking_thrice_seldom_cries_wolf() -> None:
    """Alpha 0.06 over three looks and two tests, on samples that follow p."""
    rng = np.random.default_rng(0)
    threshold, runs, alarms = 0.06 / 6, 600, 0
    for _ in range(runs):
        p, q = rng.dirichlet(np.ones(10)), rng.dirichlet(np.ones(10))
        tokens = rng.choice(10, 400, p=p)
        for n in (100, 200, 400):
            seen = tokens[:n]
            smallest = min(
                chi_square_p(*fit(np.bincount(seen, minlength=10), p)),
                pull([seen], [p], [q]).p_value,
            )
            if smallest < threshold:
                alarms += 1
                break
    assert alarms / runs < 0.06 + 3 * math.sqrt(0.06 * 0.94 / runs)


def test_a_pull_towards_the_drafter_is_seen_before_chi_square_sees_it() -> None:
    rng = np.random.default_rng(1)
    p = np.full(40, 1 / 40)
    q = np.tile([0.02, 0.03], 20)
    tokens = rng.choice(40, 3000, p=(p + q / q.sum()) / 2)
    pulled = pull([tokens], [p], [q])
    assert pulled.figure > pulled.null == pytest.approx(0.5)
    assert pulled.p_value < 1e-3 * chi_square_p(*fit(np.bincount(tokens, minlength=40), p))


def test_permutations_are_uniform_under_the_null_and_tiny_when_samples_differ() -> None:
    rng = np.random.default_rng(2)
    found = [
        permutation_test(
            [(rng.integers(0, 4, (60, 2)), rng.integers(0, 4, (90, 2)))], 0.01, rng
        ).p_value
        for _ in range(200)
    ]
    assert 0.4 < np.mean(found) < 0.6
    assert np.mean(np.asarray(found) < 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    far = permutation_test(
        [(rng.integers(0, 4, (200, 2)), rng.integers(0, 3, (200, 2)))], 0.001, rng
    )
    assert far.p_value < 0.001
    assert far.figure > 2 * far.null
