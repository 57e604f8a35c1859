"""Small, valid recordings of other people's formats, written from a computed drive."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np

from drives.drive import Drive
from drives.frames import EARTH_FLATTENING, EARTH_RADIUS, enu_from_ecef

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


def write_kitti(path: Path, drive: Drive) -> Path:
    """Camera poses 1.03 m ahead of the rear axle, and times.txt beside them."""
    cos, sin = np.cos(drive.headings), np.sin(drive.headings)
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    x, y = (drive.positions[:, :2] + 1.03 * np.stack([cos, sin], axis=1)).T
    path.parent.mkdir(parents=True, exist_ok=True)
    # the world's axes are the first camera's: x right, y down, z forward
    np.savetxt(path, np.stack([cos, zero, -sin, -y, zero, one, zero, zero, sin, zero, cos, x], 1))
    np.savetxt(path.parent / "times.txt", drive.times)
    return path


def write_boreas(folder: Path, drive: Drive) -> Path:
    """Lidar poses 0.59 m ahead of the rear axle, the lidar's x axis forward, and a parked car."""
    for each in ("applanix", "calib", "labels_detection"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    turn = np.eye(4)
    turn[:2, :2] = [[0.0, -1.0], [1.0, 0.0]]
    np.savetxt(folder / "calib" / "T_applanix_lidar.txt", turn)
    cos, sin = np.cos(drive.headings), np.sin(drive.headings)
    x, y = (drive.positions[:, :2] + 0.59 * np.stack([cos, sin], axis=1)).T
    zero = np.zeros_like(cos)
    stamps = START_US + np.round(drive.times * 1e6)
    columns = [stamps, 6e5 + x, 4e6 + y, 90.0 + zero, drive.speeds * cos, drive.speeds * sin, zero]
    columns += [zero, zero, -drive.headings, zero, zero, zero]
    rows = np.stack(columns, axis=1)
    header = "GPSTime,easting,northing,altitude,ve,vn,vu,roll,pitch,heading,wz,wy,wx"
    path = folder / "applanix" / "lidar_poses.csv"
    np.savetxt(path, rows, fmt=["%d"] + ["%.9f"] * 12, delimiter=",", header=header, comments="")
    for row in range(0, len(x), 10):
        away = STILL[:2] - [x[row], y[row]]
        ahead, left = away @ [cos[row], sin[row]], away @ [-sin[row], cos[row]]
        label = f"abc Car 4.5 1.9 1.6 {ahead:.4f} {left:.4f} -0.5 0.0 30\n"
        (folder / "labels_detection" / f"{int(stamps[row])}.txt").write_text(label)
    return folder


def write_comma2k19(folder: Path, drive: Drive, latitude: float = 0.7) -> Path:
    """Poses of a device 1.7 m ahead of the rear axle, in ECEF at longitude -1.2 rad."""
    longitude = -1.2
    pose, log = folder / "global_pose", folder / "processed_log" / "CAN" / "speed"
    pose.mkdir(parents=True, exist_ok=True)
    log.mkdir(parents=True, exist_ok=True)
    enu = enu_from_ecef(latitude, longitude)
    eccentricity = EARTH_FLATTENING * (2 - EARTH_FLATTENING)
    normal = EARTH_RADIUS / np.sqrt(1 - eccentricity * np.sin(latitude) ** 2)
    start = normal * enu[2] * [1.0, 1.0, 1 - eccentricity]
    cos, sin, zero = np.cos(drive.headings), np.sin(drive.headings), np.zeros(len(drive.times))
    moved = drive.positions[:, :2] - drive.positions[0, :2] + 1.7 * np.stack([cos, sin], axis=1)
    velocity = np.stack([drive.speeds * cos, drive.speeds * sin, zero], axis=1)
    # ECEF from ENU, then the heading, then x forward, y right, z down
    turns = _about("z", zero + longitude + np.pi / 2)
    for axis, angle in (("x", np.pi / 2 - latitude), ("z", drive.headings), ("x", np.pi)):
        turns = _composed(turns, _about(axis, zero + angle))
    arrays = {
        pose / "frame_times": 500.0 + drive.times,
        pose / "frame_positions": start + np.column_stack([moved, zero]) @ enu,
        pose / "frame_velocities": velocity @ enu,
        pose / "frame_orientations": turns,
        log / "t": 500.0 + drive.times,
        log / "value": drive.speeds[:, None],
    }
    for path, values in arrays.items():
        with path.open("wb") as file:
            np.save(file, values)
    return folder


def _about(axis: str, angles: np.ndarray) -> np.ndarray:
    """[n, 4] quaternions (w, x, y, z)."""
    out = np.zeros((len(angles), 4))
    out[:, 0], out[:, "wxyz".index(axis)] = np.cos(angles / 2), np.sin(angles / 2)
    return out


def _composed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[n, 4] quaternions of first b, then a."""
    w, v, s, u = a[:, :1], a[:, 1:], b[:, :1], b[:, 1:]
    real = w * s - (v * u).sum(axis=1, keepdims=True)
    return np.concatenate([real, w * u + s * v + np.cross(v, u)], axis=1)
