"""One record of WOD-E2E: the few fields of Waymo's E2EDFrame that a drive needs, checked.

Field numbers are those of waymo.open_dataset (proto2, Apache-2.0). States are in the vehicle frame
of the record: x forward, y left, origin in the middle of the rear axle, metres, 4 Hz.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drives.rater import BEST, WORST, Rated
from drives.readers.protobuf import Field, Message, WireError, decode
from drives.readers.tfrecord import Record, read_record
from drives.readers.wod_e2e_camera import CALIBRATION
from planners.observation import FUTURE_STATES, PAST_STATES, Intent
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

CAMERAS = (
    *("UNKNOWN", "FRONT", "FRONT_LEFT", "FRONT_RIGHT", "SIDE_LEFT", "SIDE_RIGHT"),
    *("REAR_LEFT", "REAR", "REAR_RIGHT"),
)
PEEK = 4096  # bytes of a record within which its name stands

_FIX = "fetch the shard again, or move it out of the folder"
_NAME = re.compile(r"(.{1,200})-(\d{1,6})", re.DOTALL)
_FARTHEST = 1e4  # m and m/s; more are other units or damaged numbers

_STATES = {
    1: Field("x", "float", repeated=True),
    2: Field("y", "float", repeated=True),
    4: Field("vx", "float", repeated=True),
    5: Field("vy", "float", repeated=True),
    6: Field("ax", "float", repeated=True),
    7: Field("ay", "float", repeated=True),
    8: Field("score", "float"),
}
_CONTEXT = {1: Field("name", "text")}
_CALIBRATED = {**_CONTEXT, 2: Field("calibrations", CALIBRATION, repeated=True)}
_IMAGE = {1: Field("camera", "int"), 2: Field("jpeg", "span")}
_FRAME = {
    1: Field("context", _CALIBRATED),
    2: Field("timestamp", "int"),
    4: Field("images", _IMAGE, repeated=True),
}
_E2ED = {
    1: Field("frame", _FRAME),
    5: Field("future", _STATES),
    6: Field("past", _STATES),
    7: Field("intent", "int"),
    8: Field("rated", _STATES, repeated=True),
}
_NAMED = {1: Field("frame", {1: Field("context", _CONTEXT)})}


class FrameName(NamedTuple):
    """What a record calls itself, and its parts: the clip, and the number of 0.1 s in it."""

    text: str
    clip: str
    number: int


@dataclass(frozen=True, eq=False)
class ClipFrame:
    """A decoded record.

    Attributes:
        record: where it lies.
        name: as stored; clip, index: its parts, 0.1 s from one index to the next.
        timestamp: microseconds; 0 in the published files.
        past: [16, 2] m; velocities, accelerations: [16, 2], as stored.
        future: [20, 2] m, or None where the record has fewer.
        rated: what raters said, or None.
        images: (camera, start, length) of each JPEG, bytes in the file.
        calibrations: (camera, CameraCalibration) as decoded, not checked.
    """

    record: Record
    name: str
    clip: str
    index: int
    timestamp: int
    past: Floats
    velocities: Floats
    accelerations: Floats
    future: Floats | None
    intent: Intent
    rated: Rated | None
    images: tuple[tuple[str, int, int], ...]
    calibrations: tuple[tuple[str, Message], ...]


def name_of(record: Record, head: bytes) -> FrameName:
    """A record's name, from its first bytes if they hold it, else from all of it.

    Raises:
        SlipstreamError: a record of another kind.
    """
    name = _peeked(head)
    if name is None:
        message = _decoded(record, read_record(record), _NAMED)
        name = ((message["frame"] or {}).get("context") or {}).get("name", "")
    found = _NAME.fullmatch(name)
    if found is None:
        raise _bad(record, "context.name <clip>-<frame number>", repr(name[:80]))
    return FrameName(name, found[1], int(found[2]))


def read_frame(record: Record) -> ClipFrame:
    """Read, check and decode a record.

    Raises:
        SlipstreamError: a wrong checksum, a record of another kind, or states that are missing,
            not finite or absurd.
    """
    data = read_record(record)
    message = _decoded(record, data, _E2ED)
    name = name_of(record, data[:PEEK])
    past = message["past"] or decode(b"", _STATES)
    future = message["future"] or decode(b"", _STATES)
    ahead = _points(record, future, "x", "y", "future", None)
    if message["intent"] not in tuple(Intent):
        raise _bad(record, "an intent from 0 to 3", str(message["intent"]))
    frame = message["frame"]
    return ClipFrame(
        record=record,
        name=name.text,
        clip=name.clip,
        index=name.number,
        timestamp=frame["timestamp"],
        past=_points(record, past, "x", "y", "past positions", PAST_STATES),
        velocities=_points(record, past, "vx", "vy", "past velocities", PAST_STATES),
        accelerations=_points(record, past, "ax", "ay", "past accelerations", PAST_STATES),
        future=ahead[:FUTURE_STATES] if len(ahead) >= FUTURE_STATES else None,
        intent=Intent(message["intent"]),
        rated=_rated(record, message["rated"]),
        images=tuple(
            (_camera(image["camera"]), record.start + image["jpeg"][0], _length(image["jpeg"]))
            for image in frame["images"]
            if image["jpeg"] is not None
        ),
        calibrations=tuple(
            (_camera(each["camera"]), each)
            for each in (frame["context"] or {}).get("calibrations", ())
        ),
    )


def _peeked(head: bytes) -> str | None:
    """The name at the begin of a record: frame, in it context, in it name, each the first field."""
    position = 0
    for _ in range(3):
        if position >= len(head) or head[position] != 0x0A:  # field 1, bytes
            return None
        position += 1
        length = shift = 0
        while position < len(head) and shift < 35:
            byte = head[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    text = head[position : position + length]
    try:
        return text.decode() if len(text) == length else None
    except UnicodeDecodeError:
        return None


def _rated(record: Record, entries: list[Message]) -> Rated | None:
    """Entries with points and a score of at least 0; others are how the format says "unrated"."""
    trajectories, scores = [], []
    for entry in entries:
        points, score = _points(record, entry, "x", "y", "rated trajectory", None), entry["score"]
        if not score <= BEST:  # NaN too
            raise _bad(record, f"a score from {WORST:g} to {BEST:g}", str(score))
        if len(points) and score >= WORST:
            trajectories.append(points)
            scores.append(score)
    return Rated(tuple(trajectories), tuple(scores)) if scores else None


def _points(
    record: Record, states: Message, first: str, second: str, what: str, count: int | None
) -> Floats:
    x, y = states[first], states[second]
    wanted = len(x) if count is None else count
    if len(x) != wanted or len(y) != wanted:
        raise _bad(record, f"{what}: {wanted} x and y", f"{len(x)} x and {len(y)} y")
    points = np.stack([x, y], axis=1)
    if not (np.abs(points) < _FARTHEST).all():  # NaN too
        worst = np.abs(points).max()
        raise _bad(record, f"{what}: finite numbers in m and s", f"{worst:g}")
    return points


def _camera(number: int) -> str:
    return CAMERAS[number] if 0 <= number < len(CAMERAS) else f"CAMERA_{number}"


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _decoded(record: Record, data: bytes, schema: dict[int, Field]) -> Message:
    try:
        message = decode(data, schema)
    except WireError as error:
        raise _bad(record, "an E2EDFrame message", str(error)) from error
    if message["frame"] is None:
        raise _bad(record, "an E2EDFrame message", "no frame in it")
    return message


def _bad(record: Record, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{record} is not a frame of WOD-E2E", expected=expected, found=found, fix=_FIX
    )
