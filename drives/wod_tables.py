"""The tables of WOD-E2E: ADE against log and raters, and the Rater Feedback Score."""

from __future__ import annotations

from drives.board_rows import (
    METRES,
    Boarded,
    Section,
    board_rows,
    difference_columns,
    differences,
    frames,
    plain_number,
    to_kinematic,
)
from drives.leaderboard_results import Wod
from drives.rater import FLOOR as RFS_FLOOR
from drives.table import Column, Table, estimate


def _reached(board: Wod) -> str:
    """How far the top-rated trajectories reach, where some end early."""
    if all(count == board.rated for count in board.reached.values()):
        return "Every top-rated trajectory is 5 s long."
    told = ", ".join(f"at {t} s over {frames(count)}" for t, count in board.reached.items())
    return f"Some top-rated trajectories are shorter than 5 s: ADE to them is {told}."


def wod_sections(report: Boarded) -> list[Section]:
    """The table, and that of the scenario clusters where frames have one."""
    board = report.leaderboards.wod
    assert board is not None
    log, of_rated, top = "to log, m", "to log, rated, m", "to top-rated, m"
    clusters = Column("mean of clusters", "wod.rfs_of_clusters", over="raters")
    columns = [
        Column("plan"),
        *(Column(f"ADE@{t}s", "wod.log_ade", over=log) for t in (3, 5)),
        *(Column(f"ADE@{t}s", "wod.log_of_rated_ade", over=of_rated) for t in (3, 5)),
        *(Column(f"ADE@{t}s", "wod.top_rater_ade", over=top) for t in (3, 5)),
        Column("RFS", "wod.rfs", over="raters"),
        *([clusters] if board.clusters else []),
        *difference_columns(report, "wod", "Δ RFS", board.rows),
    ]
    rows, groups = board_rows(
        report,
        board.rows,
        lambda row: [
            *(estimate(row.log_ade[t], METRES) for t in (3, 5)),
            *(estimate(row.log_of_rated_ade[t], METRES) for t in (3, 5)),
            *(estimate(row.top_rater_ade[t], METRES) for t in (3, 5)),
            estimate(row.rfs, METRES),
            *([plain_number(row.rfs_of_clusters)] if board.clusters else []),
            *differences(report, row, higher_is_better=True),
        ],
    )
    floored = any(row.rfs.value == RFS_FLOOR for row in board.rows)
    text = (
        f"{board.rated} of {frames(report.leaderboards.frames)} rated. {_reached(board)} "
        "The test server's ADE is against the top-rated trajectory, validation tables' against "
        "the log: separate columns, never to be mixed. RFS: higher is better"
        + (f"; {RFS_FLOOR:g} is its floor, given outside of every trust region." * floored or ".")
        + to_kinematic(board.rows, "RFS")
    )
    found = [Section(Table("WOD-E2E", columns, rows, groups), text)]
    if board.clusters:
        by_cluster, groups = board_rows(
            report,
            board.rows,
            lambda row: [plain_number(row.rfs_by_cluster.get(name)) for name in board.clusters],
        )
        heads = [
            Column(name, "wod.rfs_by_cluster", note=frames(count))
            for name, count in board.clusters.items()
        ]
        table = Table("RFS by cluster", [Column("plan"), *heads], by_cluster, groups)
        found.append(Section(table, "Mean over the rated frames of each scenario cluster."))
    return found
