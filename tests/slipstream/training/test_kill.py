"""A training that is killed goes on as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.commands.train import run_train
from tests.slipstream.training.conftest import drafter_fields, write

ROOT = Path(__file__).resolve().parents[3]
STEPS = 30


def start(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "slipstream", "train", *args, "--threads", "1"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def step_on_disk(state: Path) -> int:
    try:
        return int(json.loads((state / "state.json").read_text("utf-8"))["step"])
    except (OSError, ValueError):  # not there yet, or just being exchanged
        return 0


def lines(out: Path) -> list[dict[str, float]]:
    log = (out / "training" / "log.jsonl").read_text("utf-8")
    return [{k: v for k, v in json.loads(x).items() if k != "seconds"} for x in log.splitlines()]


def test_a_killed_run_that_goes_on_equals_one_that_was_not_killed(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "killed", STEPS)
    fields["evaluation"]["every"] = 10
    config = write(tmp_path / "killed.yaml", fields)
    state = tmp_path / "killed" / "training" / "state"

    running = start("drafter", str(config))
    deadline = time.monotonic() + 120
    while step_on_disk(state) < 13:
        assert running.poll() is None, running.stdout and running.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert 13 <= step_on_disk(state) < STEPS
    assert not (tmp_path / "killed" / "model.safetensors").exists()

    run_train("drafter", config, True, None, "cpu", 1)
    assert "goes on at step" in capsys.readouterr().out

    whole = write(tmp_path / "whole.yaml", {**fields, "out": str(tmp_path / "whole")})
    run_train("drafter", whole, False, None, "cpu", 1)
    ours, theirs = (tmp_path / name for name in ("killed", "whole"))
    for file in ("model.safetensors", "training/state/state.safetensors"):
        one, other = load_file(ours / file), load_file(theirs / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one), file
    assert lines(ours) == lines(theirs)
    assert [line["step"] for line in lines(ours)] == [10, 20, 30]
