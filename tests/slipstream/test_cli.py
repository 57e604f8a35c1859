"""The command line: what it refuses before it loads anything, and how it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drives.info import describe
from drives.open import open_drive
from planners.observation import Intent
from tests.slipstream.command import ROOT, command

RUN = ("run", "nowhere", "--drive", "synthetic", "-o", "out")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*RUN, "--rollouts", "0"), "rollouts is out of range"),
        ((*RUN, "--deadline-ms", "0"), "--deadline-ms) is out of range"),
        ((*RUN, "--deadline-ms", "-5"), "--deadline-ms) is out of range"),
        ((*RUN, "--deadline-ms", "nan"), "--deadline-ms) is out of range"),
        ((*RUN, "--deadline-ms", "inf"), "--deadline-ms) is out of range"),
        ((*RUN, "--temperature", "-1"), "temperature is out of range"),
        ((*RUN, "--temperature", "nan"), "temperature is out of range"),
        ((*RUN, "--top-p", "0"), "top_p is out of range"),
        ((*RUN, "--top-k", "-1"), "top_k is out of range"),
        ((*RUN, "--block", "1"), "block is out of range"),
        ((*RUN, "--seed", "-1"), "seed is out of range"),
        ((*RUN, "--threads", "0"), "threads is out of range"),
        ((*RUN, "--threads", "10000"), "threads is out of range"),
        ((*RUN, "--seed", str(2**70)), "seed is out of range"),
        ((*RUN, "--temperature", "1e-300"), "temperature is out of range"),
        ((*RUN, "--frames", "9" * 5000), "--frames can't be used"),
        (("drives", "info", "synthetic:" + "9" * 5000), "not a synthetic drive"),
        (("drives", "info", "x" * 5000), "can't be used"),
        ((*RUN, "--decoder", "ar,eagle"), "decoder is out of range"),
        ((*RUN, "--decoder", "ar,"), "decoder is out of range"),
        ((*RUN, "--decoder", "ar,dflash", "--accept", "k-seq"), "for decoder dflash"),
        ((*RUN, "--decoder", "spectr:block"), "for decoder spectr k-seq or rrs"),
        ((*RUN, "--accept", "maybe"), "accept is out of range"),
        ((*RUN, "--nodes", "0"), "nodes is out of range"),
        ((*RUN, "--paths", "0"), "paths is out of range"),
        ((*RUN, "--threshold", "1.5"), "threshold is out of range"),
        ((*RUN, "--decoder", "section-diffusion:block"), "for decoder section-diffusion"),
        ((*RUN, "--frames", "0:99999"), "windows of drive"),
        ((*RUN, "--frames", "7:7"), "--frames can't be used"),
        ((*RUN, "--frames", "none"), "--frames can't be used"),
        (("run", "nowhere", "--drive", "no-drive", "-o", "out"), "no-drive is not a drive"),
        (RUN, "nowhere is no bundle"),
        (("drives", "info", "no-drive"), "no-drive is not a drive"),
        (("drives", "fetch", "no-drive"), "no-drive"),
        (("export", "nowhere", "-o", "out", "--trunk", "0"), "--trunk is out of range"),
        (("export", "nowhere", "-o", "out"), "nowhere"),
        (("export", "nowhere", "-o", "."), "not replaced by a bundle"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream: ")
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_foreign_output_folder_is_refused_before_loading(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    done = command(*RUN, cwd=tmp_path)
    assert done.returncode == 2
    assert "out is not replaced by a report" in done.stderr
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


def test_nothing_heavy_is_loaded_to_refuse(tmp_path: Path) -> None:
    code = """
import sys
sys.argv = "slipstream run nowhere --drive synthetic -o out --frames 0:99999".split()
from slipstream.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, [m for m in ("torch", "onnxruntime", "onnx") if m in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.strip() == "2 []"


def test_wrong_options_are_the_command_lines_own_errors(tmp_path: Path) -> None:
    for arguments in (("run",), ("fly",), (*RUN, "--rule", "maybe"), (*RUN, "--rollouts", "x")):
        assert command(*arguments, cwd=tmp_path).returncode == 2


def test_help_lists_every_command(tmp_path: Path) -> None:
    done = command("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in ("run", "demo", "drives", "export", "version"):
        assert f" {name} " in done.stdout


def test_drives_are_listed_and_described(tmp_path: Path) -> None:
    listed = command("drives", "list", cwd=tmp_path)
    assert listed.returncode == 0
    assert "synthetic" in listed.stdout
    assert "kitti-00" in listed.stdout
    told = command("drives", "info", "synthetic:3", cwd=tmp_path)
    assert told.returncode == 0
    assert "SYNTHETIC" in told.stdout
    assert "windows" in told.stdout


def test_version_names_what_it_runs_on(tmp_path: Path) -> None:
    done = command("version", cwd=tmp_path)
    assert done.returncode == 0
    assert "numpy " in done.stdout
    assert "python 3." in done.stdout


@pytest.mark.parametrize(
    "arguments", [(), ("run",), ("export",), ("drives",), ("drives", "fetch"), ("verify",)]
)
def test_h_is_help_everywhere(arguments: tuple[str, ...], tmp_path: Path) -> None:
    short, long = (command(*arguments, option, cwd=tmp_path) for option in ("-h", "--help"))
    assert short.returncode == 0
    assert short.stdout == long.stdout
    assert "Usage" in short.stdout


def test_the_version_is_one_line(tmp_path: Path) -> None:
    done = command("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"slipstream (\d+\.\d+\S*|source)\n", done.stdout)


def test_what_a_drive_does_not_hold_is_not_listed(tmp_path: Path) -> None:
    bare = command("drives", "info", "synthetic:3", cwd=tmp_path)
    assert "labelled" not in bare.stdout
    assert "commands" not in bare.stdout
    excerpt = ROOT / "tests" / "data" / "boreas-excerpt"
    told = command("drives", "info", str(excerpt), cwd=tmp_path)
    labels = len(open_drive(excerpt).agents or ())
    assert ("labelled" in told.stdout) == (labels > 0)


def test_the_commands_of_a_drive_are_counted() -> None:
    drive = open_drive("synthetic")
    assert describe(drive).commands == {}
    intents = np.zeros(len(drive.times), np.int64)
    assert describe(replace(drive, intents=intents)).commands == {}
    intents[:30] = Intent.LEFT
    found = describe(replace(drive, intents=intents)).commands
    assert found == {"unknown": len(intents) - 30, "left": 30}
