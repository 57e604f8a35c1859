"""A drive with pictures through planners with cameras: from the recording to the report."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import cast

import numpy as np
import pytest

import slipstream
from drives.cameras import Pictures, with_cameras
from drives.drive import Drive
from drives.open import open_drive
from drives.windows import Window, windows
from planners.planner import Planner
from runtime.decode import Decoder
from runtime.errors import SlipstreamError
from runtime.proof.fresh import fresh_pass
from runtime.settings import DecodeSettings, Sampling
from runtime.telemetry import STAGES
from tests.camera_planner import make_camera_drive, make_camera_planner
from tests.slipstream.command import command
from tests.vlm_families import Family

FRAMES = 24
ROUTE = Path(os.environ.get("SLIPSTREAM_DRIVES", "../shared/drives")) / "comma_route"


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One camera as images; two as videos, with features behind the first blocks."""
    folder, family = tmp_path_factory.mktemp("planner"), cast(Family, request.param)
    if family == "qwen2_5_vl":
        return make_camera_planner(folder, family)
    return make_camera_planner(folder, family, ("front", "left"), frames=2)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_camera_drive(tmp_path_factory.mktemp("drive"), ("front", "left"))


@pytest.fixture(scope="module")
def drive(table: Path) -> Drive:
    return open_drive(str(table))


def looking(planner: Planner, drive: Drive) -> list[Window]:
    return with_cameras(windows(drive).windows, drive, planner.bundle.manifest.vision)[0]


@pytest.mark.parametrize(("method", "rollouts"), [("dflash", 1), ("dflash", 3), ("ddtree", 2)])
def test_frame_after_frame_is_what_plain_decoding_of_each_alone_gives(
    bundle: Path, drive: Drive, method: str, rollouts: int
) -> None:
    planner = slipstream.load(bundle, threads=1)
    alone = Decoder(planner.decoder.graphs, None)
    settings = DecodeSettings(method=method, block=6, nodes=8, rollouts=rollouts)
    if rollouts > 1:
        settings = replace(settings, accept="coupled", sampling=Sampling(0.7))
    plain = replace(settings, method="ar", accept=None, block=None, nodes=None)
    frames = looking(planner, drive)[:5]
    for i, window in enumerate(frames):
        plan = planner.plan(window.observation, settings)
        alone.forget()
        expected = alone.decode(
            planner.prompt(window.observation),
            planner.scaffold,
            replace(plain, frame=window.observation.frame),
            planner.language.fork_section,
        )
        assert np.array_equal(plan.tokens, expected.tokens)
        stats = plan.stats
        assert (stats.kept_rows > 32) == (i > 0)  # all words up to the first picture
        assert expected.stats.kept_rows == 0
        assert stats.seconds["encode"] > 0
        assert stats.seconds["patches"] > 0
        assert set(stats.seconds) == set(STAGES)


def test_a_picture_that_stands_still_is_encoded_once(bundle: Path, drive: Drive) -> None:
    planner = slipstream.load(bundle, threads=1)
    one, other = looking(planner, drive)[:2]
    still = replace(other.observation, images=one.observation.images)
    settings = DecodeSettings("ar")
    assert planner.plan(one.observation, settings).stats.seconds["encode"] > 0
    again = planner.plan(still, settings)
    assert again.stats.seconds["encode"] == 0
    fresh = Decoder(planner.decoder.graphs, None).decode(
        planner.prompt(still), planner.scaffold, replace(settings, frame=still.frame), None
    )
    assert np.array_equal(again.tokens, fresh.tokens)
    assert fresh.stats.seconds["encode"] > 0


def test_what_a_camera_shows_matters(bundle: Path, drive: Drive) -> None:
    planner = slipstream.load(bundle, threads=1)
    graphs = planner.decoder.graphs
    seen = looking(planner, drive)[0].observation
    dark = {name: [np.zeros_like(p) for p in frames] for name, frames in seen.images.items()}
    hidden = [
        fresh_pass(graphs, planner.prompt(replace(seen, images=images))).hidden[-1]
        for images in (seen.images, dark)
    ]
    assert np.abs(hidden[0] - hidden[1]).max() > 1e-3


