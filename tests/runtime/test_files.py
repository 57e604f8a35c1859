"""Files are whole or absent, also when their writer is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime.errors import SlipstreamError
from runtime.files import (
    STALE_S,
    check_writable,
    new_file,
    new_folder,
    unwritable,
    work_folder,
    write_atomic,
)

ROOT = Path(__file__).resolve().parents[2]
WRITE_FOLDER = """
import sys, time
from pathlib import Path
from runtime.files import new_folder
with new_folder(Path(sys.argv[1])) as work:
    (work / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""
WORK = """
import sys, time
from pathlib import Path
from runtime.files import work_folder
with work_folder(Path(sys.argv[1])) as work:
    print("writing", flush=True)
    time.sleep(60)
"""
WRITE_FILE = """
import os, sys, time
from pathlib import Path
from runtime.files import write_atomic
def stop(self, target):
    print("writing", flush=True)
    time.sleep(60)
Path.replace = stop
write_atomic(Path(sys.argv[1]), "half")
"""
BETWEEN_RENAMES = """
import os, sys, time
from pathlib import Path
from runtime.files import new_folder
real = Path.replace
def stop(self, target):
    if self.suffix == ".tmp":
        print("writing", flush=True)
        time.sleep(60)
    return real(self, target)
Path.replace = stop
with new_folder(Path(sys.argv[1])) as work:
    (work / "new").write_text("new")
"""


def writing(code: str, path: Path) -> subprocess.Popen[str]:
    """A process in the middle of its write."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def killed(code: str, path: Path) -> None:
    process = writing(code, path)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_writer_is_swept_up_after(tmp_path: Path) -> None:
    for code in (WRITE_FOLDER, WRITE_FILE):
        killed(code, tmp_path / "out")
        (left,) = names(tmp_path)
        assert left.startswith(".out.")
        write_atomic(tmp_path / "out", "whole")
        assert names(tmp_path) == ["out"]
        (tmp_path / "out").unlink()
    killed(WRITE_FOLDER, tmp_path / "out")
    with new_folder(tmp_path / "out") as work:
        (work / "whole").write_text("whole")
    assert names(tmp_path) == ["out"]


def test_a_folder_that_was_being_replaced_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as work:
        (work / "old").write_text("old")
    killed(BETWEEN_RENAMES, out)
    assert not out.exists()
    with pytest.raises(RuntimeError), new_folder(out):
        raise RuntimeError("the next write fails")
    assert names(tmp_path) == ["out"]
    assert names(out) == ["old"]


def test_a_writer_at_work_is_left_alone(tmp_path: Path) -> None:
    process = writing(WRITE_FOLDER, tmp_path / "out")
    try:
        (busy,) = names(tmp_path)
        write_atomic(tmp_path / "out", "whole")
        assert names(tmp_path) == [busy, "out"]
        assert names(tmp_path / busy) == ["half"]
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_only_our_own_names_of_this_place_are_swept(tmp_path: Path) -> None:
    gone = "999999999"  # above the kernel's highest process number
    mine = [
        ".out.tmp",
        ".out.backup.tmp",
        f".other.01234567-{gone}.abc.tmp",
        f"out.01234567-{gone}.abc.tmp",
        f".out.01234567-{gone}.abc.txt",
    ]
    for name in mine:
        (tmp_path / name).write_text("mine")
        os.utime(tmp_path / name, (0, 0))
    write_atomic(tmp_path / "out", "whole")
    assert names(tmp_path) == sorted([*mine, "out"])


def test_what_another_machine_left_goes_after_an_hour(tmp_path: Path) -> None:
    foreign = tmp_path / ".out.01234567-1.abc.tmp"
    foreign.mkdir()
    (foreign / "half").write_text("half")
    os.utime(foreign, (0, 0))
    write_atomic(tmp_path / "out", "whole")
    assert foreign.is_dir()  # a file in it is new: someone is at work
    long_ago = time.time() - STALE_S - 1
    os.utime(foreign / "half", (long_ago, long_ago))
    write_atomic(tmp_path / "out", "whole")
    assert names(tmp_path) == ["out"]


def test_a_folder_whose_exchange_fails_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with new_folder(out) as work:
        (work / "old").write_text("old")
    real = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise SystemExit(143)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(SystemExit), new_folder(out) as work:
        (work / "new").write_text("new")
    assert names(tmp_path) == ["out"]
    assert names(out) == ["old"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SlipstreamError, match="can't write") as caught:
        write_atomic(tmp_path / "file" / "out", "x")
    assert caught.value.fix


def test_an_error_names_the_output_and_not_what_stands_for_it(tmp_path: Path) -> None:
    with new_folder(tmp_path / "out.d") as work:
        assert work.name.startswith(".out.d.")
        said = unwritable(work / "report.json", OSError(28, "No space left on device"))
    assert said.what == f"can't write {tmp_path / 'out.d' / 'report.json'}"


def test_work_that_was_killed_goes_once_its_folder_is_there(tmp_path: Path) -> None:
    out = tmp_path / "k" / "cal"
    killed(WORK, out)
    assert names(tmp_path) == ["k"]
    with new_folder(out) as work:
        (work / "whole").write_text("whole")
    assert names(tmp_path / "k") == ["cal"]


def test_folders_that_were_made_for_what_failed_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    out = tmp_path / "new" / "newer" / "out"
    with pytest.raises(SlipstreamError, match="can't write"):
        write_atomic(out, "x")
    with pytest.raises(SlipstreamError, match="can't write"), new_file(out) as file:
        file.write_text("x")
    with pytest.raises(SlipstreamError, match="can't write"), new_folder(out):
        pass
    assert names(tmp_path) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(SlipstreamError, match="can't write"):
        write_atomic(tmp_path / "mine" / "out", "x")
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize("below", ["", "out", "new/out"])
def test_a_loop_of_links_is_one_error_before_and_after_the_work(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    out = Path("loop") / below
    for folder in (True, False):
        with pytest.raises(SlipstreamError, match="can't write loop") as caught:
            check_writable(out, folder=folder)
        assert caught.value.found == os.strerror(errno.ELOOP)
    for writing_to in (new_file, new_folder, work_folder):
        with pytest.raises(SlipstreamError, match="can't write loop"), writing_to(out):
            raise AssertionError("no work is begun")
    if below:
        with pytest.raises(SlipstreamError, match="can't write loop"):
            write_atomic(out, "x")
    assert names(tmp_path) == ["loop"]


def test_a_link_to_nowhere_yet_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    check_writable(tmp_path / "link", folder=True)
    with new_folder(tmp_path / "link") as work:
        (work / "whole").write_text("whole")
    assert names(tmp_path / "there") == ["whole"]


def test_an_output_under_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """What quantizes and compiles takes its absolute path, whatever the command line said."""
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/x\xff"))
    folder.mkdir()
    with pytest.raises(SlipstreamError, match="is no text"):
        check_writable(folder / "out", folder=True)


def test_a_folder_that_can_not_be_listed_can_be_written_to(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o300)
    with new_folder(closed / "out") as work:
        (work / "whole").write_text("whole")
    with new_folder(closed / "out") as work:
        (work / "whole").write_text("again")
    assert (closed / "out" / "whole").read_text() == "again"
