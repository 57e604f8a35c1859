"""Which frames a report shows, and what of them is seen in the camera."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drives import images
from drives.camera import Calibration
from drives.drive import Drive, ImageReferences
from drives.frames import EGO_FROM_CAMERA, to_ego
from drives.open import open_drive
from drives.page import page
from drives.replay import replay
from drives.report import build_report
from drives.results import BundleInfo, Report
from drives.scene_picture import ending, numbered
from drives.scenes import APART_S, WORST, chosen
from drives.selection import Selection
from drives.summary import OutputLength
from drives.views import LARGEST, WIDEST, Paths, ahead, view_of
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from tests.drives.kinematic_planner import KinematicPlanner

DRIVE = open_drive("synthetic")
BUNDLE = BundleInfo(name="kinematic", key="0" * 16, target="none", drafter=None, precision={})
KNOWN = Calibration(
    width=1280,
    height=960,
    fx=1000.0,
    fy=1000.0,
    cx=640.0,
    cy=480.0,
    rotation=EGO_FROM_CAMERA,
    position=np.array([1.5, 0.0, 1.4]),
    source="Calibration of a test",
)


def test_the_worst_frames_are_far_apart_and_each_frame_stands_once() -> None:
    times = np.arange(0.0, 100.0, 0.25)
    random = np.random.default_rng(3)
    errors = 5.0 * np.exp(-0.01 * (times - 50.0) ** 2) + random.uniform(0, 0.1, len(times))
    errors[::7] = np.nan
    found = chosen(errors, times)
    assert [title for title, _, _ in found] == ["worst"] * WORST + ["median", "best"]
    worst = [index for title, _, index in found if title == "worst"]
    assert worst[0] == np.nanargmax(errors)
    assert np.all(np.diff(errors[worst]) < 0)
    gaps = np.abs(np.subtract.outer(times[worst], times[worst]))
    assert gaps[~np.eye(len(worst), dtype=bool)].min() >= APART_S
    known = np.sort(errors[np.isfinite(errors)])[::-1]
    for _, place, index in found:
        assert errors[index] == known[place - 1]
    assert found[-1][1] == len(known)
    assert found[-2][1] == len(known) // 2 + 1


def test_a_frame_that_was_skipped_lies_near_a_worse_one() -> None:
    times = np.arange(0.0, 60.0, 0.25)
    errors = np.random.default_rng(4).uniform(0, 5, len(times))
    worst = [(place, index) for title, place, index in chosen(errors, times) if title == "worst"]
    order = np.argsort(-errors)
    shown = [index for _, index in worst]
    for place in range(worst[-1][0]):
        if order[place] not in shown:
            assert np.abs(times[order[place]] - times[shown]).min() < APART_S


def test_no_frame_of_the_better_half_is_called_one_of_the_worst() -> None:
    times = np.arange(0.0, 80.0, 8.0)  # each far from the others
    errors = np.arange(10.0)
    found = chosen(errors, times)
    assert [index for title, _, index in found if title == "worst"] == [9, 8, 7, 6, 5]
    assert found[-2:] == [("median", 6, 4), ("best", 10, 0)]


@pytest.mark.parametrize(
    ("errors", "titles"),
    [
        ([np.nan, np.nan], []),
        ([1.0], ["worst"]),
        ([1.0, np.nan, 3.0], ["worst", "median"]),  # of two, the median place is the last
        ([1.0, 2.0, 3.0], ["worst", "median", "best"]),
    ],
)
def test_few_frames(errors: list[float], titles: list[str]) -> None:
    found = chosen(np.array(errors), 0.25 * np.arange(len(errors)))
    assert [title for title, _, _ in found] == titles
    assert len({index for _, _, index in found}) == len(found)


def with_camera(folder: Path, calibration: Calibration | None, late: float = 0.04) -> Drive:
    """A picture of 1280 x 960 noise `late` s after every sample."""
    image = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(1).integers(0, 256, (960, 1280, 3), dtype=np.uint8)
    image.fromarray(noise).save(folder / "shot.png")
    paths = (str(folder / "shot.png"),) * len(DRIVE.times)
    front = ImageReferences("front", DRIVE.times + late, paths, calibration)
    return replace(DRIVE, images=(front,))


def reported(drive: Drive, frames: str = "12", **planner: Any) -> Report:
    cut = windows(drive)
    picked = Selection.parse(frames).of(cut.windows, drive.name)
    settings = {"dflash ×4": DecodeSettings(rollouts=4, sampling=Sampling(0.5))}
    result = replay(KinematicPlanner(**planner), picked, settings, skipped=cut.skipped)
    return build_report(
        result,
        drive=drive,
        bundle=BUNDLE,
        output=OutputLength(20, 4),
        text=KinematicPlanner().text,
        wall_s=1.0,
    )


def test_paths_lie_in_the_picture_where_the_vehicle_drove(tmp_path: Path) -> None:
    """Truth in the picture against a projection by hand from the drive's pose at its instant."""
    drive = with_camera(tmp_path, KNOWN)
    window = windows(drive)[40]
    future = window.future
    assert future is not None
    paths = Paths(future, future, np.stack([future, future + 1.0]))
    view, note = view_of(drive, window.observation, paths)
    assert view is not None
    assert (note, view.late_ms) == ("", pytest.approx(40.0))
    now = window.observation.time
    at = np.interp(now + 0.04 + np.arange(1, 6) - 0.04, drive.times, np.arange(len(drive.times)))
    rows = [np.interp(at, np.arange(len(drive.times)), drive.positions[:, k]) for k in (0, 1)]
    then = now + 0.04
    pose = [np.interp(then, drive.times, drive.positions[:, k]) for k in (0, 1)]
    heading = np.interp(then, drive.times, drive.headings)
    ego = to_ego(np.stack(rows, axis=1)[None], np.array([pose]), np.array([heading]))[0]
    forward = ego[:, 0] - 1.5
    pixels = np.column_stack([320 - 500 * ego[:, 1] / forward, 240 + 500 * 1.4 / forward])
    seen = pixels[((pixels >= 0) & (pixels <= (640, 480))).all(axis=1)]
    assert len(seen) >= 3
    np.testing.assert_allclose(view.truth_seconds, seen, atol=0.5)
    assert view.truth_at == [5 - len(seen) + k for k in range(1, len(seen) + 1)]
    (line,) = view.truth
    assert line[-1] == pytest.approx(pixels[-1], abs=0.5)
    assert [len(rollout) for rollout in view.rollouts] == [1, 1]


