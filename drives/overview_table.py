"""All leaderboards in one small table, for the terminal."""

from __future__ import annotations

from drives.board_rows import METRES, board_rows, frames
from drives.results import Report
from drives.table import Column, Table, estimate, without_empty_columns
from drives.table import share as per_cent


def overview_table(report: Report) -> Table:
    """A column or two of every table."""
    boards = report.leaderboards
    best = {row.name: row for row in boards.best_of}
    comfort = {row.name: row.comfortable for row in boards.comfort.rows}
    struck = {row.name: row.up_to[3] for row in boards.collisions.rows} if boards.collisions else {}
    wod = {row.name: row for row in boards.wod.rows} if boards.wod else {}
    columns = [
        Column("plan"),
        Column("minADE-k @5s m", "best_of.min_ade_5s"),
        Column("miss rate@k %", "best_of.miss_rate_5s"),
        Column("L2 at 3s m", "nuscenes.at"),
        Column("L2 up to 3s m", "nuscenes.up_to"),
        *([Column("collides up to 3s %", "collisions.up_to")] if struck else []),
        Column("in comfort %", "comfort.comfortable"),
        *([Column("ADE@5s top-rated m"), Column("RFS", "wod.rfs")] if wod else []),
    ]
    rows, groups = board_rows(
        report,
        boards.nuscenes.rows,
        lambda row: [
            estimate(best[row.name].min_ade_5s, METRES),
            per_cent(best[row.name].miss_rate_5s),
            estimate(row.at[3], METRES),
            estimate(row.up_to[3], METRES),
            *([per_cent(struck[row.name])] if struck else []),
            per_cent(comfort[row.name]),
            *(
                [
                    estimate(wod[row.name].top_rater_ade[5], METRES),
                    estimate(wod[row.name].rfs, METRES),
                ]
                if wod
                else []
            ),
        ],
    )
    title = f"Leaderboards, {frames(boards.frames)}"
    return without_empty_columns(Table(title, columns, rows, groups))
