"""Workers of this machine: what they make, and what happens when one dies. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.errors import SlipstreamError
from slipstream.fleet.job import Died, Done, Item, Ready
from slipstream.fleet.local import Processes
from slipstream.fleet.schedule import TRIES, run_all
from tests.slipstream.fleet.small import HAS_BUNDLE, Killer, Watcher, figures, items, job, leavings

pytestmark = pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")


def test_one_worker_and_two_make_the_same(tmp_path: Path) -> None:
    drives = items("synthetic", "synthetic:7")
    for workers in (1, 2):
        crew, watcher = Processes(job(), tmp_path / str(workers)), Watcher()
        try:
            assert run_all(crew, drives, workers, watcher) == {}
        finally:
            crew.close()
        loaded = sum(isinstance(message, Ready) for _, message in watcher.said)
        assert loaded == workers  # an engine a worker, once
        done = [drive for drive, message in watcher.said if isinstance(message, Done)]
        assert sorted(done) == [item.drive for item in drives]
    one, two = figures(tmp_path / "1"), figures(tmp_path / "2")
    assert sorted(one) == [item.folder for item in drives]
    assert one == two
    assert one["synthetic"]["decoders"][1]["acceptance_length"] > 2  # it is compared


def test_a_killed_workers_drive_goes_to_a_new_one(tmp_path: Path) -> None:
    crew = Processes(job(), tmp_path)
    watcher = Killer("synthetic:7", times=1)
    try:
        assert run_all(crew, items("synthetic", "synthetic:7"), 1, watcher) == {}
    finally:
        crew.close()
    assert len(watcher.retried) == 1
    assert "SIGKILL" in watcher.retried[0]
    assert sorted(figures(tmp_path)) == ["synthetic", "synthetic-7"]
    assert leavings(tmp_path) == []


@pytest.mark.slow
def test_a_worker_that_dies_between_two_drives(tmp_path: Path) -> None:
    """What it made stands, and the drive it was given next goes to another one."""
    crew, watcher = Processes(job(), tmp_path), Killer("synthetic", times=1, at=Done)
    try:
        assert run_all(crew, items("synthetic", "synthetic:7"), 1, watcher) == {}
    finally:
        crew.close()
    assert [told.partition(": ")[0] for told in watcher.retried] == ["synthetic:7"]
    assert sorted(figures(tmp_path)) == ["synthetic", "synthetic-7"]


def test_workers_that_never_get_ready_end_the_run(tmp_path: Path) -> None:
    crew, watcher = Processes(job(frames=None), tmp_path), Watcher()
    try:
        with pytest.raises(SlipstreamError, match="die before their engine is loaded") as error:
            run_all(crew, items("synthetic", "synthetic:7"), 2, watcher)
    finally:
        crew.close()
    assert "AttributeError at selection.py" in str(error.value)
    assert len(watcher.retried) == TRIES - 1


def test_a_drive_that_kills_every_worker_fails_alone(tmp_path: Path) -> None:
    crew = Processes(job(), tmp_path)
    watcher = Killer("synthetic", times=TRIES)
    drives = items("synthetic", "synthetic:7")
    try:
        failures = run_all(crew, drives, 1, watcher)
    finally:
        crew.close()
    assert list(failures) == [drives[0]]
    assert f"died, {TRIES} times" in failures[drives[0]]
    assert sum(isinstance(message, Died) for _, message in watcher.said) == TRIES
    assert sorted(figures(tmp_path)) == ["synthetic-7"]


def test_a_broken_drive_is_not_tried_again(tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("t,x\n1,nonsense\n")
    crew, watcher = Processes(job(), tmp_path / "out"), Watcher()
    drives = [Item(str(broken), "broken", str(broken)), *items("synthetic")]
    try:
        failures = run_all(crew, drives, 1, watcher)
    finally:
        crew.close()
    assert list(failures) == [drives[0]]
    assert "broken" in failures[drives[0]]
    assert watcher.retried == []
    assert sorted(figures(tmp_path / "out")) == ["synthetic"]


def test_what_no_drive_is_to_blame_for_ends_the_run(tmp_path: Path) -> None:
    for changes, says in (
        ({"key": "0" * 16}, "another bundle"),
        ({"version": "0.0.0"}, "another slipstream"),
        ({"bundle": tmp_path / "none"}, "is no bundle"),
    ):
        crew = Processes(job(**changes), tmp_path / "out")
        try:
            with pytest.raises(SlipstreamError, match=says):
                run_all(crew, items("synthetic", "synthetic:7"), 2, Watcher())
        finally:
            crew.close()
        assert not (tmp_path / "out").exists()
