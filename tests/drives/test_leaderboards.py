"""The leaderboards of a report: hand-worked figures through the whole path, and what is missing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from drives.clusters import read_clusters
from drives.collision import NUSCENES_EGO, EgoBox
from drives.drive import Drive
from drives.frame_rows import columns, rollout_columns
from drives.judging import judge
from drives.leaderboard_results import LOG, L2Row
from drives.leaderboard_tables import sections
from drives.leaderboards import outline, outlines
from drives.page import page
from drives.rater import Rated
from drives.replay import Replay, replay
from drives.report import build_report
from drives.results import BundleInfo, Report
from drives.scores import RolloutScores, Scores
from drives.summary import OutputLength, Summary
from drives.table import DASH, Column, Table, without_empty_columns
from drives.verdicts import verdicts
from drives.windows import Window
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from slipstream.commands.terminal import show_report
from tests.drives.fixed_plans import FRONT, SPEED, TIMES, Fixed, car, cut, drive

BUNDLE = BundleInfo(name="fixed", key="0" * 16, target="none", drafter=None, precision={})
HOT = Sampling(0.5)
NAN = float("nan")
NAME = "aabb-147"
RATED = Rated((np.stack([SPEED * TIMES, 0 * TIMES], axis=1),), (10.0,))


def run(
    which: Drive,
    ahead: Callable[[str, int], Sequence[float]],
    settings: Mapping[str, DecodeSettings] | None = None,
    clusters: Mapping[str, str] | None = None,
    **changes: object,
) -> tuple[Replay, Report]:
    frames: list[Window] = cut(which, **changes)
    asked = settings or {"ar": DecodeSettings("ar")}
    done = replay(Fixed(ahead), frames, asked)
    report = build_report(
        done,
        drive=which,
        bundle=BUNDLE,
        output=OutputLength(20, 4),
        text=Fixed(ahead).text,
        wall_s=1.0,
        clusters=clusters,
    )
    return done, report


def l2(report: Report, name: str) -> L2Row:
    return next(row for row in report.leaderboards.nuscenes.rows if row.name == name)


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


def test_rated_frames_have_their_table() -> None:
    """v0 = 8 m/s scales regions by 0.84375: 3 m at 3 s is inside (3.375), 5 m at 5 s too (6.075).

    Standing still ends far outside: 4.
    """
    _, report = run(
        drive(),
        lambda method, frame: [1.0],
        clusters={"aabb": "Construction"},
        rated=RATED,
        name=NAME,
    )
    board = report.leaderboards.wod
    assert board is not None
    rows = {row.name: row for row in board.rows}
    assert (board.rated, board.reached, board.clusters) == (1, {3: 1, 5: 1}, {"Construction": 1})
    assert rows["ar"].rfs.value == pytest.approx(10)
    assert rows["still"].rfs.value == pytest.approx(4)
    assert rows[LOG].rfs.value == pytest.approx(10)
    assert rows["ar"].rfs_by_cluster == pytest.approx({"Construction": 10})
    assert rows["ar"].rfs_of_clusters == pytest.approx(10)
    assert rows["ar"].top_rater_ade[3].value == pytest.approx(TIMES[:12].mean())
    assert rows["ar"].log_ade[5].value == pytest.approx(TIMES.mean())
    difference = rows["ar"].to_kinematic
    assert difference is not None
    assert difference.frames == 1
    assert difference.value.value == pytest.approx(0)
    assert (report.rows[0].name, report.rows[0].cluster) == (NAME, "Construction")
    assert (report.rows[1].name, report.rows[1].rfs) == (None, None)
    html = page(report)
    assert "WOD-E2E" in html
    assert "RFS by cluster" in html
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert "RFS" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_two_ades_of_a_rated_frame_stay_apart() -> None:
    """Raters liked a path 2 m/s slower than the log: a plan on it is 2 t m off the log."""
    slow = Rated((np.stack([(SPEED - 2) * TIMES, 0 * TIMES], axis=1),), (9.0,))
    _, report = run(drive(), lambda method, frame: [-2.0], rated=slow)
    board = report.leaderboards.wod
    assert board is not None
    rows = {row.name: row for row in board.rows}
    assert rows["ar"].top_rater_ade[5].value == pytest.approx(0, abs=1e-9)
    assert rows["ar"].log_of_rated_ade[5].value == pytest.approx(2 * TIMES.mean())
    assert rows[LOG].top_rater_ade[5].value == pytest.approx(2 * TIMES.mean())
    assert rows["ar"].rfs_of_clusters is None
    assert board.clusters == {}
    assert "RFS by cluster" not in page(report)


def test_a_short_rated_trajectory_counts_only_as_far_as_it_reaches() -> None:
    short = Rated((RATED.trajectories[0][:16],), (10.0,))
    _, report = run(drive(), lambda method, frame: [1.0], rated=short)
    assert report.leaderboards.wod is not None
    assert report.leaderboards.wod.reached == {3: 1, 5: 0}
    assert report.leaderboards.wod.rows[0].top_rater_ade[5].value is None
    assert report.leaderboards.wod.rows[0].log_of_rated_ade[5].value is None


def test_unrated_drives_and_drives_without_agents_have_no_such_tables() -> None:
    _, report = run(drive(), lambda method, frame: [1.0])
    assert report.leaderboards.wod is None
    assert report.leaderboards.collisions is None
    html = page(report)
    assert "RFS" not in html
    assert "<h3>Collisions" not in html
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "RFS" not in text
    assert "Leaderboards, 13 frames" in text


TWO = {"ar": DecodeSettings("ar"), "dflash": DecodeSettings()}


def losing(method: str, frame: int) -> list[float]:
    """dflash loses frame 3; elsewhere it is 2 m/s off and ar 1, but 7 on frame 3."""
    if method == "dflash":
        return [NAN if frame == 3 else 2.0]
    return [7.0 if frame == 3 else 1.0]


def test_all_rows_are_over_the_frames_on_which_every_decoder_has_a_plan() -> None:
    """Were frame 3 in ar's mean, it would be 3 * 19 / 13 m at 3 s."""
    _, report = run(drive(), losing, TWO)
    assert report.leaderboards.frames == 12
    assert report.leaderboards.without_plan == {"dflash": 1}
    assert l2(report, "ar").at[3].value == pytest.approx(3)
    assert l2(report, "dflash").at[3].value == pytest.approx(6)
    assert report.decoders[0].accuracy.fde[5].value == pytest.approx(5)
    assert report.leaderboards.best_of[0].min_fde_5s.value == pytest.approx(5)
    apart = l2(report, "dflash").to_reference
    assert apart is not None
    assert (apart.other, apart.frames) == ("ar", 12)
    assert apart.value.value == pytest.approx(2)
    assert l2(report, "ar").to_reference is None
    lost = next(row for row in report.rows if row.decoder == "dflash" and row.frame == 3)
    assert (lost.discomfort, lost.l2_at, lost.rollouts.min_fde) == (None, (None,) * 3, None)
    kept = next(row for row in report.rows if row.decoder == "ar" and row.frame == 3)
    assert kept.fde_5s == pytest.approx(35)
    assert any("12 of 13 frames" in each and "dflash lacks 1" in each for each in verdicts(report))
    html = page(report)
    assert "over the 12 of 13 frames on which every decoder has a plan" in html
    assert "dflash has none on 1" in html


