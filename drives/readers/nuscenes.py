"""Scenes of nuScenes, from its v1.0 JSON tables alone; none is held whole, whatever its size.

Caesar et al., "nuScenes", CVPR 2020. The ego frame is already ours: origin in the middle of the
rear axle, projected to the ground, x forward, y left, z up. Licence CC BY-NC-SA 4.0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences, check_times
from drives.frames import headings_of, rotation_from_quaternion
from drives.readers.json_index import records_with
from drives.readers.json_records import Record, records
from drives.readers.nuscenes_camera import read_calibrations
from drives.readers.nuscenes_labels import FIX, read_labels
from drives.readers.poses import check_positions, check_quaternions, speeds_of_poses, thinned
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "CC BY-NC-SA 4.0 (non-commercial; not redistributed with slipstream), (c) Motional"

_MICROSECOND = 1e-6
_SIZE = (1600, 900)  # px, of every camera of nuScenes
_LISTED = 8  # scenes that an error names
_FORWARD = np.array([1.0, 0.0, 0.0])
_LIDAR = "LIDAR_TOP"


@dataclass(frozen=True)
class _Scene:
    name: str
    token: str
    log: str
    description: str


@dataclass(frozen=True)
class _Capture:
    """One record of sample_data: when a sensor saw what, and the pose then."""

    channel: str
    pose: str
    stamp: int
    file: str
    sensor: str
    size: tuple[int, int]


def is_nuscenes(path: Path) -> bool:
    """Is this a data root, the folder of its tables, or one of these with a scene behind it?"""
    return _tables(path if path.exists() else path.parent) is not None


def nuscenes_scenes(path: Path) -> tuple[str, ...]:
    """Names of the scenes whose tables lie there, in the tables' order.

    Raises:
        SlipstreamError: no tables, or a damaged one.
    """
    return tuple(scene.name for scene in _scenes(_parted(path)[0]))


def check_scene(path: Path) -> None:
    """Insist that a path names a scene, by scene.json alone; damage is `read_nuscenes`'s to tell.

    Raises:
        SlipstreamError: no scene of that name, or none is named of several.
    """
    try:
        tables, scene = _parted(path)
        scenes = _scenes(tables)
    except SlipstreamError:
        return
    _choice(tables, scene, scenes)


def read_nuscenes(path: Path, *, scene: str | None = None, name: str | None = None) -> Drive:
    """Read one scene.

    Poses are those of the lidar's sweeps (20 Hz): poses of different sensors lie a millisecond and
    some millimetres apart. Speeds come from the poses of the last 0.5 s. Road users are labelled at
    2 Hz. The origin is the first known position.

    Args:
        path: the data root (with v1.0-mini/ or the like), the folder of the tables, or one of these
            with a scene's name behind it, e.g. nuscenes/scene-0103.
        scene: its name; may be left out where there is only one.
        name: of the drive, by default the scene's.

    Raises:
        SlipstreamError: no such scene, or a table that is missing, damaged or refers to records
            that are not there.
    """
    tables, within = _parted(path)
    chosen = _choice(tables, scene or within, _scenes(tables))
    samples = {
        record.text("token"): record.stamp("timestamp")
        for record in records_with(tables / "sample.json", "scene_token", {chosen.token}, FIX)
    }
    captures = _captures(tables, samples)
    channel = _pose_channel(tables, captures)
    poses = sorted((each for each in captures if each.channel == channel), key=_stamp)
    stamps = np.array([each.stamp for each in poses], dtype=np.int64)
    check_times((stamps - stamps[0]) * _MICROSECOND, f"{tables / 'sample_data.json'} {channel}")
    rows = _poses(tables, [each.pose for each in poses])
    check_quaternions(tables / "ego_pose.json", rows[:, :4], FIX)
    check_positions(tables / "ego_pose.json", rows[:, 4:], FIX)
    known = np.isfinite(rows).all(axis=1)
    origin = rows[np.argmax(known), 4:]
    rows[~known] = np.nan
    taken = thinned((stamps - stamps[0]) * _MICROSECOND)
    times = (stamps[taken] - stamps[0]) * _MICROSECOND
    positions = rows[taken, 4:] - origin
    headings = headings_of(rotation_from_quaternion(rows[taken, :4]) @ _FORWARD)
    return Drive(
        name=name or chosen.name,
        source=f"nuScenes {tables.name} {chosen.name} ({_place(tables, chosen)}), ego poses at "
        f"{channel}; speeds from the poses",
        licence=LICENCE,
        synthetic=False,
        times=times,
        positions=positions,
        headings=headings,
        speeds=speeds_of_poses(times, positions, headings),
        clock_start=float(stamps[0]) * _MICROSECOND,
        images=_images(tables, captures, int(stamps[0])),
        agents=read_labels(tables, samples, int(stamps[0]), origin),
        dataset="nuScenes",
        recording=chosen.name,
    )


def _tables(path: Path) -> Path | None:
    """The folder that holds scene.json: this one, or a single v1.0-* in it."""
    if (path / "scene.json").is_file():
        return path
    inner = sorted(path.glob("v1.0-*/scene.json")) if path.is_dir() else []
    return inner[0].parent if inner else None


def _parted(path: Path) -> tuple[Path, str | None]:
    """(folder of the tables, scene): the last part of a path that is not there names the scene."""
    place, scene = (path, None) if path.exists() else (path.parent, path.name)
    tables = _tables(place)
    if tables is None:
        raise SlipstreamError(
            f"{place} holds no nuScenes tables",
            expected="scene.json in it, or in a folder such as v1.0-mini in it",
            found="neither" if place.exists() else "no such folder",
            fix="name the data root, the folder that holds v1.0-mini or v1.0-trainval",
        )
    several = sorted(place.glob("v1.0-*/scene.json"))
    if len(several) > 1 and tables != place:
        raise SlipstreamError(
            f"{place} holds several sets of tables",
            expected="one",
            found=", ".join(each.parent.name for each in several),
            fix=f"name one of them: {tables}",
        )
    return tables, scene


def _scenes(tables: Path) -> list[_Scene]:
    return [
        _Scene(
            record.text("name"),
            record.text("token"),
            record.text("log_token"),
            record.text("description"),
        )
        for record in records(tables / "scene.json", FIX)
    ]


def _choice(tables: Path, wanted: str | None, found: list[_Scene]) -> _Scene:
    scenes = {scene.name: scene for scene in found}
    if wanted in scenes:
        return scenes[str(wanted)]
    if wanted is None and len(scenes) == 1:
        return next(iter(scenes.values()))
    names = list(scenes)
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    place = tables.parent if tables.name.startswith("v1.0-") else tables
    raise SlipstreamError(
        f"{tables} holds {len(names)} scenes" if wanted is None else f"no {wanted} in {tables}",
        expected=f"one of {listed}" if names else "at least one scene",
        found="no scene named" if wanted is None else wanted,
        fix=f"name the scene behind the path: {place / names[0]}" if names else FIX,
    )


def _captures(tables: Path, samples: dict[str, int]) -> list[_Capture]:
    channels = _channels(tables)
    captures = []
    for record in records_with(tables / "sample_data.json", "sample_token", samples, FIX):
        sensor = record.text("calibrated_sensor_token")
        if sensor not in channels:
            raise record.bad("a calibrated sensor of the table", sensor)
        captures.append(
            _Capture(
                channels[sensor],
                record.text("ego_pose_token"),
                record.stamp("timestamp"),
                record.text("filename"),
                sensor,
                (_pixels(record, "width") or _SIZE[0], _pixels(record, "height") or _SIZE[1]),
            )
        )
    return captures


def _channels(tables: Path) -> dict[str, str]:
    """Calibrated sensor -> channel, e.g. CAM_FRONT."""
    names = {
        record.text("token"): record.text("channel")
        for record in records(tables / "sensor.json", FIX)
    }
    channels = {}
    for record in records(tables / "calibrated_sensor.json", FIX):
        sensor = record.text("sensor_token")
        if sensor not in names:
            raise record.bad("a sensor of the table", sensor)
        channels[record.text("token")] = names[sensor]
    return channels


def _pose_channel(tables: Path, captures: list[_Capture]) -> str:
    """The lidar, or else the sensor with the most records."""
    counts = Counter(each.channel for each in captures)
    if not counts:
        raise SlipstreamError(
            f"{tables / 'sample_data.json'} has nothing of this scene",
            expected="sensor records of its samples",
            found="none",
            fix=FIX,
        )
    return _LIDAR if _LIDAR in counts else counts.most_common(1)[0][0]


def _poses(tables: Path, tokens: list[str]) -> Floats:
    """[n, 7] quaternion (w, x, y, z) and position."""
    rows: dict[str, list[float]] = {}
    wanted = set(tokens)
    for record in records_with(tables / "ego_pose.json", "token", wanted, FIX):
        rows[record.text("token")] = record.numbers("rotation", 4) + record.numbers(
            "translation", 3
        )
    if lost := wanted - rows.keys():
        raise SlipstreamError(
            f"{tables / 'ego_pose.json'} lacks poses of this scene",
            expected=f"{len(wanted)} poses",
            found=f"{len(lost)} missing, such as {min(lost)[:40]}",
            fix=FIX,
        )
    return np.array([rows[token] for token in tokens])


def _images(
    tables: Path, captures: list[_Capture], start: int
) -> tuple[ImageReferences, ...] | None:
    """Camera frames whose files are there."""
    root = tables.parent
    cameras: dict[str, list[_Capture]] = {}
    for each in sorted(captures, key=_stamp):
        if each.channel.startswith("CAM") and _inside(root, each.file):
            cameras.setdefault(each.channel, []).append(each)
    if not cameras:
        return None
    sizes = {each.sensor: each.size for taken in cameras.values() for each in taken}
    calibrations = read_calibrations(tables, sizes)
    return tuple(
        ImageReferences(
            channel,
            np.array([(each.stamp - start) * _MICROSECOND for each in taken]),
            tuple(str(root / each.file) for each in taken),
            calibrations.get(taken[0].sensor),
        )
        for channel, taken in sorted(cameras.items())
    )


def _pixels(record: Record, key: str) -> int:
    """A picture's size, 0 where the table does not say it: a lidar's sweep has none."""
    value = record.values.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def _inside(root: Path, file: str) -> bool:
    """Is this file of the data set there? A table must not lead out of the data root."""
    if "\0" in file or ".." in Path(file).parts or Path(file).is_absolute():
        return False
    try:
        return (root / file).is_file()
    except OSError:
        return False


def _place(tables: Path, scene: _Scene) -> str:
    logs = {
        record.text("token"): f"{record.text('location')}, {record.text('date_captured')}"
        for record in records(tables / "log.json", FIX)
    }
    return logs.get(scene.log, "place unknown")


def _stamp(capture: _Capture) -> int:
    return capture.stamp
