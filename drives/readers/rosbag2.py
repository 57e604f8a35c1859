"""ROS 2 bags: a rosbag2 folder, an MCAP file or an SQLite file, streamed by `rosbags`.

Frames are those of REP 103 and 105: x forward, y left, z up, velocities in the child frame.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.camera import Calibration
from drives.drive import MAX_GAP, Drive, ImageReferences, check_times
from drives.frames import headings_of, rear_axle, rotation_from_quaternion
from drives.motion import linear
from drives.readers.extra import library
from drives.readers.poses import (
    check_positions,
    check_quaternions,
    check_speeds,
    speeds_of_poses,
    thinned,
)
from drives.readers.ros_camera import read_calibrations
from drives.readers.ros_messages import (
    DEFINITIONS,
    IMAGE,
    INTENT,
    POSE,
    SPEED,
    VALUES,
    is_stamped,
    stamp,
)
from drives.readers.ros_note import noted, read_note
from drives.readers.ros_topics import choose
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "not stated in the bag"
_STORAGES = (".mcap", ".db3")
_NANOSECOND = 1e-9
_MOVING = 1.0  # m that a path leads before a twist of zeros counts as not filled in
_REPAIR = "copy the bag again; where its recorder was killed, `mcap recover` or `ros2 bag reindex`"


@dataclass
class _Series:
    """The messages of one topic: recorder's time and the message's own (ns), values."""

    topic: str
    kind: str
    logged: array[int] = field(default_factory=lambda: array("q"))
    stamped: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    calibration: Calibration | None = None  # of a camera

    def table(self) -> Floats:
        return np.asarray(self.values).reshape(len(self.logged), -1)


def is_rosbag2(path: Path) -> bool:
    """Is this an MCAP or SQLite file, or a folder with a bag's metadata.yaml or one such file?"""
    if path.is_file():
        return path.suffix in _STORAGES
    return path.is_dir() and _bag(path) is not None


def read_rosbag2(
    path: Path,
    *,
    name: str | None = None,
    topics: Mapping[str, str] | None = None,
    lever_arm: float = 0.0,
) -> Drive:
    """Read one bag in a single pass; images are referred to, never held.

    A topic is taken by its message type: poses from Odometry, else PoseWithCovarianceStamped or
    PoseStamped; speeds from the odometry, else VelocityReport or TwistStamped, else from the poses
    of the last 0.5 s; intents from TurnIndicatorsReport or a topic named intent or command. Times
    are the messages' own stamps, or the recorder's where those are all zero. Source and licence
    are those of `drives.readers.ros_note`, where a bag has such a message.

    Args:
        path: the bag.
        name: by default the bag's name.
        topics: role (`pose`, `speed`, `intent`, `image`) -> topic, where the type does not settle
            it or another topic is wanted.
        lever_arm: m that the pose's frame is ahead of the rear axle; 0 for Autoware's base_link.

    Raises:
        SlipstreamError: no such topic, several that fit, an unknown message type, fewer messages
            than the bag's index counts, a damaged bag, or bad time stamps.
    """
    bag = _bag(path)
    if bag is None:
        raise SlipstreamError(
            f"{path} is not a ROS 2 bag",
            expected="an .mcap or .db3 file, or a folder with one and its metadata.yaml",
            found="none" if path.exists() else "no such file or folder",
            fix="name the bag; a ROS 1 bag needs `rosbags-convert` first",
        )
    with _guarded(bag):
        series, note = _read(bag, dict(topics or {}), lever_arm)
    return noted(_drive(bag, name or path.resolve().stem, series, lever_arm), note)


def read_message(reference: str) -> Any:
    """The image message that a path of `Drive.images` names: `<bag>#topic=<t>&time=<ns>`.

    Raises:
        SlipstreamError: a damaged bag, or one without that message.
    """
    place, _, key = reference.rpartition("#topic=")
    topic, _, time = key.rpartition("&time=")
    with _guarded(Path(place)), _opened(Path(place)) as bag:
        wanted = [each for each in bag.connections if each.topic == topic]
        when = int(time)
        for connection, _, raw in bag.messages(wanted, when, when + 1) if wanted else ():
            return _types().deserialize_cdr(raw, connection.msgtype)
    raise SlipstreamError(
        f"{reference} is not in the bag",
        expected="an image message",
        found=f"none on {topic} at {time} ns",
        fix="open the drive again",
    )


def _bag(path: Path) -> Path | None:
    if path.is_file() or (path / "metadata.yaml").is_file():
        return path
    try:
        files = [file for file in path.iterdir() if file.suffix in _STORAGES and file.is_file()]
    except OSError:
        return None
    return files[0] if len(files) == 1 else None


@contextmanager
def _opened(bag: Path) -> Iterator[Any]:
    with library("rosbags.rosbag2", "a ROS 2 bag").Reader(bag) as reader:
        yield reader


@contextmanager
def _guarded(bag: Path) -> Iterator[None]:
    """A damaged bag makes `rosbags` fail in any way there is; here it becomes the one error."""
    try:
        yield
    except SlipstreamError:
        raise
    except Exception as error:
        raise SlipstreamError(
            f"{bag} can't be read as a ROS 2 bag",
            expected="a whole rosbag2 recording (profile ros2, CDR messages)",
            found=(str(error) or type(error).__name__).splitlines()[0][:200],
            fix=_REPAIR,
        ) from error


def _types() -> Any:
    typesys = library("rosbags.typesys", "a ROS 2 bag")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    for kind, definition in DEFINITIONS.items():
        store.register(typesys.get_types_from_msg(definition, kind))
    return store


