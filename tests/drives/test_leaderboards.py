"""The leaderboards of a report: errors, collisions and comfort, each figure by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from drives.judging import judge
from drives.leaderboard_results import LOG
from drives.page import page
from drives.replay import replay
from drives.summary import OutputLength, Summary
from runtime.settings import DecodeSettings, Sampling
from tests.drives.fixed_plans import FRONT, SPEED, TIMES, Fixed, car, cut, drive
from tests.drives.fixed_report import NAN, l2, run

HOT = Sampling(0.5)


def test_a_plan_a_metre_a_second_too_fast() -> None:
    """t s ahead it is t m off: every figure by hand."""
    _, report = run(drive(), lambda method, frame: [1.0])
    row = l2(report, "ar")
    assert [row.at[t].value for t in (1, 2, 3)] == pytest.approx([1, 2, 3])
    assert row.at_average.value == pytest.approx(2)
    # the six points are 0.5, 1 .. 3 m off
    assert [row.up_to[t].value for t in (1, 2, 3)] == pytest.approx([0.75, 1.25, 1.75])
    assert row.up_to_average.value == pytest.approx(1.25)
    board = report.leaderboards.nuscenes
    assert (board.policy, board.frames, board.cut_off) == ("drop-frame", 13, 0)
    (best, *baselines) = report.leaderboards.best_of
    assert best.k == 1
    assert best.min_ade_5s.value == pytest.approx(TIMES.mean())
    assert best.min_fde_5s.value == best.brier_min_fde_5s.value == pytest.approx(5)
    assert best.energy_score_5s.value == pytest.approx(5)
    assert (best.miss_rate_5s.value, best.spread_5s.value) == (1.0, 0.0)
    assert report.leaderboards.calibration == []
    assert baselines[0].name == "cv"
    assert baselines[0].miss_rate_5s.value == 0.0
    assert report.rows[0].l2_up_to == pytest.approx((0.75, 1.25, 1.75))
    assert report.rows[0].fde_5s == pytest.approx(5)


def test_skipped_windows_are_counted() -> None:
    which = drive()
    frames = cut(which)
    done = replay(
        Fixed(lambda method, frame: [1.0]),
        frames,
        {"ar": DecodeSettings("ar")},
        skipped={"less than 5 s of future": 20},
    )
    board = judge(Summary(done, OutputLength(20, 4), str), which).tables()
    assert board.nuscenes.cut_off == 20


def test_two_rollouts_around_the_truth() -> None:
    """One too fast, one too slow by 1 m/s: their mean is the truth, each alone ends 5 m off."""
    settings = {"ar ×2": DecodeSettings("ar", rollouts=2, sampling=HOT)}
    _, report = run(drive(), lambda method, frame: [1.0, -1.0], settings)
    best = report.leaderboards.best_of[0]
    assert (best.k, best.usable) == (2, 2)
    assert best.min_ade_5s.value == pytest.approx(TIMES.mean())
    assert best.brier_min_fde_5s.value == pytest.approx(5 + 0.25)
    assert best.miss_rate_5s.value == 1.0
    assert best.spread_5s.value == pytest.approx(5)
    assert best.energy_score_5s.value == pytest.approx(5 - 0.5 * 10)
    assert l2(report, "ar ×2").at[3].value == pytest.approx(0, abs=1e-9)
    readings = report.decoders[0].rollout_ade_5s
    assert readings["plan"].value == pytest.approx(0, abs=1e-9)
    assert readings["mean_of_ade"].value == pytest.approx(TIMES.mean())
    (calibration,) = report.leaderboards.calibration
    assert (calibration.name, calibration.frames) == ("ar ×2", 13)
    assert set(calibration.along) == {"0.5", "0.8", "0.9"}
    # the truth has the middle one of three ranks, and that third is inside the central half
    assert calibration.along["0.5"] == pytest.approx(1.0)


def test_one_of_two_rollouts_is_unusable() -> None:
    settings = {"ar ×2": DecodeSettings("ar", rollouts=2, sampling=HOT)}
    _, report = run(drive(), lambda method, frame: [1.0, NAN], settings)
    best = report.leaderboards.best_of[0]
    assert best.k == 2
    assert best.usable == 1
    # it was drawn as one of two, so its weight is a half: unusable ones earn nothing
    assert best.min_fde_5s.value == pytest.approx(5)
    assert best.brier_min_fde_5s.value == pytest.approx(5 + 0.25)
    assert "1 of 2" in page(report)
    assert report.leaderboards.calibration[0].frames == 0
    assert report.leaderboards.calibration[0].along == {}
    assert report.rows[0].rollouts.missed == 1.0


def test_a_car_ahead_is_struck_late() -> None:
    """2.6 m ahead of the bumper at the ego's speed: 1 m/s more overlaps it at 2.75 and 3 s."""
    which = drive(agents=car(lambda t: SPEED * t + FRONT + 2.6))
    _, report = run(which, lambda method, frame: [1.0])
    board = report.leaderboards.collisions
    assert board is not None
    rows = {row.name: row for row in board.rows}
    assert board.labelled == {1: 13, 2: 13, 3: 13}
    assert rows["ar"].hits == {1: 0, 2: 0, 3: 13}
    assert rows["ar"].judged == {1: 13, 2: 13, 3: 13}
    assert [rows["ar"].at[t].value for t in (1, 2, 3)] == [0, 0, 1]
    assert [rows["ar"].up_to[t].value for t in (1, 2, 3)] == pytest.approx([0, 0, 1 / 6])
    assert not any(rows["cv"].hits.values())
    assert not any(rows[LOG].hits.values())
    assert list(report.rows[0].collision_at) == [0, 0, 1]
    html = page(report)
    assert "Collisions" in html
    assert "13 of 13" in html
    assert "4.084 × 1.85 m" in html


