"""The shipped planner end to end: replay, report, and what an interrupt leaves behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import slipstream
from drives.results import REPORT, read_report
from tests.slipstream.command import command, started

BUNDLE = slipstream.shipped_bundle()
pytestmark = pytest.mark.skipif(
    not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}"
)
RUN = ("run", str(BUNDLE), "--drive", "synthetic", "--threads", "1", "-o", "out")


def test_load_and_plan_as_the_package_says() -> None:
    planner = slipstream.load(BUNDLE, threads=1)
    window = slipstream.windows(slipstream.open_drive("synthetic"))[100]
    plan = planner.plan(window.observation, slipstream.DecodeSettings(rollouts=2))
    assert plan.rollouts.shape == (2, 20, 2)
    assert plan.trajectory is not None
    assert np.isfinite(plan.trajectory).all()


def test_run_writes_a_report_whose_decoders_agree(tmp_path: Path) -> None:
    decoders = ("--decoder", "ar,ar-scaffold", "--decoder", "dflash:coupled")
    options = ("--frames", "6", "--rollouts", "3", *decoders)
    done = command(*RUN, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Speed" in done.stdout
    assert "Accuracy" in done.stdout
    assert "SYNTHETIC" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    report = read_report(tmp_path / "out" / REPORT)
    assert [d.name for d in report.decoders] == ["ar ×3", "ar-scaffold ×3", "dflash:coupled ×3"]
    assert report.frames == 6
    for decoder in report.decoders[1:]:
        assert decoder.identity is not None
        assert decoder.identity.identical == decoder.identity.rollouts == 18
    passes = [d.target_passes for d in report.decoders]
    assert passes[0] > passes[1] >= passes[2]
    assert report.decoders[0].settings.temperature == 0.5


def test_greedy_decoders_agree_token_for_token(tmp_path: Path) -> None:
    options = ("--frames", "0:4:2", "--decoder", "ar", "--decoder", "dflash", "--block", "8")
    done = command(*RUN, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = read_report(tmp_path / "out" / REPORT)
    assert report.decoders[1].identity is not None
    assert report.decoders[1].identity.identical == 2
    assert report.decoders[1].acceptance_length > 1
    assert max(p.position for p in report.decoders[1].by_position) <= 7


def test_more_rollouts_than_the_bundle_takes_is_said(tmp_path: Path) -> None:
    done = command(*RUN, "--rollouts", "1000", "--frames", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert "rollouts" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing_half_written(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    process = started(*RUN, "--frames", "900", cwd=tmp_path)
    time.sleep(5)  # into the replay
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