def test_embedded_pictures_are_small(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    report = reported(with_camera(tmp_path, KNOWN))
    for scene in report.scenes:
        assert scene.view is not None
        data = base64.b64decode(scene.view.jpeg)
        assert len(data) <= LARGEST  # of noise, the worst to compress
        shown = image.open(io.BytesIO(data))
        assert shown.size == (scene.view.width, scene.view.height)
        assert shown.width <= WIDEST
        assert shown.width / shown.height == pytest.approx(1280 / 960, rel=0.01)
    html = page(report)
    assert html.count('src="data:image/jpeg;base64,') == len(report.scenes)
    assert html.count("<polyline") >= 6 * len(report.scenes)
    assert "Calibration of a test" in html
    assert not re.search(r'(src|href)="(?!data:|#)', html)


def test_a_camera_without_a_calibration_is_shown_without_paths(tmp_path: Path) -> None:
    report = reported(with_camera(tmp_path, None))
    views = [scene.view for scene in report.scenes]
    assert all(view is not None and not view.plan and not view.truth_seconds for view in views)
    html = page(report)
    assert "no calibration of this camera" in html
    assert "<polyline" not in html


def test_a_drive_without_a_camera_says_nothing_of_one() -> None:
    report = reported(DRIVE)
    assert {(scene.view, scene.note) for scene in report.scenes} == {(None, "")}
    assert 'class="missing"' not in page(report)


def test_without_an_image_library_the_page_says_which_extra_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive = with_camera(tmp_path, KNOWN)

    def none(module: str, what: str) -> Any:
        raise SlipstreamError(
            f"{what} can't be read without the Python package PIL",
            found="No module named 'PIL'",
            fix="pip install '.[drives]' in slipstream's folder",
        )

    monkeypatch.setattr(images, "library", none)
    html = page(reported(drive))
    assert "<img" not in html
    (note,) = re.findall(r'<p class="missing">(.*?)</p>', html)  # once, not in every scene
    assert "pip install &#39;.[drives]&#39;" in note


def test_a_damaged_picture_leaves_a_note(tmp_path: Path) -> None:
    drive = with_camera(tmp_path, KNOWN)
    (tmp_path / "shot.png").write_bytes(b"\x89PNG of old")
    report = reported(drive)
    assert all(scene.view is None and "can't be shown" in scene.note for scene in report.scenes)
    assert "Without camera pictures" in page(report)


def test_a_picture_must_be_near(tmp_path: Path) -> None:
    drive = with_camera(tmp_path, KNOWN)
    (front,) = drive.images or ()
    far = replace(front, times=front.times[:1], paths=front.paths[:1])
    report = reported(replace(drive, images=(far,)))
    assert all("within 0.1 s" in scene.note for scene in report.scenes)


def looking(angle: float) -> Calibration:
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
    return replace(KNOWN, rotation=turn @ EGO_FROM_CAMERA)


def test_the_camera_that_looks_ahead_is_taken() -> None:
    def camera(name: str, angle: float | None = None) -> ImageReferences:
        known = None if angle is None else looking(angle)
        return ImageReferences(name, DRIVE.times[:1], ("x",), known)

    def taken(*cameras: ImageReferences) -> list[str]:
        return [each.camera for each in ahead(cameras)]

    assert taken(camera("back", np.pi), camera("a", 0.1), camera("left", 1.0)) == ["a"]
    assert taken(camera("SIDE_LEFT"), camera("FRONT_LEFT"), camera("FRONT")) == ["FRONT"]
    assert taken(camera("/camera/front/image"), camera("back", np.pi)) == ["/camera/front/image"]
    assert taken(camera("one"), camera("two")) == ["one", "two"]
    assert taken(camera("back", np.pi)) == []


def test_the_openpilot_drive_shows_its_road(shared_drives: Path) -> None:
    pytest.importorskip("av")
    pytest.importorskip("capnp")
    drive = open_drive(shared_drives / "comma_route")
    report = reported(drive, "20")
    for scene in report.scenes:
        assert scene.view is not None
        assert (scene.view.width, scene.view.height) == (526, 330)
        (line,) = scene.view.truth
        x, y = line[-1]
        # a straight road vanishes in the calibrated direction of travel; lane changes lead aside
        assert abs(x - 263 - 722 * 0.021) < 60
        assert 150 < y < 165
    assert len(page(report)) < 2_500_000


def test_where_a_plan_ends_is_said_along_and_across_the_course() -> None:
    scene = reported(DRIVE).scenes[0]
    north = [(0.0, float(k)) for k in range(1, 21)]  # it drove to the left

    def ends(x: float, y: float) -> str:
        return ending(scene.model_copy(update={"truth": north, "plan": [(x, y)] * 20}))

    assert ends(0.0, 4.8) == "ends 15.2 m short"
    assert ends(0.3, 22.0) == "ends 2.0 m too far, 0.3 m right"
    assert ends(-0.3, 20.0) == "ends 0.3 m left"
    assert ends(0.01, 20.02) == "ends where the vehicle was"
    stood = scene.model_copy(update={"truth": [(0.0, 0.0)] * 20, "plan": [(1.0, 2.0)] * 20})
    assert ending(stood) == "ends 1.0 m too far, 2.0 m left"


def test_crowded_dots_have_no_number() -> None:
    dots = [(100.0, 300.0), (100.0, 200.0), (101.0, 195.0), (100.0, 150.0)]
    assert [second for _, _, second in numbered(dots, [1, 2, 3, 4])] == [1, 2, 4]
    assert numbered(dots, []) == []  # a report from before they were numbered


def test_the_camera_picture_says_where_the_plan_ends(tmp_path: Path) -> None:
    html = page(reported(with_camera(tmp_path, KNOWN)))
    assert len(re.findall(r'<p class="under ending">The plan ends ', html)) == html.count("<img ")
    assert '<text class="truth"' in html
    assert "kinematic baselines (from above only)" in html
