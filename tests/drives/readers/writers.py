"""Small, valid recordings of other people's formats, written from a computed drive."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from drives.drive import Drive
from drives.frames import EARTH_FLATTENING, EARTH_RADIUS

START_NS = 315966253660357000  # any clock
START_US = 1533151603512404
STILL = np.array([40.0, 5.0, 0.5])  # a parked car, in the drive's world


def yaw_quaternions(headings: np.ndarray) -> np.ndarray:
    """[n, 4] (w, x, y, z)."""
    zero = np.zeros_like(headings)
    return np.stack([np.cos(headings / 2), zero, zero, np.sin(headings / 2)], axis=1)


def write_argoverse2(folder: Path, drive: Drive, *, twins: bool = True) -> Path:
    """A log with a parked car seen from the moving vehicle, and poses a nanosecond apart."""
    import pyarrow as pa
    from pyarrow import feather

    folder.mkdir(parents=True, exist_ok=True)
    stamps = START_NS + np.round(drive.times * 1e9).astype(np.int64)
    turns = yaw_quaternions(drive.headings)
    z = 3.0 * np.ones(len(stamps))
    columns: dict[str, Any] = {"timestamp_ns": stamps}
    columns |= dict(zip(("qw", "qx", "qy", "qz"), turns.T, strict=True))
    x, y = drive.positions[:, :2].T + np.array([[5000.0], [-2000.0]])
    columns |= {"tx_m": x, "ty_m": y, "tz_m": z}
    if twins:
        order = np.repeat(np.arange(len(stamps)), 2)
        columns = {name: np.asarray(values)[order] for name, values in columns.items()}
        columns["timestamp_ns"][1::2] += 1
        columns["tx_m"][1::2] += 0.002
    feather.write_feather(pa.table(columns), str(folder / "city_SE3_egovehicle.feather"))
    labelled = np.arange(0, len(stamps), 5)
    offset = STILL[:2] - drive.positions[labelled, :2]
    cos, sin = np.cos(drive.headings[labelled]), np.sin(drive.headings[labelled])
    seen = np.stack(
        [offset[:, 0] * cos + offset[:, 1] * sin, offset[:, 1] * cos - offset[:, 0] * sin]
    )
    count = len(labelled)
    turned = yaw_quaternions(0.3 - drive.headings[labelled]).T
    parked = {"timestamp_ns": stamps[labelled], "track_uuid": ["parked"] * count}
    parked |= {"category": ["REGULAR_VEHICLE"] * count}
    parked |= {"length_m": [4.5] * count, "width_m": [1.9] * count, "height_m": [1.6] * count}
    parked |= dict(zip(("qw", "qx", "qy", "qz"), turned, strict=True))
    parked |= {"tx_m": seen[0], "ty_m": seen[1], "tz_m": np.full(count, STILL[2])}
    ego = dict(parked) | {"category": ["EGO_VEHICLE"] * count, "track_uuid": ["ego"] * count}
    both = {key: [*parked[key], *ego[key]] for key in parked}
    feather.write_feather(pa.table(both), str(folder / "annotations.feather"))
    return folder


def _token(*parts: object) -> str:
    return hashlib.md5("/".join(map(str, parts)).encode()).hexdigest()


def write_nuscenes(root: Path, drives: dict[str, Drive], version: str = "v1.0-mini") -> Path:
    """Tables of some scenes: lidar sweeps at the drive's samples, a camera 2 ms later."""
    tables: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in ("scene", "log", "sample", "sample_data", "ego_pose", "sample_annotation")
    }
    channels = ("LIDAR_TOP", "CAM_FRONT")
    tables["sensor"] = [{"token": _token(each), "channel": each} for each in channels]
    tables["calibrated_sensor"] = [
        {"token": _token("c", each), "sensor_token": _token(each)} for each in channels
    ]
    tables["category"] = [{"token": _token("car"), "name": "vehicle.car"}]
    tables["instance"] = []
    for scene, drive in drives.items():
        tables["log"].append(
            {"token": _token("log", scene), "location": "nowhere", "date_captured": "2020-02-02"}
        )
        head = {"token": _token(scene), "log_token": _token("log", scene), "name": scene}
        tables["scene"].append(head | {"description": "computed"})
        tables["instance"].append({"token": _token("i", scene), "category_token": _token("car")})
        turns = yaw_quaternions(drive.headings)
        for row, time in enumerate(drive.times):
            stamp = START_US + round(float(time) * 1e6)
            if row % 5 == 0:
                sample = _token("s", scene, row)
                tables["sample"].append(
                    {"token": sample, "timestamp": stamp, "scene_token": _token(scene)}
                )
                box = {"token": _token("a", scene, row), "sample_token": sample}
                box |= {"instance_token": _token("i", scene), "size": [1.9, 4.5, 1.6]}
                place = (STILL + np.array([600.0, 1600.0, 0.0])).tolist()
                box |= {
                    "translation": place,
                    "rotation": yaw_quaternions(np.array([0.3]))[0].tolist(),
                }
                tables["sample_annotation"].append(box)
            for late, channel in enumerate(channels):
                token = _token("d", scene, row, channel)
                pose = {"token": token, "timestamp": stamp + 2000 * late}
                x, y = (drive.positions[row, :2] + [600.0, 1600.0] + 0.003 * late).tolist()
                pose |= {"rotation": turns[row].tolist(), "translation": [x, y, 0.0]}
                tables["ego_pose"].append(pose)
                capture = {"token": token, "sample_token": sample, "ego_pose_token": token}
                capture |= {"calibrated_sensor_token": _token("c", channel)}
                capture |= {"timestamp": stamp + 2000 * late}
                capture |= {"filename": f"sweeps/{channel}/{stamp}.jpg"}
                tables["sample_data"].append(capture)
    folder = root / version
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(
            "[\n" + ",\n".join(json.dumps(row, indent=0) for row in rows) + "\n]"
        )
    return root