def _read(
    bag: Path, topics: dict[str, str], ahead: float
) -> tuple[dict[str, list[_Series]], str | None]:
    """Role -> the series of its topics, and what the bag says of its recording."""
    with _opened(bag) as reader:
        chosen = choose(bag, reader.connections, topics)
        series = {
            role: [_Series(each.topic, each.msgtype) for each in found]
            for role, found in chosen.items()
        }
        by_topic = {each.topic: (role, each) for role in series for each in series[role]}
        # a topic has a connection for each publisher
        wanted = [
            each
            for each in reader.connections
            if each.topic in by_topic and each.msgtype == by_topic[each.topic][1].kind
        ]
        types = _types()
        for connection, logged, raw in reader.messages(wanted):
            role, into = by_topic[connection.topic]
            into.logged.append(logged)
            into.stamped.append(stamp(raw) if is_stamped(into.kind) else 0)
            if role != IMAGE:
                into.values.extend(VALUES[role][into.kind](types.deserialize_cdr(raw, into.kind)))
        for topic, (_, into) in by_topic.items():
            counted = sum(each.msgcount for each in wanted if each.topic == topic)
            _check_count(bag, topic, counted, len(into.logged))
        cameras = [each.topic for each in series[IMAGE]]
        known = read_calibrations(reader, types, cameras, series[POSE][0].topic, ahead)
        for each in series[IMAGE]:
            each.calibration = known.get(each.topic)
        return series, read_note(reader, types)


def _check_count(bag: Path, topic: str, counted: int, found: int) -> None:
    if found < counted:
        raise SlipstreamError(
            f"{bag} has lost messages of {topic}",
            expected=f"{counted}, as its index counts",
            found=f"{found}",
            fix=_REPAIR,
        )


def _drive(bag: Path, name: str, series: dict[str, list[_Series]], lever_arm: float) -> Drive:
    (poses,) = series[POSE]
    quirks = []
    logged, stamped = np.asarray(poses.logged), np.asarray(poses.stamped)
    without = len(stamped) > 0 and not stamped.any()
    if without:
        quirks.append(f"the time stamps of {poses.topic} are all zero; the recorder's are taken")
    ours = logged if without else stamped
    late = 0.0 if without or not len(ours) else float(np.median(logged - ours))
    check_times(ours * _NANOSECOND, f"{poses.topic} of {bag}")
    start = int(ours[0])

    def clock(each: _Series) -> Floats:
        """s since the first pose, on the clock of the poses."""
        own, by_recorder = np.asarray(each.stamped), np.asarray(each.logged)
        shifted = (by_recorder - start - late) * _NANOSECOND
        return np.where((own == 0) | without, shifted, (own - start) * _NANOSECOND)

    taken = thinned(clock(poses))
    times, table = clock(poses)[taken], poses.table()[taken]
    check_positions(bag, table[:, :3], f"mend the positions of {poses.topic}")
    check_quaternions(bag, table[:, 3:7], f"mend the orientations of {poses.topic}")
    forward = rotation_from_quaternion(table[:, 3:7]) @ np.array([1.0, 0.0, 0.0])
    headings = headings_of(forward)
    positions = rear_axle(table[:, :3], headings, lever_arm)
    speeds, origin = _speeds(bag, series, times, positions, headings, table[:, 7], clock, quirks)
    check_speeds(bag, speeds, f"mend the speeds of {poses.topic}, or take another topic")
    return Drive(
        name=name,
        source=f"ROS 2 bag, poses from {poses.topic} ({poses.kind}), speeds from {origin}; the "
        f"pose's frame is taken {lever_arm:g} m ahead of the rear axle",
        licence=LICENCE,
        synthetic=False,
        times=times,
        positions=positions,
        headings=headings,
        speeds=speeds,
        clock_start=start * _NANOSECOND,
        intents=_intents(series[INTENT], times, clock),
        images=_images(bag, series[IMAGE], clock),
        warnings=tuple(quirks),
    )


def _speeds(
    bag: Path,
    series: dict[str, list[_Series]],
    times: Floats,
    positions: Floats,
    headings: Floats,
    twist: Floats,
    clock: Any,
    quirks: list[str],
) -> tuple[Floats, str]:
    """[n] m/s along the heading, and where they come from."""
    if series[SPEED]:
        (given,) = series[SPEED]
        at = clock(given)
        check_times(at, f"{given.topic} of {bag}")
        near = np.abs(at[np.clip(np.searchsorted(at, times), 0, len(at) - 1)] - times) <= MAX_GAP
        return np.where(near, linear(at, given.table()[:, 0], times), np.nan), given.topic
    moved = float(np.nansum(np.hypot(*np.diff(positions[:, :2], axis=0).T)))
    if np.isnan(twist).all():
        return speeds_of_poses(times, positions, headings), "the poses"
    if not twist.any() and moved > _MOVING:
        quirks.append("the twist of the odometry is all zero; speeds come from the poses")
        return speeds_of_poses(times, positions, headings), "the poses"
    return twist, "the same topic's twist"


def _intents(series: list[_Series], times: Floats, clock: Any) -> NDArray[np.int64] | None:
    if not series or not len(series[0].logged):
        return None
    at = np.maximum.accumulate(clock(series[0]))
    last = np.searchsorted(at, times, side="right") - 1
    commands = series[0].table()[:, 0].astype(np.int64)
    return np.where(last >= 0, commands[np.maximum(last, 0)], 0)


def _images(bag: Path, series: list[_Series], clock: Any) -> tuple[ImageReferences, ...] | None:
    cameras = [
        ImageReferences(
            each.topic,
            clock(each),
            tuple(f"{bag}#topic={each.topic}&time={time}" for time in each.logged),
            each.calibration,
        )
        for each in series
        if len(each.logged)
    ]
    return tuple(cameras) or None
