"""`slipstream compile` and `slipstream engines` with odd sizes, odd stores, and a signal."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import slipstream
from tests.slipstream.command import command, started

BUNDLE = str(slipstream.shipped_bundle())
HEAD = ("--target", "sm86", "--graph", "head", "--engines", "engines")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the head's engine for sm86."""
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    folder = tmp_path_factory.mktemp("built")
    done = command("compile", BUNDLE, *HEAD, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built / "engines", tmp_path / "engines")
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_a_signal_stops_a_build_and_nothing_is_stored(
    tmp_path: Path, number: signal.Signals, wait: float
) -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    process = started("compile", BUNDLE, "--target", "sm86", "--engines", "engines", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()  # what is built into which folder: builds start
    time.sleep(wait)
    stored = {path.name for path in (tmp_path / "engines").glob("*.engine")}
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 128 + number
    after = {path.name for path in (tmp_path / "engines").glob("*.engine")}
    assert len(after) <= len(stored) + 1  # one that was just being written; none follows
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--memory-pool", "workspace:99999999999G"), "out of range"),
        (("--memory-pool", f"workspace:{'9' * 400}"), "out of range"),
        (("--memory-pool", "workspace:0"), "out of range"),
        (("--memory-pool", "workspace:1M,workspace:2M"), "twice"),
        (("--profile", "decode:N=1:2:2147483648"), "up to"),
        (("--profile", f"decode:N=1:2:{10**26}"), "up to"),
        (("--profile", f"decode:N={'9' * 5000}"), "up to"),
        (("--profile", "decode:N=1:8:16,N=1:2:3"), "one range"),
        (("--profile", "decode:N=1:2:3", "--profile", "decode:N=1:2:4"), "one range"),
        (("--graph", "head"), "twice"),
    ],
)
def test_silly_sizes_are_one_error_before_the_build(
    built: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = command("compile", BUNDLE, *HEAD, "--dry-run", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr
    assert len(done.stderr) < 1500


@pytest.mark.parametrize(
    "raw",
    [b"{{{", b"\xff", b"[1,2]", b"null", b"[" * 100_000, b'{"layers": [1]}', b'{"layers": [{}]}'],
    ids=["braces", "utf8", "list", "null", "deep", "number", "empty"],
)
def test_a_broken_record_of_layers_is_one_error(folder: Path, raw: bytes) -> None:
    (record,) = (folder / "engines").glob("*.layers.json")
    record.write_bytes(raw)
    done = command("engines", "inspect", "head", "--engines", "engines", "--layers", cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert f"{record.name} can't be read" in done.stderr


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def looping(path: Path) -> None:
    path.symlink_to(path.name)


def empty_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [dangling, looping, empty_folder, os.mkfifo])
@pytest.mark.parametrize("ending", [".engine", ".json"])
def test_an_odd_entry_is_listed_pruned_and_built_over(
    folder: Path, make: Callable[[Path], None], ending: str
) -> None:
    (engine,) = (folder / "engines").glob("*.engine")
    odd = engine.with_suffix(ending)
    odd.unlink()
    make(odd)
    listed = command("engines", "list", "--engines", "engines", cwd=folder)
    assert listed.returncode == 0, listed.stderr
    assert "unusable" in listed.stdout
    again = command("compile", BUNDLE, *HEAD, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert odd.is_file()
    odd.unlink()
    make(odd)
    pruned = command("engines", "prune", "--engines", "engines", cwd=folder)
    assert pruned.returncode == 0, pruned.stderr
    assert engine.name in pruned.stdout
    assert not list((folder / "engines").iterdir())


def test_a_filled_folder_stays_and_is_named_with_the_option(folder: Path) -> None:
    (engine,) = (folder / "engines").glob("*.engine")
    engine.unlink()
    engine.mkdir()
    (engine / "mine").write_text("keep")
    pruned = command("engines", "prune", "--all", "--engines", "engines", cwd=folder)
    assert pruned.returncode == 0, pruned.stderr
    built = command("compile", BUNDLE, *HEAD, cwd=folder)
    assert built.returncode == 2
    assert "--engines" in built.stderr
    assert (engine / "mine").read_text() == "keep"