def write_kitti_raw(
    folder: Path, drive: Drive, latitude: float = 49.0, longitude: float = 8.4
) -> Path:
    """oxts files of a GPS/IMU 0.05 m behind and 0.32 m left of the middle of the rear axle."""
    data = folder / "oxts" / "data"
    data.mkdir(parents=True, exist_ok=True)
    cos, sin = np.cos(drive.headings), np.sin(drive.headings)
    east = drive.positions[:, 0] - 0.05 * cos - 0.32 * sin
    north = drive.positions[:, 1] - 0.05 * sin + 0.32 * cos
    rates = np.gradient(drive.headings, drive.times)
    eccentricity = EARTH_FLATTENING * (2 - EARTH_FLATTENING)
    narrow = 1 - eccentricity * np.sin(np.radians(latitude)) ** 2
    meridian = EARTH_RADIUS * (1 - eccentricity) / narrow**1.5
    across = EARTH_RADIUS / np.sqrt(narrow)
    start = datetime(2011, 9, 26, 13, 2, 25, tzinfo=timezone.utc)
    lines = []
    for row, time in enumerate(drive.times):
        values = np.zeros(30)
        values[0] = latitude + np.degrees(north[row] / meridian)
        values[1] = longitude + np.degrees(east[row] / (across * np.cos(np.radians(latitude))))
        values[2] = 110.0
        values[5] = (drive.headings[row] + np.pi) % (2 * np.pi) - np.pi
        values[8] = drive.speeds[row] - 0.32 * rates[row]
        values[22] = rates[row]
        values[23] = 0.05
        (data / f"{row:010d}.txt").write_text(" ".join(f"{value:.12f}" for value in values) + "\n")
        moment = start + timedelta(microseconds=round(float(time) * 1e6))
        lines.append(moment.strftime("%Y-%m-%d %H:%M:%S.%f") + "000")
    (folder / "oxts" / "timestamps.txt").write_text("\n".join(lines) + "\n")
    return folder
