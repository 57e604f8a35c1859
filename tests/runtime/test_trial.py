"""The way to decode a stretch of a frame, chosen by what each way took."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.trial import ARMS, CHECKS, LEARNING, RETRIES, Arm, Trial

RETRY_CLOSE, RETRY, RETRY_LOST = (frames for _, frames in RETRIES)
CHAIN: tuple[Arm, ...] = ("chain", "plain")
WAYS = sorted(set(ARMS.values()))


def run_of(trial: Trial, frames: int, **cost: float) -> list[Arm]:
    """What was chosen, frame by frame, if the ways cost this much."""
    chosen = []
    for _ in range(frames):
        chosen.append(trial.next(expected_plain=cost["plain"]))
        trial.add(chosen[-1], cost[chosen[-1]])
    return chosen


def test_a_stretch_is_drafted_only_while_that_is_faster() -> None:
    assert set(run_of(Trial(CHAIN), 60, chain=1.0, plain=2.0)) == {"chain"}
    slower = run_of(Trial(CHAIN), 300, chain=2.0, plain=1.0)
    assert slower[:LEARNING] == ["chain"] * LEARNING
    assert slower[LEARNING:].count("chain") == 300 // RETRY  # tried again now and then, no more


@pytest.mark.parametrize(("ways", "best"), [(ways, arm) for ways in WAYS for arm in ways])
def test_the_fastest_way_is_found(ways, best) -> None:
    cost = dict.fromkeys(ways, 2.0) | {best: 1.0}
    chosen = run_of(Trial(ways), 300, **cost)[len(ways[:-1]) * LEARNING + CHECKS :]
    assert chosen.count(best) >= len(chosen) - (len(ways) - 1) * (300 // RETRY)


def test_the_cost_curve_is_not_believed_where_it_may_be_wrong() -> None:
    """Drafting nothing is timed, unless it is out of the question."""
    trial = Trial(CHAIN)
    for _ in range(LEARNING + CHECKS):
        arm = trial.next(expected_plain=1.3)
        trial.add(arm, {"chain": 1.0, "plain": 0.8}[arm])
    assert trial.next(expected_plain=1.3) == "plain"
    hopeless = Trial(CHAIN)
    for _ in range(60):
        arm = hopeless.next(expected_plain=2.0)
        assert arm == "chain"
        hopeless.add(arm, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_fast_in_a_few_frames_only_is_not_preferred(seed) -> None:
    rng, trial, chosen = np.random.default_rng(seed), Trial(CHAIN), []
    for _ in range(400):
        chosen.append(trial.next(expected_plain=1.0))
        drafted = rng.choice([0.7, 1.3, 1.4])
        trial.add(chosen[-1], drafted if chosen[-1] == "chain" else 1.0)
    assert chosen.count("plain") > 0.7 * len(chosen)


def test_a_way_that_is_close_is_timed_again_sooner() -> None:
    close = run_of(Trial(CHAIN), 320, chain=1.0, plain=1.1)
    assert 320 // RETRY_CLOSE - 2 <= close.count("plain") - CHECKS <= 320 // RETRY_CLOSE


def test_a_stretch_that_changes_sides_is_found_out() -> None:
    for ways in WAYS:
        trial, cost = Trial(ways), dict.fromkeys(ways, 2.0)
        assert run_of(trial, 20, **(cost | {"plain": 1.0}))[-1] == "plain"
        assert run_of(trial, 24 * RETRY, **(cost | {ways[0]: 0.2}))[-1] == ways[0]


def test_a_way_that_loses_much_hardly_ever_costs_a_frame() -> None:
    chosen = run_of(Trial(CHAIN), 2 * RETRY_LOST, chain=5.0, plain=1.0)
    assert chosen[LEARNING:].count("chain") == 1


def test_one_busy_moment_does_not_decide() -> None:
    trial = Trial(CHAIN)
    run_of(trial, 20, chain=1.0, plain=1.5)
    trial.add("chain", seconds=100.0)
    assert trial.next(expected_plain=1.5) == "chain"


def test_frames_that_fail_leave_nothing_to_choose_by() -> None:
    """A trial whose turns all ended in an error has no time, and goes on trying."""
    for ways in WAYS:
        trial = Trial(ways)
        assert {trial.next(expected_plain=1.0) for _ in range(3 * LEARNING)} <= set(ways[:-1])
