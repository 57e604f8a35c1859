"""How many rollouts a frame has time for: what is predicted and learnt, and what is decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.anytime import Anytime, Rest
from runtime.costs import CostCurve
from runtime.decode import Decoder
from runtime.script import Script
from runtime.settings import RULES, Accept, DecodeSettings, Method, Sampling
from tests.runtime.filling import filling_graphs, scaffold_in
from tests.runtime.tabular import scaffold_of, tabular_graphs

ASKED = 16
N = np.arange(1.0, ASKED + 1)
GUESS = 0.010 + 0.002 * N  # s
PROMPT = np.asarray([1, 3, 2, 0, 1])
PICTURE = "10?2?|34?1??2"

Seconds = Callable[[int, int], float]  # of a frame's number and its rollouts


def drive(rest: Rest, left: float, seconds: Seconds, frames: int) -> list[int]:
    """The rollouts of each frame, with `left` s at every fork."""
    taken = []
    for frame in range(frames):
        taken.append(rest.most(ASKED, left))
        rest.add(taken[-1], seconds(frame, taken[-1]))
    return taken


def twice(frame: int, n: int) -> float:
    return 2 * float(GUESS[n - 1])


def test_before_anything_was_measured_the_cost_curve_decides() -> None:
    rest = Rest(GUESS)
    assert rest.predict(ASKED).tolist() == GUESS.tolist()
    assert [rest.most(ASKED, left) for left in (-1.0, 0.0, 0.0139, 0.0141, 0.0201, 1.0)] == [
        *(1, 1, 1, 2, 5, ASKED)
    ]
    assert Rest(None).most(ASKED, 1e9) == 1
    assert Rest(None).most(1, -1.0) == 1


def test_the_number_follows_what_frames_take_and_keeps_to_the_budget() -> None:
    rest = Rest(GUESS)
    taken = drive(rest, 0.040, twice, 30)
    assert taken[0] == 15  # by the curve; it is late
    assert set(taken[1:]) == {5}  # 2 * (0.010 + 0.002 * 5) = 0.040


def test_more_time_is_used_within_a_few_frames_and_less_at_once() -> None:
    rest = Rest(GUESS)
    assert drive(rest, 0.030, twice, 20)[-1] == 2
    assert drive(rest, 0.040, twice, 1) == [5]
    assert drive(rest, 1.0, twice, 1) == [ASKED]
    assert drive(rest, 0.030, twice, 1) == [2]


def test_a_machine_that_slows_down_and_recovers() -> None:
    slow: Seconds = lambda frame, n: 3 * twice(frame, n)  # noqa: E731
    rest = Rest(GUESS)
    assert drive(rest, 0.060, twice, 30)[-1] == 10
    assert drive(rest, 0.060, slow, 6)[-1] == 1  # 6 * 0.012 s is late with any number
    recovered = drive(rest, 0.060, twice, 60)
    assert recovered[-1] == 10
    assert recovered.index(10) < 50


@pytest.mark.parametrize("when", [0, 1, 10, 40])
def test_a_lone_spike_freezes_nothing(when: int) -> None:
    spike: Seconds = lambda frame, n: 10.0 if frame == when else twice(frame, n)  # noqa: E731
    taken = drive(Rest(GUESS), 0.040, spike, 80)
    after = taken[when + 1 :]
    assert after[20:] == [5] * len(after[20:])
    if when >= 20:
        assert set(after) == {5}


def test_without_a_curve_the_number_grows_from_one() -> None:
    real: Seconds = lambda frame, n: 0.010 + 0.002 * n  # noqa: E731
    taken = drive(Rest(None), 0.030, real, 60)
    assert taken[0] == 1
    assert taken == sorted(taken)
    assert 8 <= taken[-1] <= 10  # 0.010 + 0.002 * 10 = 0.030
    assert max(drive(Rest(None), 1e9, real, 5)) == ASKED


def test_never_above_what_is_asked_and_more_rollouts_never_take_less() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        rest = Rest(GUESS if rng.random() < 0.5 else None)
        for _ in range(int(rng.integers(1, 100))):
            rest.add(int(rng.integers(1, ASKED + 1)), float(rng.exponential(0.02)))
        asked = int(rng.integers(1, ASKED + 1))
        predicted = rest.predict(asked)
        assert len(predicted) == asked
        assert (np.diff(predicted) >= 0).all()
        chosen = [rest.most(asked, left) for left in (-1.0, 0.01, 0.02, 0.05, 1e9)]
        assert chosen == sorted(chosen)
        assert (chosen[0], chosen[-1]) == (1, asked)


def test_methods_and_heats_are_learnt_apart_and_seeds_and_frames_together() -> None:
    script = Script.of(PROMPT, scaffold_of(PICTURE))
    place, one = script.first_value("tail"), DecodeSettings("ar", rollouts=4)
    anytime = Anytime(None, ASKED)
    rest = anytime.fork(one, script, place, 0.0, None).rest
    for same in (replace(one, seed=3), replace(one, frame=9), replace(one, budget_ms=5.0)):
        assert anytime.fork(same, script, place, 0.0, None).rest is rest
    for other in (replace(one, method="ar-scaffold"), replace(one, sampling=Sampling(0.5))):
        assert anytime.fork(other, script, place, 0.0, None).rest is not rest
    fork = anytime.fork(one, script, place, 0.25, None)
    fork.learn(1.0)
    assert list(rest.seen) == [(4, 0.75)]
    anytime.forget()
    assert not anytime.fork(one, script, place, 0.0, None).rest.seen


@pytest.mark.parametrize("method", RULES)
def test_the_guess_is_what_the_curve_says_of_the_forked_part(
    method: Method, tmp_path: Path
) -> None:
    axes = np.asarray([1.0, ASKED]), np.asarray([1.0, 4.0]), np.asarray([1.0, 64.0])
    target = np.broadcast_to(axes[0][:, None, None], (2, 2, 2)) * 1e-3  # 1 ms a rollout
    script, draft = Script.of(PROMPT, scaffold_of(PICTURE)), filling_graphs(tmp_path).manifest.draft
    place = script.first_value("tail")
    passes = {"ar": len(script) - place, "ar-scaffold": int((~script.fixed[place:]).sum())}
    for cost in (0.0, 1.0):  # of a draft
        curve = CostCurve(*axes, target, np.full_like(target, cost))
        fork = Anytime(draft, ASKED).fork(DecodeSettings(method), script, place, 0.0, curve)
        guess = fork.rest.predict(ASKED)
        plain = 1e-3 * N * passes.get(method, passes["ar-scaffold"])
        if method in passes or (cost and method != "scaffold-spec"):
            assert guess == pytest.approx(plain)  # a draft that costs more is not made
        else:
            assert guess == pytest.approx(guess[0] * N)
            assert (
                guess[0] < plain[0]
            )  # of `scaffold-spec` a draft takes no pass: it is the target's


# In the loop.

EVERY = [(method, rule) for method, rules in RULES.items() for rule in rules]


@pytest.mark.parametrize(("method", "rule"), EVERY)
def test_what_there_is_no_time_for_is_left_out_and_nothing_else_changes(
    method: Method, rule: Accept, tmp_path: Path
) -> None:
    fills = rule == "confidence"
    decoder = Decoder((filling_graphs if fills else tabular_graphs)(tmp_path), None)
    scaffold = scaffold_in("10?2?", "34?1??2") if fills else scaffold_of(PICTURE)
    fork_at = scaffold.sections[-1].name
    settings = DecodeSettings(
        method, rule, block=4, nodes=7, rollouts=7, sampling=Sampling(1.0), frame=3
    )
    whole = decoder.decode(PROMPT, scaffold, settings, fork_at)
    assert whole.fork is not None
    assert len({tuple(row) for row in whole.tokens.tolist()}) > 2
    assert (whole.stats.asked, whole.stats.rollouts, whole.stats.met) == (7, 7, None)
    rest = whole.fork.rest
    for n in (1, 2, 5, 7):
        rest.seen.clear()
        rest.add(1, 1e6)  # s a rollout; half of one is left for what the frame itself takes
        hurried = replace(settings, budget_ms=1e9 * (n + 0.5))
        found = decoder.decode(PROMPT, scaffold, hurried, fork_at)
        decoder.cache.check_integrity()
        assert found.tokens.tolist() == whole.tokens[:n].tolist()
        assert (found.stats.asked, found.stats.rollouts) == (7, n)
        found.done(2.5e6)
        assert found.stats.met is (n >= 2)
        assert rest.seen[-1][0] == n


def test_what_was_spent_before_counts_and_a_spent_budget_cuts_nothing_short(
    tmp_path: Path,
) -> None:
    decoder, scaffold = Decoder(tabular_graphs(tmp_path), None), scaffold_of(PICTURE)
    hurried = DecodeSettings("ar", rollouts=6, sampling=Sampling(1.0), budget_ms=1e9 * 4.5)
    first = decoder.decode(PROMPT, scaffold, hurried, "tail")
    assert first.stats.rollouts == 1  # nothing is known yet
    assert first.fork is not None
    first.fork.rest.add(1, 1e6)
    assert decoder.decode(PROMPT, scaffold, hurried, "tail", 0.0).stats.rollouts == 4
    late = decoder.decode(PROMPT, scaffold, hurried, "tail", 1e7)
    assert late.tokens.tolist() == first.tokens.tolist()
    decoder.forget()
    assert decoder.decode(PROMPT, scaffold, hurried, "tail").stats.rollouts == 1
