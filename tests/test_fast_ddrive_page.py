"""docs/fast-ddrive.md: its commands on the shipped planner, its estimates, and its figures."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slipstream
from planners.language import Language
from planners.published import fast_ddrive
from slipstream.cli import app
from slipstream.commands.estimate import milliseconds
from slipstream.estimate.devices import DEVICES, check_precision
from slipstream.estimate.frame import Work, estimate_frame
from slipstream.estimate.roofline import Roofline
from tests.slipstream.test_estimate_blocks import FAST, H100, WORK

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fast-ddrive.md").read_text(encoding="utf-8")
# what keeps the commands short: one frame, one thread, few rollouts
TIMED = ("run", "sweep")
FEWER = {"--frames": "1", "--sweep-frames": "1", "--rollouts": "2", "--deadline-ms": "5000"}
pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (slipstream.shipped_bundle("fast-ddrive") / "bundle.json").is_file(),
        reason="no shipped bundle",
    ),
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    lines = (line for block in blocks("sh") for line in block.splitlines())
    return [shlex.split(line, comments=True) for line in lines]


def fewer(words: list[str], out: Path) -> list[str]:
    """The command on the synthetic drive, with outputs in `out`."""
    words = [re.sub(r"^out/", f"{out}/", word) for word in words]
    words = ["synthetic" if word == "kitti-00" else word for word in words]
    words = [str(ROOT / w) if w.startswith("planners/") else w for w in words]
    for at, word in enumerate(words[:-1]):
        if word in FEWER and words[0] in (*TIMED, "-m"):
            words[at + 1] = "1,2" if words[0] == "sweep" and word == "--rollouts" else FEWER[word]
    if words[0] == "export":  # tests/export has the parity check
        return [*words, "--no-parity"]
    return [*words, "--threads", "1"] if words[0] in TIMED else words


def measure(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "N=16, 4 at a time" in done.stdout


def test_the_commands_run_in_their_order(tmp_path: Path) -> None:
    runner, ran = CliRunner(), []
    for program, *words in commands():
        if program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
            continue
        if program == "python":
            measure(fewer(words, tmp_path))
            continue
        assert program == "slipstream"
        if (
            words[0] == "verify"
        ):  # takes thousands of outputs; tests/slipstream/test_verify.py runs it
            continue
        done = runner.invoke(app, fewer(words, tmp_path), env={"COLUMNS": "200"})
        assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}\n{done.exception!r}"
        ran.append(words[0])
    assert ran.count("run") == 6
    assert set(ran) == {"export", "inspect", "run", "sweep", "compile", "estimate"}
    for name in ("fd", "fd4", "fd-dflash", "fd-dflash4"):
        report = json.loads((tmp_path / name / "report.json").read_text())
        compared = [d["identity"] for d in report["decoders"] if d["identity"]]
        assert all(same["identical"] == same["rollouts"] for same in compared)
        assert compared or name == "fd4"


def test_the_language_is_saved_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Fast-dDrive").mkdir()
    (example,) = blocks("python")
    exec(example, {})
    assert Language.load(tmp_path / "Fast-dDrive" / "language.json") == fast_ddrive()


def test_the_estimates_are_what_the_code_says() -> None:
    for device in ("agx-orin", "thor"):
        for n in (1, 2, 4, 8, 16):
            frame = estimate_frame(Roofline(FAST, DEVICES[device], "fp16", None), WORK, n)
            took = frame.encode, frame.prefill, frame.draft, frame.verify, frame.head, frame.seconds
            assert " ".join(milliseconds(s) for s in took) in " ".join(PAGE.split())
    rows = re.findall(r"^\| (agx-orin|thor), (\w+) \|(.*)\|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for device, precision, cells in rows:
        roofline = Roofline(FAST, DEVICES[device], check_precision(precision), None)
        plain = estimate_frame(roofline, Work(WORK.prompt, WORK.prefix, WORK.tail), 1)
        one, four, many = (estimate_frame(roofline, WORK, n) for n in (1, 4, 16))
        assert [cell.strip() for cell in cells.split("|")] == [
            f"{1e3 * plain.seconds:.0f} ms",
            f"{1e3 * one.seconds:.0f}",
            f"{1e3 * four.seconds:.0f} ({four.seconds / one.seconds:.2f}x)",
            f"{1e3 * many.seconds:.0f} ({many.seconds / one.seconds:.2f}x)",
            f"{one.memory / 1e9:.2f} / {many.memory / 1e9:.2f} GB",
        ]
    h100 = Roofline(FAST, H100, "fp16", None)
    plain = estimate_frame(h100, Work(WORK.prompt, WORK.prefix, WORK.tail), 1)
    drafted = estimate_frame(h100, WORK, 1)
    assert f"{plain.seconds / drafted.seconds:.2f}; the paper has" in " ".join(PAGE.split())
    assert f"{1e3 * drafted.seconds:.0f} ms against 665 ms" in " ".join(PAGE.split())
