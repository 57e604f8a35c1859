"""The leaderboards' tables: which frames and rows they have, what is left out, what is said."""

from __future__ import annotations

import io
from dataclasses import fields, replace

import numpy as np
import pytest
from rich.console import Console

from drives.collision import NUSCENES_EGO, EgoBox
from drives.frame_rows import columns, rollout_columns
from drives.judging import judge
from drives.leaderboard_results import LOG
from drives.leaderboard_tables import sections
from drives.leaderboards import outline, outlines
from drives.page import page
from drives.results import Report
from drives.scores import RolloutScores, Scores
from drives.summary import OutputLength, Summary
from drives.table import DASH, Column, Table, without_empty_columns
from drives.verdicts import verdicts
from runtime.settings import DecodeSettings
from slipstream.commands.terminal import show_report
from tests.drives.fixed_plans import FRONT, SPEED, car, drive
from tests.drives.fixed_report import NAME, NAN, RATED, l2, run


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
