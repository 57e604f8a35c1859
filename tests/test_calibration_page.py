"""docs/calibration.md: its commands, on few frames and one graph, and that all of them parse."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import slipstream
from calibration.calibrate import LIMIT_BYTES
from calibration.fastest import MARGIN, WORTH
from calibration.gates import ADE_GATE, DECODES_GATE, ERROR_GATE, PARSE_GATE, TAU_GATE, Gates
from slipstream.cli import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "calibration.md").read_text(encoding="utf-8")
# what keeps the first command short: two frames say nothing of plans
FEWER = (
    "--windows 2 --frames 2 --threads 1 --graphs head --keep none --how dynamic "
    "--max-ade-increase 9 --max-tau-drop 1 --max-parse-failures 9"
)
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not (slipstream.shipped_bundle() / "bundle.json").is_file(), reason="no shipped bundle"
    ),
]


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = (line for block in blocks for line in block.splitlines())
    return [shlex.split(line, comments=True) for line in lines]


def test_every_command_is_one_that_the_program_knows() -> None:
    group = typer.main.get_command(app)
    names = []
    for program, name, *words in commands():
        assert program == "slipstream"
        command = group.commands[name]  # type: ignore[attr-defined]
        command.make_context(name, words)  # raises for what it does not know
        names.append(name)
    assert set(names) >= {"calibrate", "bench", "verify"}


def test_the_first_command_runs_and_inspect_shows_what_was_done(tmp_path: Path) -> None:
    first = next(words for words in commands() if words[1] == "calibrate")
    named = {"out/bundle": str(slipstream.shipped_bundle()), "kitti-00": "synthetic"}
    words = [named.get(word, word.replace("out/", f"{tmp_path}/")) for word in first[1:]]
    runner, wide = CliRunner(), {"COLUMNS": "200"}
    done = runner.invoke(app, [*words, *FEWER.split()], env=wide)
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    out = tmp_path / "bundle-int8"
    assert (tmp_path / "bundle-int8.calibration.json").is_file()
    shown = runner.invoke(app, ["inspect", str(out)], env=wide)
    assert shown.exit_code == 0
    assert "head: dynamic, 1 of 1" in shown.output
    assert "int8 on 2 windows of synthetic-0" in shown.output
    assert "passed" in shown.output


def test_the_limits_are_the_programs() -> None:
    gates = Gates()
    for name in (ERROR_GATE, ADE_GATE, TAU_GATE, PARSE_GATE, DECODES_GATE):
        assert f"| {name} |" in PAGE
    assert f"`--max-error` {gates.max_error:g}" in PAGE
    assert f"`--max-ade-increase` {gates.max_ade_increase:g}" in PAGE
    assert f"`--max-tau-drop` {gates.max_tau_drop:g}" in PAGE
    assert f"`--max-parse-failures` {gates.max_parse_failures} above" in " ".join(PAGE.split())
    assert f"at most {LIMIT_BYTES * 2 >> 20} MB" in PAGE
    assert f"faster by {100 * MARGIN:g} %" in PAGE
    assert f"has to save\n   {100 * WORTH:g} % more" in PAGE
