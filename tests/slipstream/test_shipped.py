"""The shipped planner end to end: replay, report, and what an interrupt leaves behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slipstream
from drives.results import REPORT, read_report
from drives.trained_on import training_of
from runtime.bundle import Bundle
from tests.slipstream.command import ROOT, command, started

BUNDLE = slipstream.shipped_bundle()
pytestmark = pytest.mark.skipif(
    not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}"
)
RUN = ("run", str(BUNDLE), "--drive", "synthetic", "--threads", "1", "-o", "out")


@pytest.fixture(scope="module")
def planner() -> slipstream.Planner:
    return slipstream.load(BUNDLE, threads=1)


def test_load_and_plan_as_the_package_says(planner: slipstream.Planner) -> None:
    window = slipstream.windows(slipstream.open_drive("synthetic"))[100]
    plan = planner.plan(window.observation, slipstream.DecodeSettings(rollouts=2))
    assert plan.rollouts.shape == (2, 20, 2)
    assert plan.trajectory is not None
    assert np.isfinite(plan.trajectory).all()
    assert planner.text(plan.tokens[1]) == planner.text(plan.tokens[1].tolist())
    assert planner.text(plan.tokens[1]).startswith("{")


@pytest.mark.parametrize(
    "tokens", [None, 7, "text", [-1], [1 << 40], [1.5], [None], [[1, 2], [3]], np.ones((2, 3), int)]
)
def test_what_is_no_row_of_tokens_has_no_text(planner: slipstream.Planner, tokens: Any) -> None:
    with pytest.raises(slipstream.SlipstreamError, match="tokens can't be told as text") as caught:
        planner.text(tokens)
    assert caught.value.found in " ".join(repr(tokens).split())


def test_run_writes_a_report_whose_decoders_agree(tmp_path: Path) -> None:
    decoders = ("--decoder", "ar,ar-scaffold", "--decoder", "dflash:coupled")
    options = ("--frames", "2", "--rollouts", "3", *decoders)
    done = command(*RUN, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Speed" in done.stdout
    assert "Accuracy" in done.stdout
    assert "SYNTHETIC" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    report = read_report(tmp_path / "out" / REPORT)
    assert [d.name for d in report.decoders] == ["ar ×3", "ar-scaffold ×3", "dflash:coupled ×3"]
    assert report.frames == 2
    for decoder in report.decoders[1:]:
        assert decoder.identity is not None
        assert decoder.identity.identical == decoder.identity.rollouts == 6
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
    wait_for_the_replay(process.pid)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


STEADY = slipstream.DecodeSettings(
    accept="coupled", block=16, rollouts=2, sampling=slipstream.Sampling(0.5)
)


def test_two_threads_at_one_planner_are_told_apart() -> None:
    planner = slipstream.load(BUNDLE, threads=1)
    cut = slipstream.windows(slipstream.open_drive("synthetic")).windows[::40][:6]
    alone = [planner.plan(window.observation, STEADY).tokens for window in cut]
    right, refused, others = [], [], []

    def drive_on() -> None:
        for window, tokens in zip(cut, alone, strict=True):
            try:
                plan = planner.plan(window.observation, STEADY)
                right.append(np.array_equal(plan.tokens, tokens))
            except slipstream.SlipstreamError as error:
                refused.append(str(error))
            except Exception as error:
                others.append(error)

    threads = [threading.Thread(target=drive_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert others == []
    assert right
    assert all(right)
    assert refused
    assert all("one thread at a time" in message for message in refused)
    # the planner is free again, also after a plan that failed
    too_many = slipstream.DecodeSettings(rollouts=1000)
    with pytest.raises(slipstream.SlipstreamError, match="rollouts"):
        planner.plan(cut[0].observation, too_many)
    np.testing.assert_array_equal(planner.plan(cut[0].observation, STEADY).tokens, alone[0])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("now",), "observation of a plan has the wrong type"),
        ((None, "dflash"), "settings of a plan has the wrong type"),
    ],
)
def test_arguments_of_another_type_are_named(arguments: tuple[Any, ...], says: str) -> None:
    planner = slipstream.load(BUNDLE, threads=1)
    window = slipstream.windows(slipstream.open_drive("synthetic"))[0]
    observation = arguments[0] or window.observation
    with pytest.raises(slipstream.SlipstreamError, match=says):
        planner.plan(observation, *arguments[1:])


def wait_for_the_replay(pid: int) -> None:
    """Until the engine is loaded, and a moment more; without /proc, long enough for both."""
    maps = Path(f"/proc/{pid}/maps")
    if not maps.is_file():
        time.sleep(5)
        return
    until = time.monotonic() + 60
    while "onnxruntime" not in maps.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(1)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="no /proc")
def test_a_long_drive_gathers_no_memory() -> None:
    planner = slipstream.load(BUNDLE, threads=1)
    cut = slipstream.windows(slipstream.open_drive("synthetic")).windows[::180]
    for window in cut:  # every shape is seen once
        planner.plan(window.observation, STEADY)
    gc.collect()
    before = resident_mb()
    frames = 6 * len(cut)
    for _ in range(6):
        for window in cut:
            planner.plan(window.observation, STEADY)
    gc.collect()
    assert (resident_mb() - before) / frames < 0.05, "MB a frame"


def test_the_shipped_record_tells_trained_from_held_out() -> None:
    folder = Path(os.environ.get("SLIPSTREAM_DRIVES", ROOT.parent / "shared" / "drives"))
    loop = folder / "boreas" / "boreas-2021-08-05-13-34"
    if not loop.is_dir():
        pytest.skip(f"no Boreas drive in {folder} (set SLIPSTREAM_DRIVES)")
    data = Bundle.open(BUNDLE).manifest.provenance.data
    drive = slipstream.open_drive(loop)
    times = np.array([window.observation.time for window in slipstream.windows(drive)])
    cut = times.max() - 0.12 * (times.max() - times.min())  # as the planner's card says
    held_out = [w for w in slipstream.windows(drive) if w.observation.time >= cut]
    trained = [w for w in slipstream.windows(drive) if w.observation.time < cut - 9.0]
    for windows, flagged in ((held_out, 0), (trained, len(trained))):
        found = training_of(drive, windows, data)
        assert found is not None
        assert (found.match, found.frames) == ("recording", flagged)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((None,), "bundle is not a path"),
        ((b"x",), "bundle is not a path"),
        ((slipstream.shipped_bundle(), 1.5), "threads is out of range"),
        ((slipstream.shipped_bundle(), True), "threads is out of range"),
        ((slipstream.shipped_bundle(), "2"), "threads is out of range"),
        ((slipstream.shipped_bundle(), 1, None), "provider is unknown"),
    ],
)
def test_load_names_an_argument_of_another_type(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(slipstream.SlipstreamError, match=says):
        slipstream.load(*arguments)