def test_a_decoder_that_never_plans_takes_no_frame_from_the_others() -> None:
    def mute(method: str, frame: int) -> list[float]:
        return [NAN if method == "dflash" else 1.0]

    _, report = run(drive(), mute, TWO, rated=RATED, name=NAME)
    assert report.leaderboards.frames == 13
    assert report.leaderboards.without_plan == {"dflash": 13}
    assert l2(report, "ar").at[3].value == pytest.approx(3)
    assert l2(report, "dflash").at[3].value is None
    assert report.leaderboards.wod is not None
    assert report.leaderboards.wod.rows[1].rfs.value is None
    assert any("dflash has no plan on any frame" in sentence for sentence in verdicts(report))
    assert "Leaderboards" in page(report)


def test_decoders_that_never_plan_on_the_same_frame_leave_nothing_to_compare() -> None:
    def in_turn(method: str, frame: int) -> list[float]:
        return [NAN if (frame % 2 == 0) == (method == "ar") else 1.0]

    _, report = run(drive(agents=()), in_turn, TWO, rated=RATED)
    assert report.leaderboards.frames == 0
    assert report.leaderboards.wod is None
    assert l2(report, "cv").at[3].value is None
    assert l2(report, "dflash").to_kinematic is None
    assert "0 of 13" in page(report)


def test_decoders_with_the_same_plans_share_a_row() -> None:
    _, report = run(drive(), lambda method, frame: [1.0], TWO)
    assert "ar = dflash" in page(report)
    assert ">to reference<" not in page(report)
    _, other = run(drive(), losing, TWO)
    assert ">to reference<" in page(other)


