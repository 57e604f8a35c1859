"""Locks end with their process, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from runtime.errors import SlipstreamError
from runtime.lock import held, is_held

HOLD = """
import sys, time
from pathlib import Path
from runtime.lock import held
with held(Path(sys.argv[1]), "--engines"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engines" / ".key.lock"


def test_a_lock_is_gone_when_its_block_ends(path: Path) -> None:
    assert not is_held(path)
    with held(path, "--engines"):
        assert is_held(path)
    assert not path.exists()


def test_a_killed_holder_leaves_nothing_that_waits(path: Path) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, cwd=root
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_held(path)
        os.kill(holder.pid, signal.SIGKILL)
    assert path.exists()  # nobody could take it away
    assert not is_held(path)
    waited: list[str] = []
    with held(path, "--engines", lambda: waited.append("waiting")):
        assert is_held(path)
    assert waited == []
    assert not path.exists()


def test_who_waits_says_so_once_and_goes_on(path: Path) -> None:
    waiting, order = threading.Event(), []

    def second() -> None:
        with held(path, "--engines", waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with held(path, "--engines"):
        thread.start()
        assert waiting.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
    assert not path.exists()


def test_a_folder_that_can_not_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SlipstreamError, match="can't write") as caught,
        held(tmp_path / "file" / ".key.lock", "--engines"),
    ):
        pass
    assert "--engines" in caught.value.fix
