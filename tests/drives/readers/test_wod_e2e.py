"""The WOD-E2E reader, on shards written here and on others where they are at hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from drives.frames import to_ego
from drives.info import describe
from drives.motion import interpolate
from drives.readers.synthetic import synthetic_drive
from drives.readers.wod_e2e import is_wod_e2e, read_jpeg, read_wod_e2e, wod_e2e_clips
from drives.windows import NO_FUTURE, windows
from planners.observation import Intent
from runtime.errors import SlipstreamError
from tests.drives.readers.fuzz import LONG, SHORT, damaged, survives
from tests.drives.readers.wod_writer import (
    CLIP,
    JPEG,
    RATED,
    frame,
    framed,
    records,
    states,
    write_wod_e2e,
)

INDICES = (0, 1, 2, 30, 55, 90, 91, 150)


@pytest.fixture
def truth():
    return synthetic_drive(2, duration=40.0, noise=0.0)


@pytest.fixture
def folder(tmp_path, truth):
    return write_wod_e2e(tmp_path / "wod", records(truth, INDICES))


def test_each_frame_is_its_own_window(folder, truth):
    """Past, future, motion, command and ratings as the record has them."""
    cut = windows(read_wod_e2e(folder), 0.25)
    assert [window.name for window in cut] == [f"{CLIP}-{index:03d}" for index in INDICES]
    for count, (index, window) in enumerate(zip(INDICES, cut, strict=True)):
        at = 4.0 + 0.1 * index + np.arange(-15, 21) * 0.25
        state = interpolate(truth.times, truth.positions, truth.headings, truth.speeds, at)
        points = to_ego(
            state.positions[None, :, :2], state.positions[15:16, :2], state.headings[15:16]
        )[0]
        seen = window.observation
        np.testing.assert_allclose(seen.positions, points[:16], atol=1e-4)
        np.testing.assert_allclose(window.future, points[16:], atol=1e-4)
        np.testing.assert_allclose(seen.speeds[1:], state.speeds[1:16], atol=1e-4)
        assert seen.speeds[0] == pytest.approx(state.speeds[0], abs=0.3)  # not stored
        moving = state.speeds[1:16] > 0.5
        turned = (state.headings - state.headings[15])[1:16]
        np.testing.assert_allclose(seen.headings[1:][moving], turned[moving], atol=1e-4)
        assert seen.intent == Intent(1 + count % 3)
        assert (window.rated is not None) == (count == RATED)
        assert seen.frame == count
        seen.check_frame()
    rated = cut[RATED].rated
    assert rated is not None
    assert rated.scores == (9.0, 4.0, 7.0)
    assert [len(points) for points in rated.trajectories] == [20, 16, 20]
    np.testing.assert_allclose(rated.top, cut[RATED].future, atol=1e-5)


def test_the_clip_is_pieced_together(folder, truth):
    """Frames up to 6 s apart give the drive that they were cut from, turns and all."""
    drive = read_wod_e2e(folder)
    at = 4.0 + drive.clock_start + drive.times
    state = interpolate(truth.times, truth.positions, truth.headings, truth.speeds, at)
    first = np.argmin(np.abs(at - 4.0))
    moved = to_ego(state.positions[None, :, :2], state.positions[[first]], state.headings[[first]])
    assert np.abs(np.diff(truth.headings)).sum() > 1.0
    np.testing.assert_allclose(drive.positions, moved[0], atol=0.05)
    np.testing.assert_allclose(drive.speeds, state.speeds, atol=0.3)
    assert drive.path_length == pytest.approx(
        np.linalg.norm(np.diff(state.positions, axis=0), axis=1).sum(), rel=1e-3
    )
    assert describe(drive).jumps == 0
    for window in windows(drive):
        np.testing.assert_allclose(window.pose[:2], drive.positions[window.drive_index])
        now = drive.times[window.drive_index]
        assert now == pytest.approx(window.observation.time)


def test_quirks_are_told(folder):
    told = " ".join(read_wod_e2e(folder).warnings)
    assert "time stamps are zero" in told
    assert "last past velocity repeats" in told


def test_velocities_that_are_not_shifted_are_taken_as_they_are(tmp_path):
    velocity = np.linspace(10.0, 11.5, 16)
    past = states(
        x=np.linspace(-40.0, 0.0, 16), y=np.zeros(16), vx=velocity, vy=np.zeros(16),
        ax=np.zeros(16), ay=np.zeros(16),
    )  # fmt: skip
    payloads = [frame(f"{CLIP}-{index:03d}", past, b"", 1) for index in (0, 1)]
    drive = read_wod_e2e(write_wod_e2e(tmp_path, payloads))
    assert not any("repeats" in each for each in drive.warnings)
    (first, _) = windows(drive, without_future=True)
    np.testing.assert_allclose(first.observation.speeds, velocity, atol=1e-5)


def test_frames_without_a_future_are_skipped_by_name(tmp_path, truth):
    payloads = records(truth, (0, 5, 10))
    past = states(
        x=np.linspace(-40.0, 0.0, 16), y=np.zeros(16), vx=np.full(16, 10.0), vy=np.zeros(16),
        ax=np.zeros(16), ay=np.zeros(16),
    )  # fmt: skip
    payloads.append(frame(f"{CLIP}-200", past, b"", 0))
    drive = read_wod_e2e(write_wod_e2e(tmp_path, payloads))
    assert windows(drive).skipped == {NO_FUTURE: 1}
    assert len(windows(drive, without_future=True)) == 4
    assert any("no common motion" in each for each in drive.warnings)
    assert any("without a future" in each for each in drive.warnings)


def test_reversing_and_standing(tmp_path):
    """Backwards the course is the opposite of the heading; standing still it says nothing."""
    speed = np.concatenate([np.full(8, -2.0), np.linspace(-2.0, 0.0, 8)])
    stored = np.concatenate([speed[1:], speed[-1:]])
    x = np.cumsum(speed) * 0.25
    past = states(
        x=x - x[-1], y=np.zeros(16), vx=stored, vy=0.01 * stored, ax=np.zeros(16), ay=np.zeros(16)
    )
    future = states(x=np.zeros(20), y=np.zeros(20))
    payloads = [frame(f"{CLIP}-{index:03d}", past, future, 1) for index in (0, 100)]
    drive = read_wod_e2e(write_wod_e2e(tmp_path, payloads))
    seen = windows(drive)[0].observation
    np.testing.assert_allclose(seen.headings, 0.0, atol=0.02)
    np.testing.assert_allclose(seen.speeds[1:], speed[1:], atol=1e-3)


def test_images_are_found_within_the_shards(folder):
    images = read_wod_e2e(folder).images
    assert images is not None
    assert images[0].camera == "FRONT"
    assert len(images[0].paths) == len(INDICES)
    assert np.diff(images[0].times)[:3] == pytest.approx([0.1, 0.1, 2.8])
    assert all(read_jpeg(path) == JPEG for path in images[0].paths)
    with pytest.raises(SlipstreamError, match="can't be read"):
        read_jpeg(images[0].paths[0] + "999999")
    with pytest.raises(SlipstreamError, match="can't be read"):
        read_jpeg("nowhere")


def test_several_clips_are_listed(tmp_path, truth):
    other = CLIP[::-1]
    payloads = records(truth, INDICES) + records(truth, (7, 9), clip=other)
    folder = write_wod_e2e(tmp_path / "wod", payloads, shards=3)
    assert wod_e2e_clips(folder) == (CLIP, other)
    assert len(windows(read_wod_e2e(folder / other))) == 2
    assert len(windows(read_wod_e2e(folder, clip=CLIP))) == len(INDICES)
    with pytest.raises(SlipstreamError, match="several clips") as caught:
        read_wod_e2e(folder)
    assert str(folder / CLIP) in caught.value.fix
    with pytest.raises(SlipstreamError, match="no clip lost"):
        read_wod_e2e(folder / "lost")


def test_recognises_shards_by_name_or_content(folder, tmp_path):
    shard = next(folder.iterdir())
    assert is_wod_e2e(folder)
    assert is_wod_e2e(shard)
    assert is_wod_e2e(folder / CLIP)
    assert is_wod_e2e(shard / CLIP)
    assert 0 < len(windows(read_wod_e2e(shard / CLIP))) < len(INDICES)
    (tmp_path / "plain").write_bytes(shard.read_bytes())
    assert is_wod_e2e(tmp_path / "plain")
    (tmp_path / "text").write_text("text")
    assert not is_wod_e2e(tmp_path / "text")
    assert not is_wod_e2e(tmp_path / "none" / "none")
    (tmp_path / "empty.tfrecord").touch()
    with pytest.raises(SlipstreamError, match="no record"):
        read_wod_e2e(tmp_path / "empty.tfrecord")


def test_a_shard_that_changes_is_read_again(folder, truth):
    assert len(windows(read_wod_e2e(folder))) == len(INDICES)
    write_wod_e2e(folder, records(truth, INDICES[:4]))
    assert len(windows(read_wod_e2e(folder))) == 4


def _past(**changes) -> bytes:
    columns = {"x": np.zeros(16), "y": np.zeros(16), "vx": np.zeros(16), "vy": np.zeros(16)}
    columns |= {"ax": np.zeros(16), "ay": np.zeros(16)}
    return states(**(columns | changes))


AHEAD = states(x=np.zeros(20), y=np.zeros(20))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", "no frame in it"),
        (b"not a message", "E2EDFrame"),
        (frame("no number", _past(), AHEAD, 1), "frame number"),
        (frame("a-1", _past(vx=np.zeros(15)), AHEAD, 1), "15 x and 16 y"),
        (frame("a-1", b"", AHEAD, 1), "past positions"),
        (frame("a-1", _past(x=np.full(16, np.nan)), AHEAD, 1), "finite"),
        (frame("a-1", _past(x=np.full(16, 1e9)), AHEAD, 1), "finite"),
        (frame("a-1", _past(), AHEAD, 4), "an intent from 0 to 3"),
        (frame("a-1", _past(), AHEAD, 1, [states(x=[1.0], y=[0.0], score=11.0)]), "a score"),
        (frame("a-1", _past(), AHEAD, 1, [states(x=[1.0], y=[], score=1.0)]), "rated"),
    ],
)
def test_bad_records_are_named(tmp_path, payload, message):
    write_wod_e2e(tmp_path, [payload])
    with pytest.raises(SlipstreamError) as caught:
        read_wod_e2e(tmp_path)
    assert message in str(caught.value)
    assert "record 0" in caught.value.what


def test_a_frame_that_is_there_twice_is_refused(tmp_path, truth):
    write_wod_e2e(tmp_path, records(truth, (0, 1, 1)))
    with pytest.raises(SlipstreamError, match=r"holds frame .*-001 twice"):
        read_wod_e2e(tmp_path)


def test_a_damaged_image_is_noticed(folder):
    shard = sorted(folder.iterdir())[0]
    data = shard.read_bytes()
    shard.write_bytes(data.replace(JPEG, JPEG.replace(b"really", b"rEally"), 1))
    with pytest.raises(SlipstreamError, match="is damaged"):
        read_wod_e2e(folder)


def _inside(data: bytes, random: Random) -> bytes:
    """Half of the time damages a record's content under a valid checksum."""
    if random.random() < 0.5:
        return damaged(data, random)
    payloads, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        payloads.append(data[at + 12 : at + 12 + length])
        at += length + 16
    chosen = random.randrange(len(payloads))
    payloads[chosen] = damaged(payloads[chosen], random)
    return b"".join(map(framed, payloads))