def test_rows_give_the_same_tables_back() -> None:
    """What pools reports: columns from the rows, and the tables from those, equal the originals."""
    which = drive(agents=car(lambda t: SPEED * t + FRONT + 2.6))
    done, report = run(which, losing, TWO, {"aabb": "Cut-ins"}, rated=RATED, name=NAME)
    board = judge(Summary(done, OutputLength(20, 4), str), which, {"aabb": "Cut-ins"})
    mine = {name: [r for r in report.rows if r.decoder == name] for name in TWO}
    others = {
        name: columns([r for r in report.baseline_rows if r.baseline == name])
        for name in (*board.baselines, LOG)
    }
    again = replace(
        board,
        decoders={name: columns(rows) for name, rows in mine.items()},
        baselines={name: others[name] for name in board.baselines},
        log=others[LOG],
        rollouts={
            **board.rollouts,
            **{name: rollout_columns([r.rollouts for r in rows]) for name, rows in mine.items()},
        },
        clusters=[row.cluster or "" for row in mine["ar"]],
    )
    for each in fields(Scores):
        own, back = (getattr(b.decoders["dflash"], each.name) for b in (board, again))
        assert np.array_equal(own, back, equal_nan=True), each.name
    for each in fields(RolloutScores):
        own, back = (getattr(b.rollouts["dflash"], each.name) for b in (board, again))
        assert np.array_equal(own, back, equal_nan=True), each.name
    assert again.tables() == report.leaderboards
    stored = Report.model_validate_json(report.model_dump_json())
    assert stored.leaderboards == report.leaderboards


def test_every_figure_of_a_leaderboard_states_its_convention() -> None:
    schema = Report.model_json_schema()["$defs"]
    for model in ("BestOf", "Calibration", "L2Row", "CollisionRow", "ComfortRow", "WodRow"):
        for name, field in schema[model]["properties"].items():
            if name != "name":
                assert field.get("description"), f"{model}.{name}"
    html = page(run(drive(agents=()), lambda method, frame: [1.0])[1])
    for convention in ("UniAD", "ST-P3, VAD", "drop-frame", "nuPlan", "over 2 m away"):
        assert convention in html


def test_clusters_are_read_from_the_data_sets_file(tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    path.write_text(json.dumps({"aa": {"scenario_cluster": "Cut-ins"}, "bb": "Others"}))
    assert read_clusters(path) == {"aa": "Cut-ins", "bb": "Others"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"aa": {}}', '{"aa": 3}', '{"aa": ""}', "{"])
def test_other_files_hold_no_clusters(text: str, tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    path.write_text(text)
    with pytest.raises(SlipstreamError, match=r"clusters\.json holds no scenario clusters"):
        read_clusters(path)
    with pytest.raises(SlipstreamError, match="no file"):
        read_clusters(tmp_path / "none.json")


def test_the_same_outline_is_said_once_over_many_drives() -> None:
    other = EgoBox(4.9, 2.0, 1.4)
    known, stands = outline(NUSCENES_EGO, known=True), outline(NUSCENES_EGO, known=False)
    assert outlines([known, known]) == known
    assert outlines([stands, stands]) == known + "; a stand-in, the vehicles' are not known"
    mixed = outlines([stands, known])
    assert mixed.count("4.084") == 1
    assert "for some drives a stand-in" in mixed
    assert outlines([known, outline(other, known=True)]).count("; or ") == 1


def test_captions_name_the_baseline_that_differences_are_to() -> None:
    _, report = run(drive(), lambda method, frame: [1.0], rated=RATED, name=NAME)
    texts = {section.table.title: section.text for section in sections(report)}
    for title, rows in (
        ("L2 in nuScenes' conventions", report.leaderboards.nuscenes.rows),
        ("WOD-E2E", report.leaderboards.wod.rows if report.leaderboards.wod else ()),
    ):
        apart = rows[0].to_kinematic
        assert apart is not None
        assert f"Differences are to {apart.other.upper()} (" in texts[title]
    assert "Every top-rated trajectory is 5 s long" in texts["WOD-E2E"]
    assert "4 is its floor" in texts["WOD-E2E"]  # standing still has it


def test_columns_without_a_figure_are_left_out() -> None:
    _, report = run(drive(), lambda method, frame: [1.0])
    for section in sections(report):
        for place, column in enumerate(section.table.columns):
            texts = {row[place].text for row in section.table.rows}
            assert texts - {"", DASH}, column.title
            assert len({len(row) for row in section.table.rows}) == 1
    (best, *_) = sections(report)
    assert "spread m" not in [column.title for column in best.table.columns]  # k is 1 for all
    nothing = Table("t", [Column("plan"), Column("x")], [], [])
    assert without_empty_columns(nothing).columns == [Column("plan")]
