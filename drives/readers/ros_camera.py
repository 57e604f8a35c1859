"""Cameras of a ROS 2 bag: sensor_msgs/CameraInfo, and where /tf_static puts their frames.

Optical frames are those of REP 103 (x right, y down, z forward). K and D belong to raw pictures, P
to rectified ones (image_pipeline's convention); the lens is `plumb_bob`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.camera import Calibration, calibrated
from drives.frames import rotation_from_quaternion

Floats = NDArray[np.float64]
Pose = tuple[Floats, Floats]  # rotation [3, 3] and translation [3]

BASE = "base_link"
_INFO = "sensor_msgs/msg/CameraInfo"
_TF = "tf2_msgs/msg/TFMessage"
_STATIC = "/tf_static"
_MOST = 1000  # messages of /tf_static that are looked at
_FIX = "mend the driver's calibration, or record without its CameraInfo"


def read_calibrations(
    bag: Any, types: Any, topics: Sequence[str], poses: str, ahead: float
) -> dict[str, Calibration]:
    """Image topic -> its calibration, for those whose CameraInfo and frame the bag holds.

    Args:
        bag: an opened bag.
        types: type store.
        topics: of images.
        poses: topic of the vehicle's poses. Their frame is an odometry's child frame, else
            base_link; its origin is taken to lie on the road.
        ahead: m that this frame is ahead of the rear axle.

    Raises:
        SlipstreamError: values that no camera has.
    """
    infos = {each.topic: each for each in bag.connections if each.msgtype == _INFO}
    beside = {topic: next((n for n in _names(topic) if n in infos), None) for topic in topics}
    if not any(beside.values()):
        return {}
    frames, base = _frames(bag, types), _base(bag, types, poses)
    found = {}
    for topic, name in beside.items():
        if name is None:
            continue
        info = _first(bag, types, infos[name])
        pose = _within(frames, info.header.frame_id, base) if info else None
        if info and pose and (calibration := _calibration(info, topic, name, pose, ahead)):
            found[topic] = calibration
    return found


def _first(bag: Any, types: Any, connection: Any) -> Any:
    message = next(bag.messages([connection]), None)
    return types.deserialize_cdr(message[2], connection.msgtype) if message else None


def _base(bag: Any, types: Any, poses: str) -> str:
    """The frame whose poses the topic gives."""
    wanted = next(each for each in bag.connections if each.topic == poses)
    return getattr(_first(bag, types, wanted), "child_frame_id", "") or BASE


def _names(topic: str) -> list[str]:
    """Where the camera_info of an image topic may be, the nearest first."""
    raw = topic.removesuffix("/compressed")
    return [f"{raw}/camera_info", f"{raw.rpartition('/')[0]}/camera_info"]


def _calibration(info: Any, topic: str, name: str, pose: Pose, ahead: float) -> Calibration | None:
    rotation, position = pose
    rectified = "rect" in topic
    matrix = np.asarray(info.p if rectified else info.k, np.float64).reshape(3, -1)
    lens = () if rectified else tuple(np.asarray(info.d, np.float64).tolist())
    if not matrix[0, 0]:  # the message's own word for "not calibrated"
        return None
    if any(lens) and (info.distortion_model != "plumb_bob" or len(lens) not in (4, 5)):
        return None
    return calibrated(
        name,
        _FIX,
        width=int(info.width),
        height=int(info.height),
        fx=float(matrix[0, 0]),
        fy=float(matrix[1, 1]),
        cx=float(matrix[0, 2]),
        cy=float(matrix[1, 2]),
        rotation=rotation,
        position=position + np.array([ahead, 0.0, 0.0]),
        source=f"{name} and {_STATIC}; nominal: the road at the height of the pose's frame",
        distortion=(*lens, 0.0)[:5] if any(lens) else (),
    )


def _frames(bag: Any, types: Any) -> dict[str, tuple[str, Pose]]:
    """Frame -> its parent and its pose in it."""
    wanted = [each for each in bag.connections if each.topic == _STATIC and each.msgtype == _TF]
    frames: dict[str, tuple[str, Pose]] = {}
    for _, _, raw in islice(bag.messages(wanted), _MOST) if wanted else ():
        for each in types.deserialize_cdr(raw, _TF).transforms:
            turn, move = each.transform.rotation, each.transform.translation
            quaternion = np.array([[turn.w, turn.x, turn.y, turn.z]])
            length = np.linalg.norm(quaternion)
            if not abs(length - 1.0) < 0.1:  # NaN too
                continue
            pose = (
                rotation_from_quaternion(quaternion / length)[0],
                np.array([move.x, move.y, move.z], np.float64),
            )
            frames[_plain(each.child_frame_id)] = _plain(each.header.frame_id), pose
    return frames


def _within(frames: Mapping[str, tuple[str, Pose]], camera: str, base: str) -> Pose | None:
    """Pose of the camera in the base, or None where no tree holds both."""
    above, below = _chain(frames, _plain(base)), _chain(frames, _plain(camera))
    shared = next((frame for frame in below if frame in above), None)
    if shared is None:
        return None
    (turned, moved), (rotation, position) = above[shared], below[shared]
    return turned.T @ rotation, turned.T @ (position - moved)


def _chain(frames: Mapping[str, tuple[str, Pose]], frame: str) -> dict[str, Pose]:
    """Every frame above this one -> this one's pose in it, itself first."""
    pose: Pose = np.eye(3), np.zeros(3)
    chain = {frame: pose}
    while frame in frames and frames[frame][0] not in chain:
        parent, (rotation, position) = frames[frame]
        pose = rotation @ pose[0], rotation @ pose[1] + position
        chain[parent] = pose
        frame = parent
    return chain


def _plain(frame: str) -> str:
    return frame.removeprefix("/")