def test_pictures_are_the_newest_and_decoded_only_when_asked_for(
    bundle: Path, drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = slipstream.load(bundle, threads=1)
    vision = planner.bundle.manifest.vision
    monkeypatch.setattr("drives.cameras.read_image", lambda reference: pytest.fail(reference))
    seen, skipped = with_cameras(windows(drive).windows, drive, vision)
    assert seen
    assert sum(skipped.values()) + len(seen) == len(windows(drive))
    references = {each.camera: each for each in drive.images}
    for window in seen[:20]:
        images = window.observation.images
        assert isinstance(images, Pictures)
        assert list(images) == [camera.name for camera in vision.cameras]
        for camera in vision.cameras:
            taken = references[camera.name]
            at = [taken.paths.index(path) for path in images.references[camera.name]]
            assert len(at) == camera.frames
            late = window.observation.time - taken.times[at[-1]]
            assert 0 <= late + 1e-6 <= 0.15
            assert np.allclose(np.diff(taken.times[at]), 0.25, atol=0.15)
    assert with_cameras(windows(drive).windows[:3], drive, None)[0][0].observation.images is None


def test_a_drive_without_the_camera_is_one_message(bundle: Path, drive: Drive) -> None:
    vision = slipstream.load(bundle, threads=1).bundle.manifest.vision
    cut = windows(drive).windows
    for blind in (replace(drive, images=None), replace(drive, images=drive.images[1:])):
        if len(vision.cameras) == 1 and blind.images:
            continue  # a lone camera may go by another name
        with pytest.raises(SlipstreamError, match="no camera front"):
            with_cameras(cut, blind, vision)
    late = tuple(replace(each, times=each.times + 1e4) for each in drive.images)
    with pytest.raises(SlipstreamError, match="no pictures for these frames"):
        with_cameras(cut, replace(drive, images=late), vision)


def test_memory_stays_flat(bundle: Path, drive: Drive) -> None:
    planner = slipstream.load(bundle, threads=1)
    frames = looking(planner, drive)[:FRAMES]
    settings = DecodeSettings("dflash", block=6, rollouts=2)
    for window in frames[:10]:
        planner.plan(window.observation, settings)
    before = getrusage(RUSAGE_SELF).ru_maxrss  # KiB, the most so far
    for window in frames[10:]:
        planner.plan(window.observation, settings)
    assert getrusage(RUSAGE_SELF).ru_maxrss - before < 4 << 10


def test_run_reports_every_stage(bundle: Path, table: Path, tmp_path: Path) -> None:
    done = command(
        *("run", str(bundle), "--drive", str(table), "--frames", "3"),
        *("--decoder", "ar,dflash", "--threads", "1", "-o", "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    for decoder in report["decoders"]:
        stages, latency = decoder["stages_ms"], decoder["latency_ms"]["mean"]["value"]
        assert stages["encode"] > 0
        assert stages["patches"] > 0
        assert stages["prefill"] > 0
        assert sum(stages.values()) == pytest.approx(latency, rel=1e-3)
    assert "--stage-encode" in (tmp_path / "out" / "index.html").read_text()


@pytest.mark.skipif(not ROUTE.is_dir(), reason=f"no comma route at {ROUTE}")
def test_a_comma_route_runs_through_a_camera_planner(tmp_path: Path) -> None:
    bundle = make_camera_planner(tmp_path, cameras=("road",), size=(526, 330), drafter=False)
    out = tmp_path / "out"
    done = command(
        *("run", str(bundle), "--drive", str(ROUTE.resolve()), "--frames", "5"),
        *("--threads", "1", "-o", str(out)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert all(decoder["stages_ms"]["encode"] > 0 for decoder in report["decoders"])


@pytest.mark.skipif(not ROUTE.is_dir(), reason=f"no comma route at {ROUTE}")
def test_info_prints_the_size_that_an_export_asks_for(tmp_path: Path) -> None:
    done = command("drives", "info", str(ROUTE.resolve()), cwd=tmp_path)
    assert "1200 frames of 526x330" in done.stdout, done.stderr
