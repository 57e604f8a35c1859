"""`slipstream estimate --report` on reports that no replay wrote."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from drives.results import MOST, read_report
from runtime.errors import SlipstreamError
from slipstream import shipped_bundle
from slipstream.estimate.measured import fastest_drafting
from tests.slipstream.command import command


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    done = command(
        *("run", str(shipped_bundle()), "--drive", "synthetic", "--decoder", "ar,dflash,spectr"),
        *("--frames", "2", "--threads", "1", "-o", "run"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "run" / "report.json").read_text(encoding="utf-8")


def changed(text: str, where: str, value: object) -> str:
    """The report with another value at a dotted place."""
    report = json.loads(text)
    *way, last = [int(part) if part.isdigit() else part for part in where.split(".")]
    at: Any = report
    for part in way:
        at = at[part]
    at[last] = value
    return json.dumps(report)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        *(("decoders.1.acceptance_length", bad) for bad in (0, -5, 0.5, 1e9, math.nan, math.inf)),
        *(("decoders.2.settings.block", bad) for bad in (-7, 0, 1, 10**30, 10**400)),
        *(("decoders.1.settings.rollouts", bad) for bad in (-1, 0, 10**30)),
        *(("decoders.1.latency_ms.mean.value", bad) for bad in (None, 0.0, -1.0, math.nan)),
        *(("frames", bad) for bad in (-1, 0)),
        ("decoders.1.acceptance_length", "six"),
        ("decoders.1.settings.block", 2.5),
    ],
)
def test_a_figure_that_no_replay_gives_is_named(
    good: str, where: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    path.write_text(changed(good, where, value), encoding="utf-8")
    with pytest.raises(SlipstreamError) as caught:
        fastest_drafting(path)
    unwritten = isinstance(value, float) and not math.isfinite(value)  # JSON has no NaN
    assert (path.name if unwritten else where) in str(caught.value)
    assert caught.value.fix


def test_infinity_by_overflow_is_refused(good: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    text = changed(good, "decoders.1.acceptance_length", "HERE").replace('"HERE"', "1e999")
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SlipstreamError):
        fastest_drafting(path)


def test_the_fastest_is_the_one_with_the_lowest_mean(good: str, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for fastest in (1, 2):
        path.write_text(changed(good, f"decoders.{fastest}.latency_ms.mean.value", 1e-6), "utf-8")
        report, found = fastest_drafting(path)
        assert found == {1: report.decoders[fastest]}


def test_each_number_of_rollouts_has_its_own_row(good: str, tmp_path: Path) -> None:
    text = changed(good, "decoders.2.settings.rollouts", 8)
    text = changed(changed(text, "decoders.1.acceptance_length", 6.0), "decoders.1.name", "one")
    text = changed(changed(text, "decoders.2.acceptance_length", 3.0), "decoders.2.name", "eight")
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    done = command(
        *("estimate", str(shipped_bundle()), "--device", "thor", "--report", "report.json"),
        "--json",
        cwd=tmp_path,
    )
    found = json.loads(done.stdout)
    lengths = {frame["rollouts"]: frame["acceptance_length"] for frame in found["frames"]}
    assert (lengths[1], lengths[2], lengths[4], lengths[8]) == (6.0, 6.0, 3.0, 3.0)
    decoding = found["facts"]["decoding"]
    assert decoding.startswith("N = 1, 2: block 24, acceptance length 6.00 (measured: one at N = 1")
    assert "(measured: eight at N = 8" in decoding


@pytest.mark.parametrize(
    "raw", [b"", b"\xff\xfe", b"[" * 10**6, b"9" * 10**5, b"null", b'{"version": 9}']
)
def test_what_is_no_report_is_one_error(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(raw)
    with pytest.raises(SlipstreamError, match=r"report\.json is no report"):
        read_report(path)


def test_a_pipe_a_folder_and_a_huge_file_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MOST + 1)
    for name, says in (("pipe", "regular"), ("folder", "regular"), ("huge", f"{MOST + 1} bytes")):
        with pytest.raises(SlipstreamError, match=says):
            read_report(tmp_path / name)


def test_the_command_says_it_once_and_takes_odd_names(good: str, tmp_path: Path) -> None:
    arguments = ("estimate", str(shipped_bundle()), "--device", "thor", "--report", "report.json")
    path = tmp_path / "report.json"
    path.write_text(changed(good, "decoders.1.acceptance_length", 0), encoding="utf-8")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "decoders.1.acceptance_length is out of range" in done.stderr
    assert "Traceback" not in done.stderr
    path.write_text(changed(good, "drive.name", "[/drive]"), encoding="utf-8")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[/drive]" in done.stdout
