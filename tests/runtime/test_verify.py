"""The chain rules' edges; their distributions are enumerated in `test_enumeration`."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.verify import block_wise, match, token_wise

VOCAB = 3


def test_match_stops_at_the_first_difference_and_at_the_limit() -> None:
    choices = np.asarray([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]])
    drafts = np.asarray([[1, 0, 3], [1, 2, 3], [1, 2, 3]])
    accepted, token = match(drafts, choices, np.asarray([3, 3, 1]))
    assert accepted.tolist() == [1, 3, 1]
    assert token.tolist() == [2, 4, 2]


@pytest.mark.parametrize("rule", [token_wise, block_wise])
def test_padding_is_never_accepted(rule) -> None:
    p = np.full((2, 3, VOCAB), 1 / VOCAB)
    q = np.full((2, 2, VOCAB), 1 / VOCAB)
    drafts, limit, u = np.zeros((2, 2), np.int64), np.asarray([0, 1]), np.full((2, 2), 1e-9)
    accepted, _ = rule(drafts, q, p, limit, u)
    assert accepted.tolist() == [0, 1]


@pytest.mark.parametrize("rule", [token_wise, block_wise])
def test_fixed_tokens_always_stand(rule) -> None:
    """There p and q are the same one-hot, so no uniform can reject them."""
    fixed = np.zeros((1, 3, VOCAB))
    fixed[..., 1] = 1.0
    almost_one = np.full((1, 2), np.nextafter(1.0, 0.0))
    accepted, after = rule(
        np.ones((1, 2), np.int64), fixed[:, :2], fixed, np.asarray([2]), almost_one
    )
    assert accepted.tolist() == [2]
    assert after.tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("rule", [token_wise, block_wise])
def test_what_the_target_forbids_always_falls(rule) -> None:
    q = np.full((1, 2, VOCAB), 1 / VOCAB)
    p = np.full((1, 3, VOCAB), 1 / 2)
    p[..., 0] = 0.0
    accepted, after = rule(
        np.zeros((1, 2), np.int64), q, p, np.asarray([2]), np.full((1, 2), 1e-12)
    )
    assert accepted.tolist() == [0]
    assert after[0, 0] == 0.0
    assert (after[0, 1:] > 0).all()


@pytest.mark.parametrize("rule", [token_wise, block_wise])
def test_the_arguments_are_left_as_they_were(rule) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.ones(VOCAB), (50, 2)), rng.dirichlet(np.ones(VOCAB), (50, 3))
    before = q.copy(), p.copy()
    rule(rng.integers(0, VOCAB, (50, 2)), q, p, np.full(50, 2), rng.random((50, 2)))
    assert np.array_equal(q, before[0])
    assert np.array_equal(p, before[1])
