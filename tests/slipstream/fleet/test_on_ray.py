"""Workers that are Ray actors, on a real Ray of this machine: same results, and deaths."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.errors import SlipstreamError
from slipstream.commands.request import RAY_HERE
from slipstream.fleet.job import Done, Ready
from slipstream.fleet.local import Processes
from slipstream.fleet.on_ray import Actors, ray_library
from slipstream.fleet.schedule import run_all
from tests.slipstream.command import command, started
from tests.slipstream.fleet.small import (
    BUNDLE,
    HAS_BUNDLE,
    Killer,
    Watcher,
    figures,
    items,
    job,
    leavings,
)

ray = pytest.importorskip("ray", reason="ray is not installed (extra scale)")
pytestmark = pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")

DRIVES = items("synthetic", "synthetic:7", "synthetic:8")


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Actors]:
    actors = Actors(job(), tmp_path / "ray", RAY_HERE, 2)
    yield actors
    actors.close()


def test_actors_make_what_processes_make(crew: Actors, tmp_path: Path) -> None:
    """Bit for bit, although one of the actors dies in the middle."""
    assert crew.room() >= 2
    watcher = Killer("synthetic:7", times=1)
    assert run_all(crew, DRIVES, 2, watcher) == {}
    assert len(watcher.retried) == 1
    assert watcher.retried[0].startswith("synthetic:7: ")
    done = [drive for drive, message in watcher.said if isinstance(message, Done)]
    assert sorted(done) == [item.drive for item in DRIVES]
    assert sum(isinstance(message, Ready) for _, message in watcher.said) == 3
    assert leavings(tmp_path / "ray") == []

    local = Processes(job(), tmp_path / "local")
    try:
        assert run_all(local, DRIVES, 1, Watcher()) == {}
    finally:
        local.close()
    there, here = figures(tmp_path / "ray"), figures(tmp_path / "local")
    assert len(there) == 3
    assert there == here


@pytest.mark.slow
def test_the_command_line_on_ray(tmp_path: Path) -> None:
    """Broken drives fail alone; what is finished is not run again."""
    (tmp_path / "broken.csv").write_text("time,x,y,heading\n0,0,0,nonsense\n")
    drives = ("--drive", "synthetic", "--drive", "broken.csv")
    few = ("--decoder", "dflash", "--frames", "2")
    run = ("run", str(BUNDLE), *drives, *few, "-o", "out", "--ray", "--workers", "1")
    first = command(*run, cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert "broken.csv" in first.stdout
    assert sorted(figures(tmp_path / "out")) == ["synthetic"]
    again = command(*run, cwd=tmp_path)
    assert "synthetic: kept" in again.stdout


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "near", ":1", "h:99999"])
def test_a_cluster_that_is_not_there(address: str, tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match=f"no Ray cluster answers at --ray {address}"):
        Actors(job(), tmp_path, address, 1)


@pytest.mark.slow
def test_a_running_cluster_is_used_and_left_running(tmp_path: Path) -> None:
    """`--ray ADDRESS`; more workers than it has room for are not waited for."""
    cluster = ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        address = cluster.address_info["gcs_address"]
        run = ("run", str(BUNDLE), "--drive", "synthetic", "--decoder", "dflash", "--frames", "2")
        done = command(*run, "-o", "out", "--ray", address, "--workers", "3", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "room for 1 of 3 workers" in done.stdout
        assert sorted(figures(tmp_path / "out")) == ["synthetic"]
        assert ray.cluster_resources()["CPU"] == 1
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_a_stopped_run_ends_its_cluster(tmp_path: Path) -> None:
    drives = ("--drive", "synthetic", "--drive", "synthetic:7", "--decoder", "dflash")
    run = ("run", str(BUNDLE), *drives, "--frames", "20", "-o", "out", "--ray", "--workers", "1")
    process = started(*run, cwd=tmp_path)
    until = time.monotonic() + 200
    while not (tmp_path / "out" / "synthetic").exists() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, err
    assert "synthetic: done" in out
    assert sorted(figures(tmp_path / "out")) == ["synthetic"]
    assert leavings(tmp_path) == []


def test_without_ray_one_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SlipstreamError, match="pip install 'ray"):
        ray_library()
