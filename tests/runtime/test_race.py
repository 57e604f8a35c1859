"""Draws by an exponential race: their law, what a number depends on, and how often two agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtime.draws import ACCEPT, DRAFT, Draws
from runtime.philox import uniforms
from runtime.proof.statistics import chi_square_p, fit
from runtime.race import BLUR, WIDE, Race
from runtime.sampling import distribution, draw
from runtime.settings import Sampling

ALPHA = 1e-4
MANY = 40_000


def races(n: int, seed: int = 0) -> Race:
    """[n] places: many rollouts at many positions."""
    return Draws(seed, 7).at_position(np.arange(n) % 64, 3 + np.arange(n) // 64)


def noise_of(race: Race, tokens: np.ndarray) -> np.ndarray:
    """[..., C] of tokens [C] at every place."""
    noise = race.over(np.broadcast_to(tokens, (*race.positions.shape, len(tokens)))).noise
    assert noise is not None
    return noise


def pairs(error: float, n: int = 300, vocab: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """[n, V] target's and drafter's distributions, whose logits differ by `error`."""
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(n, vocab)) * 2
    hot = Sampling(1.0)
    return distribution(logits, hot), distribution(
        logits + rng.normal(size=logits.shape) * error, hot
    )


@pytest.mark.parametrize("vocab", [2, 10, 640])
@pytest.mark.parametrize("beforehand", [False, True])
def test_the_winner_is_distributed_as_p(vocab, beforehand) -> None:
    rng = np.random.default_rng(vocab)
    p = np.zeros(vocab)
    some = rng.permutation(vocab)[: min(vocab, 30)]
    p[some] = rng.dirichlet(np.full(len(some), 0.5))
    race = races(MANY)
    if beforehand:
        race = race.over(np.broadcast_to(np.arange(vocab), (MANY, vocab)))
    counts = np.bincount(race.draw(np.broadcast_to(p, (MANY, vocab))), minlength=vocab)
    assert chi_square_p(*fit(counts, p)) > ALPHA
    assert chi_square_p(*fit(counts, np.roll(p, 1))) < ALPHA


@pytest.mark.parametrize("apart", [1, 2, 3, 5])
def test_tokens_and_places_race_independently(apart) -> None:
    """Tokens that share a counter, neighbours, and the same token at the next place."""
    noise = noise_of(races(MANY), np.asarray([8, 8 + apart]))
    u = np.exp(-noise)
    for one, other in ((u[:, 0], u[:, 1]), (u[:-64, 0], u[64:, 0]), (u[:-1, 0], u[1:, 1])):
        cells = np.floor(one * 8).astype(int) * 8 + np.floor(other * 8).astype(int)
        assert chi_square_p(*fit(np.bincount(cells, minlength=64), np.full(64, 1 / 64))) > ALPHA


def test_noise_depends_on_the_place_and_the_token_alone() -> None:
    race = races(200)
    whole = noise_of(race, np.arange(50))
    assert (whole > 0).all()
    assert len(np.unique(whole)) == whole.size
    for tokens in ([7], [8, 9], [49, 3, 3, 20], [0, 4, 5, 6, 7, 8]):
        assert np.array_equal(noise_of(race, np.asarray(tokens)), whole[:, tokens])
    assert np.array_equal(noise_of(race[17:19], np.arange(50)), whole[17:19])
    alone = Race(0, 7, np.asarray(17), np.asarray(3))
    assert np.array_equal(noise_of(alone, np.arange(50)), whole[17])
    for other in (Race(1, 7, *places(race)), Race(0, 8, *places(race))):
        assert not np.isin(noise_of(other, np.arange(50)), whole).any()


def places(race: Race) -> tuple[np.ndarray, np.ndarray]:
    return race.rollouts, race.positions


@settings(deadline=None)
@given(
    hnp.arrays(np.float64, (5, 12), elements=st.floats(0, 1)).filter(
        lambda p: (p.max(axis=1) > 0.01).all()
    ),
    st.integers(0, 2**40),
)
def test_a_draw_is_a_possible_token_and_the_same_in_any_company(p, seed) -> None:
    p, race = p / p.sum(axis=1, keepdims=True), races(5, seed)
    won = race.draw(p)
    at = np.arange(5)
    assert (p[at, won] > 0).all()
    assert [int(race[n : n + 1].draw(p[n : n + 1])[0]) for n in at] == won.tolist()
    wider = np.concatenate([p, np.zeros((5, 600))], axis=1)
    assert np.array_equal(race.draw(wider), won)
    order = np.argsort(-p, axis=1)  # the same distribution, its columns in another order
    columns = race.over(order).draw(np.take_along_axis(p, order, axis=1))
    assert np.array_equal(order[at, columns], won)
    # tokens that lost change nothing when they are not allowed any more
    less = np.where((np.arange(12) % 2 == 0) | (np.arange(12) == won[:, None]), p, 0.0)
    assert np.array_equal(race.draw(less), won)
    assert np.array_equal(race[:, None].draw(p[:, None])[:, 0], won)


def test_more_tokens_than_wide_are_drawn_by_one_number() -> None:
    rng = np.random.default_rng(0)
    vocab, n = WIDE + 300, 3000
    p = rng.dirichlet(np.full(vocab, 0.05)) + 1e-9
    p /= p.sum()
    race = races(n)
    rows = np.tile(p, (n, 1))
    won = race.draw(rows)
    assert np.array_equal(won, draw(rows, race.numbers()))
    assert chi_square_p(*fit(np.bincount(won, minlength=vocab), p)) > ALPHA
    # narrow rows beside them, and WIDE tokens exactly, race
    rows[::2, : vocab - WIDE] = 0.0
    mixed = race.draw(rows)
    assert np.array_equal(mixed[1::2], won[1::2])
    assert np.array_equal(mixed[::2], race[::2].draw(rows[::2]))
    noise = noise_of(race[:1], np.arange(vocab - WIDE, vocab))
    assert mixed[0] == vocab - WIDE + (noise[0] / p[vocab - WIDE :]).argmin()
    # columns that stand for other tokens, too many to know their noise beforehand
    turned = np.tile(np.arange(vocab)[::-1], (n, 1))
    again = race.over(turned)
    assert again.noise is None
    assert np.array_equal(vocab - 1 - again[::2].draw(rows[::2, ::-1]), mixed[::2])
    ahead = race[:4].foreseen(rows[:4])
    assert np.allclose(ahead.sum(axis=-1), 1.0)
    assert (ahead[rows[:4] == 0] == 0).all()
    assert ahead[1, mixed[1]] == pytest.approx(race[1:2].foreseen(rows[1:2])[0, mixed[1]])


@pytest.mark.parametrize("error", [0.1, 0.5, 1.5, 4.0])
def test_two_who_race_agree_more_often_than_by_inverse_cdf(error) -> None:
    p, q = pairs(error)
    shift = np.abs(p - q).sum(axis=1) / 2
    by_race, by_number, repeats = np.zeros(len(p)), np.zeros(len(p)), 200
    for seed in range(repeats):
        race = races(len(p), seed)
        by_race += race.draw(p) == race.draw(q)
        by_number += draw(p, race.numbers()) == draw(q, race.numbers())
    ratio = np.maximum(q[:, None] / q[..., None], p[:, None] / p[..., None])  # [n, i, j]
    exact = (1.0 / ratio.sum(axis=2)).sum(axis=1)
    assert (exact >= (1 - shift) / (1 + shift) - 1e-12).all()
    assert (exact <= 1 - shift + 1e-12).all()
    noise = np.sqrt((exact * (1 - exact)).sum() / repeats) / len(p)
    assert abs((by_race / repeats - exact).mean()) < 4 * noise
    assert by_race.sum() > by_number.sum()


def test_a_foreseen_winner_is_among_the_possible() -> None:
    p = np.asarray([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    for race in (races(3), races(3).over(np.tile(np.arange(3), (3, 1)))):
        ahead = race.foreseen(p)
        assert np.allclose(ahead.sum(axis=-1), 1.0)
        assert (ahead[p == 0] == 0).all()
        assert ahead[1, 0] == 1.0
        assert np.array_equal(ahead.argmax(axis=-1), race.draw(p))
        assert np.array_equal(race[:, None].foreseen(p[:, None])[:, 0], ahead)
        power = (p / noise_of(races(3), np.arange(3))) ** (1 / BLUR)
        assert np.allclose(ahead, power / power.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("error", [0.2, 1.0])
def test_knowing_the_noise_tells_more_than_the_distribution_alone(error) -> None:
    p, q = pairs(error, 4000)
    race = races(len(p))
    at = np.arange(len(p)), race.draw(p)
    assert -np.log(race.foreseen(q)[at]).mean() < -0.7 * np.log(q[at]).mean()


def test_no_number_is_used_by_two() -> None:
    """A position's race and number, and those of the rounds that start there."""
    rollouts, positions = np.arange(3), np.arange(20, 23)
    draws = Draws(0, 7)
    race = draws.at_position(rollouts, positions)
    tokens = np.concatenate([np.arange(40), 151_000 + np.arange(40)])
    numbers = draws.of_round(rollouts, positions)
    every_place = np.broadcast_to(np.arange(65), (3, 20, 65))
    used = np.concatenate(
        [
            np.exp(-noise_of(race, tokens)).round(12).reshape(-1),
            race.numbers().round(12),
            *(numbers(every_place, word).round(12).reshape(-1) for word in (DRAFT, ACCEPT)),
        ]
    )
    assert len(np.unique(used)) == used.size
    # by their counters: a block has far fewer rows than would reach those of tokens
    assert np.allclose(
        np.exp(-noise_of(race, np.asarray([4 * 9 + 2]))[:, 0]),
        uniforms(0, 7, rollouts, positions, 2**31 + 9)[:, 2],
    )
    assert np.array_equal(race.numbers(), uniforms(0, 7, rollouts, positions, 0)[:, 0])
