"""Folders that can be filled, but not renamed: mounts, and those in a parent that is not ours."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import exchange
from runtime.errors import SlipstreamError
from runtime.files import check_writable, contents, new_folder, work_folder, write_atomic
from tests.runtime.test_files import ROOT, names

LAST = "it.json"
KILLED = """
import os, sys
from pathlib import Path
from runtime import exchange
from runtime.files import new_folder
exchange.is_mount = lambda path: path == Path(sys.argv[1])
real, left = Path.replace, int(sys.argv[2])
def replace(self, target):
    global left
    if not left:
        print(sorted(path.name for path in Path(sys.argv[1]).iterdir() if path.name[0] != "."))
        os.kill(os.getpid(), 9)
    left -= 1
    return real(self, target)
Path.replace = replace
with new_folder(Path(sys.argv[1]), "it.json") as work:
    for name in ("it.json", "a", "new"):
        (work / name).write_text("new")
"""


@pytest.fixture(params=["mounted", "patched", "bound", "another's parent"])
def fixed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder that can't be renamed."""
    folder = tmp_path / "a mount"
    folder.mkdir()
    real = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if self == folder:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(self, target)

    if request.param in ("mounted", "bound"):
        (tmp_path / "from").mkdir()
        how = (
            ["-t", "tmpfs", "tmpfs"]
            if request.param == "mounted"
            else ["--bind", tmp_path / "from"]
        )
        done = subprocess.run(["mount", *how, folder], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("this user can't mount")
        yield folder
        subprocess.run(["umount", folder], check=True)
        return
    monkeypatch.setattr(Path, "replace", refused)
    if request.param == "patched":
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == folder)
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    yield folder


def write(folder: Path, text: str, *more: str) -> None:
    with new_folder(folder, LAST) as work:
        for name in (LAST, "a", *more):
            (work / name).write_text(text)


def read(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_it_is_filled_where_it_stands(fixed: Path) -> None:
    check_writable(fixed, folder=True)
    write(fixed, "old", "more")
    assert read(fixed) == {LAST: "old", "a": "old", "more": "old"}
    with work_folder(fixed) as work, new_folder(fixed, LAST) as new:
        assert work.parent == new.parent == fixed  # on its disk
        assert [path.name for path in contents(fixed)] == ["a", LAST, "more"]
        (new / LAST).write_text("new")
    assert read(fixed) == {LAST: "new"}


def test_on_an_error_it_is_as_before(fixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(fixed, "old", "more")
    with pytest.raises(TypeError):
        write(fixed, "new", None)  # type: ignore[arg-type]
    assert read(fixed) == {LAST: "old", "a": "old", "more": "old"}
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if self.name == LAST and self.parent.name == "new":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SlipstreamError, match="can't write") as caught:
        write(fixed, "new", "other")
    assert str(fixed) in caught.value.what
    assert ".tmp" not in caught.value.what
    assert read(fixed) == {LAST: "old", "a": "old", "more": "old"}


@pytest.mark.parametrize("steps", range(7))
def test_a_killed_exchange_is_settled_at_the_next(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three renames away, one that says that the new is complete, three of the new."""
    folder = tmp_path / "mnt"
    write(folder, "old", "more")
    command = [sys.executable, "-c", KILLED, str(folder), str(steps)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert (LAST in killed.stdout) == (steps == 0)  # no part of either is taken for it
    monkeypatch.setattr(exchange, "is_mount", lambda path: path == folder)
    check_writable(folder, folder=True)
    old, new = dict.fromkeys((LAST, "a", "more"), "old"), dict.fromkeys((LAST, "a", "new"), "new")
    assert read(folder) == (old if steps < 4 else new)
    assert names(tmp_path) == ["mnt"]


def test_a_folder_that_turns_out_to_be_fixed_is_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but a rename says so of a folder in a lower layer of an image."""
    folder = tmp_path / "out"
    write(folder, "old", "more")
    real = Path.replace

    def refused(self: Path, target: Path) -> Path:
        if self == folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", refused)
    write(folder, "new")
    assert read(folder) == {LAST: "new", "a": "new"}
    assert names(tmp_path) == ["out"]


def test_a_file_that_is_a_mount_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomic(tmp_path / "plans.mcap", "mine")
    monkeypatch.setattr("runtime.files.is_mount", lambda path: path.name == "plans.mcap")
    with pytest.raises(SlipstreamError, match="can't write"):
        check_writable(tmp_path / "plans.mcap")
    check_writable(tmp_path / "other.mcap")