def test_a_log_in_a_box_is_label_noise_and_judged_for_nobody_else() -> None:
    """A box around the logged path at all times: the log has it, plans are not judged."""
    _, report = run(drive(agents=car(lambda t: SPEED * t)), lambda method, frame: [1.0])
    board = report.leaderboards.collisions
    assert board is not None
    rows = {row.name: row for row in board.rows}
    assert (rows[LOG].hits, rows[LOG].judged) == ({1: 13, 2: 13, 3: 13}, board.labelled)
    assert rows["ar"].judged == {1: 0, 2: 0, 3: 0}
    assert rows["ar"].at[3].value is None
    assert report.rows[0].collision_at == (None, None, None)


def test_no_labels_near_is_no_collision_rate() -> None:
    _, report = run(drive(agents=()), lambda method, frame: [1.0])
    board = report.leaderboards.collisions
    assert board is not None
    assert board.labelled == {1: 0, 2: 0, 3: 0}
    assert all(row.at[1].value is None for row in board.rows)


def test_a_stand_in_for_the_ego_box_is_called_one() -> None:
    which = replace(drive(agents=()), dataset="Boreas")
    _, report = run(which, lambda method, frame: [1.0])
    assert report.leaderboards.collisions is not None
    assert "stand-in" in report.leaderboards.collisions.ego
    _, known = run(drive(agents=()), lambda method, frame: [1.0])
    assert known.leaderboards.collisions is not None
    assert "stand-in" not in known.leaderboards.collisions.ego


def test_comfort_names_the_bound_that_breaks() -> None:
    """From 8 to 9 m/s within the first step: 8 m/s², and no jerk that the points show."""
    _, report = run(drive(), lambda method, frame: [1.0])
    rows = {row.name: row for row in report.leaderboards.comfort.rows}
    assert rows["ar"].comfortable.value == 0
    broken = {name for name, each in rows["ar"].outside.items() if each.value}
    assert broken == {"acceleration"}
    assert report.rows[0].discomfort == ["acceleration"]
    assert rows[LOG].comfortable.value == rows["cv"].comfortable.value == 1
    assert set(report.leaderboards.comfort.bounds) == set(rows[LOG].outside)


def test_driving_backwards_is_told() -> None:
    _, report = run(drive(), lambda method, frame: [-9.0])
    rows = {row.name: row for row in report.leaderboards.comfort.rows}
    assert rows["ar"].outside["reverse"].value == 1
    assert rows[LOG].outside["reverse"].value == 0
