"""The leaderboard of frames that raters judged, by hand, and the clusters of their scenarios."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from drives.clusters import read_clusters
from drives.leaderboard_results import LOG
from drives.page import page
from drives.rater import Rated
from runtime.errors import SlipstreamError
from slipstream.commands.terminal import show_report
from tests.drives.fixed_plans import SPEED, TIMES, drive
from tests.drives.fixed_report import NAME, RATED, run


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
