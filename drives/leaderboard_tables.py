"""The tables of the leaderboards' metrics, each with its convention."""

from __future__ import annotations

from dataclasses import replace

from drives.board_rows import (
    METRES,
    Boarded,
    Section,
    board_rows,
    difference_columns,
    differences,
    frames,
    to_kinematic,
)
from drives.leaderboard_results import BestOf
from drives.scores import BOUNDS
from drives.table import DASH, Cell, Column, Table, estimate, without_empty_columns
from drives.table import share as per_cent
from drives.wod_tables import wod_sections


def sections(report: Boarded) -> list[Section]:
    """Every table that this replay has figures for, in the order of the page."""
    boards = report.leaderboards
    found = [_best_of(report)]
    if boards.calibration:
        found.append(_calibration(report))
    found.append(_l2(report))
    if boards.collisions:
        found.append(_collisions(report))
    found.append(_comfort(report))
    if boards.wod:
        found += wod_sections(report)
    return [replace(each, table=without_empty_columns(each.table)) for each in found]


def _best_of(report: Boarded) -> Section:
    columns = [
        Column("plan"),
        Column("k", "best_of.k"),
        Column("minADE-k m", "best_of.min_ade_5s"),
        Column("minFDE-k m", "best_of.min_fde_5s"),
        Column("brier-minFDE m", "best_of.brier_min_fde_5s"),
        Column("miss rate@k %", "best_of.miss_rate_5s"),
        Column("spread m", "best_of.spread_5s"),
        Column("energy score m", "best_of.energy_score_5s"),
    ]
    rows, groups = board_rows(
        report,
        report.leaderboards.best_of,
        lambda row: [
            Cell(_counted(row)),
            estimate(row.min_ade_5s, METRES),
            estimate(row.min_fde_5s, METRES),
            estimate(row.brier_min_fde_5s, METRES),
            per_cent(row.miss_rate_5s),
            estimate(row.spread_5s, METRES) if row.k > 1 else Cell(DASH),
            estimate(row.energy_score_5s, METRES),
        ],
    )
    text = (
        "Each at 5 s, against the log. The minima are chosen with the truth in hand: oracles, "
        "which no planner can reach. A miss ends over 2 m away. Rollouts are samples, so each has "
        "the probability 1/k in brier-minFDE, unusable ones too."
    )
    return Section(Table("Best of k rollouts", columns, rows, groups), text)


def _counted(row: BestOf) -> str:
    """k, behind the mean of the usable ones where some aren't."""
    if row.usable is None or row.usable >= row.k:
        return str(row.k)
    shown = f"{row.usable:.0f}" if row.usable.is_integer() else f"{row.usable:.1f}"
    return f"{shown} of {row.k}"


def _calibration(report: Boarded) -> Section:
    calibration = report.leaderboards.calibration
    levels = list(next((row.along for row in calibration if row.along), {}))
    columns = [
        Column("decoder"),
        Column("frames", "calibration.frames"),
        Column("spread / error", "calibration.spread_ratio"),
        *(
            Column(f"{100 * float(level):.0f} %", f"calibration.{side}", over=f"inside, {side}, %")
            for side in ("along", "across")
            for level in levels
        ),
    ]
    rows, groups = board_rows(
        report,
        calibration,
        lambda row: [
            Cell(str(row.frames)),
            Cell(DASH if row.spread_ratio is None else f"{row.spread_ratio:.2f}"),
            *(
                Cell(f"{100 * side[level]:.0f}" if level in side else DASH)
                for side in (row.along, row.across)
                for level in levels
            ),
        ],
    )
    text = (
        "Whether what happened looks like one more rollout, at 5 s. Spread / error below 1: the "
        "rollouts are too sure of themselves. Honest rollouts hold 50 % of the truths in their "
        "central 50 %."
    )
    return Section(Table("Calibration of the rollouts", columns, rows, groups), text)


def _l2(report: Boarded) -> Section:
    board = report.leaderboards.nuscenes
    at, up_to = "at t (UniAD), m", "averaged up to t (ST-P3, VAD), m"
    columns = [
        Column("plan"),
        *(Column(f"{t} s", "nuscenes.at", over=at) for t in (1, 2, 3)),
        Column("average", "nuscenes.at_average", over=at),
        *(Column(f"{t} s", "nuscenes.up_to", over=up_to) for t in (1, 2, 3)),
        Column("average", "nuscenes.up_to_average", over=up_to),
        *difference_columns(report, "nuscenes", "Δ average at t, m", board.rows),
    ]
    rows, groups = board_rows(
        report,
        board.rows,
        lambda row: [
            *(estimate(row.at[t], METRES) for t in (1, 2, 3)),
            estimate(row.at_average, METRES),
            *(estimate(row.up_to[t], METRES) for t in (1, 2, 3)),
            estimate(row.up_to_average, METRES),
            *differences(report, row),
        ],
    )
    text = (
        "The same plans in two conventions, which must not share a column. "
        f"{frames(board.frames)}, mask policy {board.policy}: {board.cut_off} windows without a "
        "complete future of 5 s are left out. Frames are this replay's windows, not nuScenes' 2 Hz "
        "key frames, so compare within this table."
        f"{to_kinematic(board.rows, 'the average at t')}"
    )
    return Section(Table("L2 in nuScenes' conventions", columns, rows, groups), text)


def _collisions(report: Boarded) -> Section:
    board = report.leaderboards.collisions
    assert board is not None
    at, up_to = "at t (UniAD), %", "share of steps up to t (ST-P3, VAD), %"
    columns = [
        Column("plan"),
        *(Column(f"{t} s", "collisions.at", over=at) for t in (1, 2, 3)),
        *(Column(f"{t} s", "collisions.up_to", over=up_to) for t in (1, 2, 3)),
    ]
    rows, groups = board_rows(
        report,
        board.rows,
        lambda row: [
            *(per_cent(row.at[t], f"{row.hits[t]} of {row.judged[t]}") for t in (1, 2, 3)),
            *(per_cent(row.up_to[t]) for t in (1, 2, 3)),
        ],
    )
    labelled = ", ".join(f"{count} at {t} s" for t, count in board.labelled.items())
    text = (
        f"Overlap of the ego box ({board.ego}) with labelled road users of all classes, exact, who "
        "don't react: a plan that lags is hit from behind. Where the log's own box overlaps one, "
        "the frame is judged for the log alone: its rate is label noise. Steps up to t are 0.5 s "
        "apart, as in the L2 table. Frames with labels: "
        f"{labelled}."
    )
    return Section(Table("Collisions", columns, rows, groups), text)


def _comfort(report: Boarded) -> Section:
    board = report.leaderboards.comfort
    columns = [
        Column("plan"),
        Column("inside of all", "comfort.comfortable", note="nuPlan's six"),
        *(
            Column(
                name,
                "comfort.outside",
                over="outside at any step, %" if BOUNDS[name].nuplan else "not nuPlan's, %",
                note=bound,
            )
            for name, bound in board.bounds.items()
        ),
    ]
    rows, groups = board_rows(
        report,
        board.rows,
        lambda row: [
            per_cent(row.comfortable),
            *(per_cent(row.outside[name]) for name in board.bounds),
        ],
    )
    text = (
        "Share of the trajectories outside of nuPlan's bounds within 5 s, worked out from the "
        "points and the speed now, alike for all. The log's share is driving and noise of the "
        "recording together: read the others beside it."
    )
    return Section(Table("Comfort", columns, rows, groups), text)
