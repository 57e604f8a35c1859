"""A replay as an MCAP file of ROS 2 messages with their definitions: Foxglove opens it as it is.

CDR messages under `ros2msg` schemas (mcap.dev, profile ros2); frames as in REP 103 and 105: `map`
is the drive's world, `base_link` the rear axle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive
from drives.readers import ros_note
from drives.readers.extra import library
from drives.replay import Replay
from drives.ros_writer import RosMessages
from drives.views import Picture, picture_at
from drives.world import WorldFrame, thinned_rows, world_frames
from planners.observation import Intent
from planners.plan import Plan
from runtime.errors import SlipstreamError
from runtime.files import check_writable, new_file

Floats = NDArray[np.float64]
Message = tuple[int, str, str, Any]  # ns, topic, type, message

OPTION = "--mcap"
CAMERA = "camera"  # frame and topics of the camera that looks ahead
_KEPT = ("/tf_static", "/intent", ros_note.TOPIC)  # for those who listen later
_STEP = 0.25  # s between the points of a plan
_COLORS = ((0.3, 0.53, 1.0), (1.0, 0.62, 0.25), (0.24, 0.79, 0.57), (0.84, 0.42, 0.91))


def check_mcap(out: Path) -> None:
    """Insist, before the work, that the file can be written.

    Raises:
        SlipstreamError: rosbags is not installed, or `out` can't be written.
    """
    _library("rosbags.rosbag2")
    check_writable(out, option=OPTION)


def write_plans(replay: Replay, drive: Drive, out: Path) -> None:
    """Write plans, rollouts and what happened as ROS 2 messages.

    | topic | type | when |
    | --- | --- | --- |
    | `/tf`, `/odom` | TFMessage, Odometry | the drive's known samples, at most 20 a second |
    | `/intent` | std_msgs/String: unknown, straight, left, right | when it changes |
    | `/slipstream/drive` | std_msgs/String: JSON with source, licence, recording | once |
    | `/DECODER/plan` | nav_msgs/Path, in `map`; empty without a plan | frames |
    | `/DECODER/rollouts` | visualization_msgs/MarkerArray, a line a usable rollout | frames |
    | `/DECODER/latency_ms`, `/DECODER/acceptance_length` | std_msgs/Float64 | frames |
    | `/truth` | nav_msgs/Path | frames |
    | `/camera/image/compressed` | CompressedImage; with a calibration CameraInfo and /tf_static |
      frames |

    Times are the drive's own: its clock at the start plus the seconds since. A path's poses bear
    the times at which they are meant to be reached.

    Args:
        replay: what ran.
        drive: what it ran on.
        out: the .mcap file; an older one is replaced.

    Raises:
        SlipstreamError: rosbags is not installed, or `out` can't be written.
    """
    bags = _library("rosbags.rosbag2")
    make = RosMessages(_library("rosbags.typesys"))
    messages = sorted(_messages(make, replay, drive), key=lambda message: message[0])
    with new_file(out, OPTION) as place:
        bag = place.parent / "bag"
        plugin = bags.StoragePlugin.MCAP
        with bags.Writer(bag, version=9, storage_plugin=plugin) as writer:
            topics: dict[str, Any] = {}
            for stamp, topic, kind, message in messages:
                if topic not in topics:
                    qos = [_latched()] if topic in _KEPT else []
                    topics[topic] = writer.add_connection(
                        topic, kind, typestore=make.store, offered_qos_profiles=qos
                    )
                writer.write(topics[topic], stamp, make.store.serialize_cdr(message, kind))
        (bag / "bag.mcap").replace(place)


def topics_of(names: Iterable[str]) -> dict[str, str]:
    """Decoder -> its namespace: ROS names hold letters, digits and _, and don't begin with a digit.

    Names that would be alike are numbered.
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"\W+", "_", name.replace("×", "x"), flags=re.ASCII).strip("_") or "decoder"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        alike = chain([plain], (f"{plain}_{number}" for number in count(2)))
        found[name] = next(each for each in alike if each not in found.values())
    return found


def _messages(make: RosMessages, replay: Replay, drive: Drive) -> Iterator[Message]:
    note = make.text(ros_note.note_of(drive))
    yield _stamp(drive, float(drive.times[0])), ros_note.TOPIC, make.TEXT, note
    yield from _poses(make, drive)
    yield from _intents(make, drive)
    yield from _pictures(make, replay, drive)
    names = topics_of(replay.settings)
    for index, frame in enumerate(world_frames(replay, drive)):
        stamp = _stamp(drive, frame.time)
        future = replay.windows[index].future
        yield stamp, "/truth", make.PATH, _path(make, drive, frame, future)
        for number, (name, plans) in enumerate(replay.plans.items()):
            yield from _plan(make, drive, frame, f"/{names[name]}", number, plans[index])