@pytest.mark.parametrize(
    "inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_damaged_shards_are_refused_or_read(tmp_path, inputs):
    drive = synthetic_drive(2, duration=20.0, noise=0.0)
    folder = write_wod_e2e(tmp_path, records(drive, (0, 40)))
    files = sorted(folder.iterdir())
    assert survives(lambda: read_wod_e2e(folder), files, 4, inputs, _inside) > inputs // 4


@pytest.fixture
def shared(shared_drives) -> Path:
    folder = shared_drives / "wod_e2e"
    if not folder.is_dir():
        pytest.skip("no WOD-E2E shards")
    return folder


def test_recorded_values(shared):
    """Values that the official protos decode, for six frames."""
    expected = json.loads((shared / "expected.json").read_text())
    by_name, rated, commands = {}, 0, {"UNKNOWN": 0, "GO_STRAIGHT": 0, "GO_LEFT": 0, "GO_RIGHT": 0}
    clips = wod_e2e_clips(shared)
    assert len(clips) == expected["totals"]["clips"]
    for clip in clips:
        drive = read_wod_e2e(shared / clip)
        assert describe(drive).jumps == 0
        images = {
            time: path
            for each in drive.images or ()
            for time, path in zip(each.times, each.paths, strict=True)
        }
        for window in windows(drive):
            image = images.get(window.observation.time)
            by_name[window.name] = (window, image)
            rated += window.rated is not None
            name = window.observation.intent.name
            commands[name if name == "UNKNOWN" else f"GO_{name}"] += 1
    assert len(by_name) == expected["totals"]["records"]
    assert rated == expected["totals"]["rated_frames"]
    assert commands == expected["totals"]["intents"]
    for item in expected["frames"]:
        window, image = by_name[item["context_name"]]
        seen = window.observation
        assert seen.intent == item["intent_value"]
        np.testing.assert_allclose(seen.positions[0], item["past_first_xy"], atol=1e-4)
        np.testing.assert_allclose(seen.positions[-1], item["past_last_xy"], atol=1e-4)
        np.testing.assert_allclose(window.future[0], item["future_first_xyz"][:2], atol=1e-4)
        np.testing.assert_allclose(window.future[-1], item["future_last_xyz"][:2], atol=1e-4)
        assert abs(seen.speeds[-1]) == pytest.approx(item["v0"], abs=1e-3)
        entries = [each for each in item["preference_entries"] if (each["score"] or -1) > 0]
        assert (window.rated is not None) == item["rated"]
        if window.rated is not None:
            assert list(window.rated.scores) == [each["score"] for each in entries]
            for points, each in zip(window.rated.trajectories, entries, strict=True):
                assert len(points) == each["points"]
                np.testing.assert_allclose(points[-1], each["last_xy"], atol=1e-4)
        for each in item["images"]:
            data = read_jpeg(image)
            assert len(data) == each["bytes"]
            assert hashlib.sha256(data).hexdigest() == each["sha256"]
