"""`slipstream verify` on the shipped planner, and what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import slipstream
from runtime.proof.results import PROOF, Proof
from tests.slipstream.command import command

BUNDLE = slipstream.shipped_bundle()


@pytest.mark.skipif(not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}")
def test_the_shipped_planner_passes_and_few_draws_are_called_few(tmp_path: Path) -> None:
    options = ("--drive", "synthetic", "--frames", "1", "--samples", "64", "--methods", "dflash")
    done = command("verify", str(BUNDLE), *options, "--threads", "1", "-o", "out", cwd=tmp_path)
    proof = Proof.model_validate_json((tmp_path / "out" / PROOF).read_text())
    assert [check for check in proof.checks if not check.passed] == []
    assert {check.name for check in proof.checks} >= {"greedy", "seed by seed", "cache"}
    assert proof.probes
    assert proof.windows is not None
    assert proof.windows > proof.frames == 1
    assert "planted: residual dropped" in done.stdout
    steps = re.findall(r"step (\d+) of (\d+): \d+ (?:s|min)", done.stdout)
    assert [int(step) for step, _ in steps] == list(range(1, 1 + int(steps[0][1])))
    assert any(c.caught for c in proof.controls if c.name == "position shifted")
    # 64 draws can't find a faint fault, and a proof without power is none
    assert done.returncode == (0 if proof.passed else 1), done.stderr
    assert ("Proven" in done.stdout) == proof.passed
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--methods", "dflash,ar"), "--methods is out of range"),
        (("--methods", "dflash,section-diffusion"), "section-diffusion has nothing to verify"),
        (("--temperature", "0"), "--temperature is out of range"),
        (("--temperature", "nan"), "--temperature is out of range"),
        (("--samples", "10"), "--samples is out of range"),
        (("--seed", str(1 << 64)), "--seed is out of range"),
        (("--threads", "0"), "threads is out of range"),
        (("--frames", "none"), "--frames can't be used"),
        (("-o", "mine.txt"), "mine.txt can't hold"),
        ((), "nowhere is no bundle"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = command("verify", "nowhere", "--drive", "synthetic", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream: ")
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