def _plan(
    make: RosMessages, drive: Drive, frame: WorldFrame, topic: str, number: int, plan: Plan
) -> Iterator[Message]:
    stamp = _stamp(drive, frame.time)
    yield stamp, f"{topic}/plan", make.PATH, _path(make, drive, frame, plan.trajectory)
    lines = [frame.path(rollout) for rollout in plan.rollouts[plan.valid]]
    color = _COLORS[number % len(_COLORS)]
    yield stamp, f"{topic}/rollouts", make.MARKERS, make.lines(stamp, lines, color)
    figures = {"latency_ms": 1e3 * plan.latency, "acceptance_length": plan.stats.acceptance_length}
    for figure, value in figures.items():
        yield stamp, f"{topic}/{figure}", make.NUMBER, make.number(value)


def _path(make: RosMessages, drive: Drive, frame: WorldFrame, points: Floats | None) -> Any:
    """From where the vehicle is; empty without points, so that viewers drop the last one."""
    stamp = _stamp(drive, frame.time)
    if points is None:
        return make.path(stamp, [], np.zeros((0, 3)), np.zeros(0))
    stamps = [_stamp(drive, frame.time + _STEP * step) for step in range(len(points) + 1)]
    return make.path(stamp, stamps, frame.path(points), frame.headings(points))


def _poses(make: RosMessages, drive: Drive) -> Iterator[Message]:
    rows = list(thinned_rows(drive))
    speeds = dict(zip(drive.times.tolist(), drive.speeds.tolist(), strict=True))
    for time, position, heading in rows:
        stamp = _stamp(drive, time)
        transform = make.transform(stamp, "map", "base_link", position, make.turn(heading))
        yield stamp, "/tf", make.TF, make.transforms([transform])
        yield stamp, "/odom", make.ODOMETRY, make.odometry(stamp, position, heading, speeds[time])


def _intents(make: RosMessages, drive: Drive) -> Iterator[Message]:
    """The command at the start and at every change."""
    if drive.intents is None:
        return
    for row in np.flatnonzero(np.diff(drive.intents, prepend=-1)):
        word = Intent(int(drive.intents[row])).name.lower()
        yield _stamp(drive, float(drive.times[row])), "/intent", make.TEXT, make.text(word)


def _pictures(make: RosMessages, replay: Replay, drive: Drive) -> Iterator[Message]:
    """Of the camera that looks ahead, at the frames; one that can't be read is left out."""
    placed = False
    for window in replay.windows:
        try:
            picture = picture_at(drive, window.observation.time)
        except SlipstreamError:
            continue
        if picture is None:
            continue
        stamp = _stamp(drive, picture.time)
        yield stamp, f"/{CAMERA}/image/compressed", make.IMAGE, make.image(stamp, CAMERA, picture)
        if picture.camera.calibration is not None:
            if not placed:
                yield _static(make, drive, picture)
                placed = True
            yield stamp, f"/{CAMERA}/camera_info", make.INFO, make.info(stamp, CAMERA, picture)


def _static(make: RosMessages, drive: Drive, picture: Picture) -> Message:
    """Where the camera is on the vehicle; paths are drawn at base_link's height."""
    known = picture.camera.calibration
    assert known is not None
    stamp = _stamp(drive, float(drive.times[0]))
    place = known.position - np.array([0.0, 0.0, known.road])
    transform = make.transform(stamp, "base_link", CAMERA, place, make.quaternion(known.rotation))
    return stamp, "/tf_static", make.TF, make.transforms([transform])


def _stamp(drive: Drive, time: float) -> int:
    """ns on the recorder's clock; both parts by themselves, since a float holds no ns of today."""
    return round(drive.clock_start * 1e9) + round(time * 1e9)


def _latched() -> Any:
    """The quality of `_KEPT`; others have the default one."""
    ros = _library("rosbags.interfaces")
    never = ros.QosTime(0, 0)
    return ros.Qos(
        ros.QosHistory.KEEP_LAST,
        1,
        ros.QosReliability.RELIABLE,
        ros.QosDurability.TRANSIENT_LOCAL,
        never,
        never,
        ros.QosLiveliness.AUTOMATIC,
        never,
        False,
    )


def _library(module: str) -> Any:
    return library(module, "an MCAP file", act="written")
