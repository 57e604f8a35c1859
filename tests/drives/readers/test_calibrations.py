"""What each format says of its cameras, as a calibration in the vehicle frame."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drives.camera import Calibration
from drives.drive import ImageReferences
from drives.frames import EGO_FROM_CAMERA, rotation_from_quaternion
from drives.open import open_drive
from drives.readers.comma_camera import road_camera
from drives.readers.nuscenes import read_nuscenes
from drives.readers.plain import read_plain, write_plain
from drives.readers.plain_camera import Camera
from drives.readers.synthetic import synthetic_drive
from drives.ros_writer import RosMessages
from runtime.errors import SlipstreamError
from tests.drives.readers import writers

DRIVE = synthetic_drive(1, duration=12.0)
LEVEL = [0.5, -0.5, 0.5, -0.5]  # quaternion w, x, y, z of EGO_FROM_CAMERA


def pixels(calibration: Calibration, x: float, y: float) -> list[float]:
    return calibration.spots(np.array([[x, y]]))[0].tolist()


def test_the_quaternion_of_a_level_camera() -> None:
    np.testing.assert_allclose(rotation_from_quaternion(np.array([LEVEL]))[0], EGO_FROM_CAMERA)


def nuscenes(root: Path, **sensor: Any) -> Path:
    writers.write_nuscenes(root, {"scene-1": DRIVE})
    tables = root / "v1.0-mini"
    path = tables / "calibrated_sensor.json"
    rows = json.loads(path.read_text())
    values = {"translation": [1.7, 0.0, 1.5], "rotation": LEVEL}
    values["camera_intrinsic"] = [[1250.0, 0.0, 800.0], [0.0, 1250.0, 450.0], [0.0, 0.0, 1.0]]
    rows[1] |= values | sensor
    path.write_text(json.dumps(rows))
    captures = json.loads((tables / "sample_data.json").read_text())
    for capture in captures:
        if "CAM_FRONT" in capture["filename"]:
            (root / capture["filename"]).parent.mkdir(parents=True, exist_ok=True)
            (root / capture["filename"]).touch()
    return root


def test_nuscenes(tmp_path: Path) -> None:
    (camera,) = read_nuscenes(nuscenes(tmp_path), scene="scene-1").images or ()
    known = camera.calibration
    assert known is not None
    assert (known.width, known.height, known.road) == (1600, 900, 0.0)
    assert pixels(known, 11.7, 1.0) == pytest.approx([800 - 125, 450 + 1250 * 0.15])


@pytest.mark.parametrize(
    "sensor",
    [
        {"camera_intrinsic": [[1250.0, 0.0], [0.0, 1250.0], [0.0, 0.0]]},
        {"camera_intrinsic": "none"},
        {"rotation": [1.0, 1.0, 0.0, 0.0]},
        {"translation": [1.0, 2.0]},
        {"camera_intrinsic": [[-5.0, 0.0, 1.0], [0.0, 5.0, 1.0], [0.0, 0.0, 1.0]]},
    ],
)
def test_a_bad_calibration_of_nuscenes_is_named(tmp_path: Path, sensor: dict[str, Any]) -> None:
    with pytest.raises(SlipstreamError, match=r"calibrated_sensor\.json"):
        read_nuscenes(nuscenes(tmp_path, **sensor), scene="scene-1")


def test_nuscenes_without_a_calibration_keeps_its_pictures(tmp_path: Path) -> None:
    (camera,) = read_nuscenes(nuscenes(tmp_path, camera_intrinsic=[]), scene="scene-1").images or ()
    assert camera.calibration is None


def argoverse(folder: Path, **columns: Any) -> Path:
    pa = pytest.importorskip("pyarrow")
    feather = pytest.importorskip("pyarrow.feather")
    writers.write_argoverse2(folder, DRIVE)
    (folder / "calibration").mkdir()
    place = folder / "sensors" / "cameras" / "ring_front_center"
    place.mkdir(parents=True)
    (place / "315969904000000000.jpg").touch()
    lens = {"fx_px": 1700.0, "fy_px": 1700.0, "cx_px": 775.0, "cy_px": 1024.0, "k1": -0.3}
    sizes = {"height_px": 2048, "width_px": 1550}
    values = {"sensor_name": "ring_front_center", **lens, **sizes}
    pose = dict(zip(("qw", "qx", "qy", "qz"), LEVEL, strict=True))
    pose |= {"tx_m": 1.6, "ty_m": 0.0, "tz_m": 1.17}
    for name, row in (
        ("intrinsics", values | columns),
        ("egovehicle_SE3_sensor", {"sensor_name": "ring_front_center", **pose}),
    ):
        table = pa.table({key: [value] for key, value in row.items()})
        feather.write_feather(table, str(folder / "calibration" / f"{name}.feather"))
    return folder


def test_argoverse_sees_the_road_a_wheel_s_radius_below_its_frame(tmp_path: Path) -> None:
    (camera,) = open_drive(argoverse(tmp_path / "log")).images or ()
    known = camera.calibration
    assert known is not None
    assert known.distortion == ()  # released pictures are undistorted
    assert pixels(known, 11.6, 0.0) == pytest.approx([775, 1024 + 1700 * 0.15])
    with pytest.raises(SlipstreamError, match="ring_front_center"):
        open_drive(argoverse(tmp_path / "bad", fx_px=float("nan")))


def test_argoverse_boxes_stand_on_that_road(shared_drives: Path) -> None:
    feather = pytest.importorskip("pyarrow.feather")
    bottoms = []
    for path in sorted((shared_drives / "av2").glob("*/annotations*.feather")):
        table = feather.read_table(path)
        x, y, z, tall = (table[name].to_numpy() for name in ("tx_m", "ty_m", "tz_m", "height_m"))
        near = (np.hypot(x, y) < 12.0) & (np.array(table["category"]) == "REGULAR_VEHICLE")
        bottoms.append(float(np.median((z - 0.5 * tall)[near])))
    assert np.median(bottoms) == pytest.approx(-0.33, abs=0.08)


def test_the_plain_format_keeps_a_calibration(tmp_path: Path) -> None:
    known = Calibration(
        width=640,
        height=480,
        fx=500.0,
        fy=400.0,
        cx=320.0,
        cy=240.0,
        rotation=EGO_FROM_CAMERA,
        position=np.array([1.0, 0.1, 1.5]),
        source="a board",
        road=-0.3,
        distortion=(-0.1, 0.0, 0.001, 0.0, 0.0),
    )
    paths = tuple(str(tmp_path / f"{n}.jpg") for n in range(2))
    front = ImageReferences("front", DRIVE.times[:2], paths, known)
    path = tmp_path / "drive.csv"
    write_plain(replace(DRIVE, images=(front, replace(front, camera="b", calibration=None))), path)
    read, without = read_plain(path).images or ()
    assert without.calibration is None
    assert read.calibration is not None
    assert pixels(read.calibration, 9.0, 1.0) == pixels(known, 9.0, 1.0)
    assert read.calibration.source == "a board"
    sidecar = json.loads(path.with_suffix(".json").read_text())
    sidecar["cameras"]["front"]["rotation"][0] = [1.0, 1.0, 1.0]
    path.with_suffix(".json").write_text(json.dumps(sidecar))
    with pytest.raises(SlipstreamError, match=r"camera front of .*drive\.json"):
        read_plain(path)


def test_the_camera_of_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "drives.md").read_text()
    (block,) = re.findall(r'```text\n("cameras".*?)```', text, re.DOTALL)
    camera = Camera.model_validate(json.loads("{" + block + "}")["cameras"]["front"])
    found = camera.calibration("the documentation")
    assert pixels(found, 11.7, 1.0) == pytest.approx([960 - 140, 540 + 1400 * 0.13])


def bag(folder: Path, *, rectified: bool = False, model: str = "plumb_bob", **info: Any) -> Path:
    """Odometry of base_link; base_link -> mast -> camera; a bare CameraInfo beside the pictures."""
    from tests.drives.readers import bag_writer as make

    made = make.Bag()
    make.add_odometry(made, DRIVE)
    topic = "/front/image_rect" if rectified else "/front/image_raw/compressed"
    make.add_images(made, DRIVE, 40, topic, every=20)
    ros = RosMessages(pytest.importorskip("rosbags.typesys"))
    stamp = int(make.stamps(DRIVE)[0])
    mast = ros.transform(stamp, "/base_link", "mast", np.array([1.0, 0.0, 1.0]), ros.turn(0.0))
    turn = ros.quaternion(EGO_FROM_CAMERA)
    lens = ros.transform(stamp, "mast", "optical", np.array([0.5, 0.0, 0.5]), turn)
    made.add("/tf_static", ros.TF, stamp, ros.transforms([mast, lens]))
    k = np.array([500.0, 0, 320, 0, 400, 240, 0, 0, 1])
    values: dict[str, Any] = {
        "header": replace(made.header(stamp), frame_id="optical"),
        "height": 480,
        "width": 640,
        "distortion_model": model,
        "d": np.array([-0.1, 0.0, 0.0, 0.0, 0.0]),
        "k": k,
        "r": np.eye(3).ravel(),
        "p": np.array([450.0, 0, 310, 0, 0, 360, 230, 0, 0, 0, 1, 0]),
        "binning_x": 0,
        "binning_y": 0,
        "roi": made.make(
            "sensor_msgs/msg/RegionOfInterest",
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        ),
    }
    beside = "/front/camera_info"
    made.add(beside, ros.INFO, stamp, made.make(ros.INFO, **{**values, **info}))
    return made.write(folder)


def test_a_ros_camera_stands_where_the_transforms_lead(tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    (camera,) = open_drive(bag(tmp_path / "bag")).images or ()
    known = camera.calibration
    assert known is not None
    np.testing.assert_allclose(known.position, [1.5, 0.0, 1.5])
    np.testing.assert_allclose(known.rotation, EGO_FROM_CAMERA, atol=1e-12)
    assert (known.fx, known.cx, known.distortion[0]) == (500.0, 320.0, -0.1)


def test_a_rectified_ros_picture_has_the_other_matrix_and_no_lens(tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    (camera,) = open_drive(bag(tmp_path / "bag", rectified=True)).images or ()
    known = camera.calibration
    assert known is not None
    assert (known.fx, known.fy, known.cx, known.cy) == (450.0, 360.0, 310.0, 230.0)
    assert known.distortion == ()


def test_a_ros_camera_without_a_usable_calibration_keeps_its_pictures(tmp_path: Path) -> None:
    pytest.importorskip("rosbags")
    unknown = ({"k": np.zeros(9)}, {"model": "equidistant"}, {"d": np.ones(8)})
    for number, changes in enumerate(unknown):
        (camera,) = open_drive(bag(tmp_path / str(number), **changes)).images or ()
        assert camera.calibration is None
    with pytest.raises(SlipstreamError, match="/front/camera_info"):
        open_drive(bag(tmp_path / "nan", k=np.full(9, np.nan)))


def test_two_records_of_one_camera_agree(shared_drives: Path) -> None:
    """openpilot's angles and Waymo's matrix, written for the same device by different hands."""
    pytest.importorskip("capnp")
    pytest.importorskip("av")
    ours = open_drive(shared_drives / "comma_route").images[0].calibration
    shards = shared_drives / "wod_e2e"
    clip = "1185c68524f28d99de123b2e8d269098"
    theirs = open_drive(shards / clip).images[0].calibration
    for name in ("fx", "fy", "cx", "cy", "width", "height"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-6)
    np.testing.assert_allclose(ours.rotation, theirs.rotation, atol=5e-4)
    np.testing.assert_allclose(ours.position, theirs.position, atol=0.01)


def test_an_openpilot_camera_needs_angles_that_were_calibrated(shared_drives: Path) -> None:
    pytest.importorskip("av")
    video = shared_drives / "comma_route" / "qcamera.ts"
    row = (5.0, 1.0, 0.0, 0.02, -0.01, float("nan"))
    found = road_camera(video, [row])
    assert found is not None
    assert found.position[2] == 1.22  # nominal: no height was logged
    assert "1.22 m high" in found.source
    # the way ahead leads up by 0.02 rad in the device's frame: it looks down
    horizon = found.spots(np.array([[1e7, 0.0]]))[0, 1]
    assert horizon == pytest.approx(165 - found.fy * 0.02, abs=0.1)
    assert road_camera(video, [(5.0, 0.0, *row[2:])]) is None
    assert road_camera(video.with_name("none.ts"), [row]) is None
