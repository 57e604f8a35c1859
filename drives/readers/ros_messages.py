"""What a drive takes from ROS 2 messages, by message type."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from planners.observation import Intent

POSE, SPEED, INTENT, IMAGE = "pose", "speed", "intent", "image"
ROLES = (POSE, SPEED, INTENT, IMAGE)

_NAN = float("nan")
_AUTOWARE = {
    f"{package}/msg/{name}": definition
    for package in ("autoware_vehicle_msgs", "autoware_auto_vehicle_msgs")
    for name, definition in (
        (
            "VelocityReport",
            "std_msgs/Header header\nfloat32 longitudinal_velocity\nfloat32 lateral_velocity\n"
            "float32 heading_rate\n",
        ),
        ("TurnIndicatorsReport", "builtin_interfaces/Time stamp\nuint8 report\n"),
    )
}
DEFINITIONS = _AUTOWARE  # of types that come with no ROS release
_INDICATORS = {2: Intent.LEFT, 3: Intent.RIGHT}

Row = tuple[float, ...]


def _odometry(message: Any) -> Row:
    return (*_pose(message.pose.pose), float(message.twist.twist.linear.x))


def _pose_with_covariance(message: Any) -> Row:
    return (*_pose(message.pose.pose), _NAN)


def _pose_stamped(message: Any) -> Row:
    return (*_pose(message.pose), _NAN)


def _pose(pose: Any) -> Row:
    at, turn = pose.position, pose.orientation
    return at.x, at.y, at.z, turn.w, turn.x, turn.y, turn.z


def _twist(message: Any) -> Row:
    return (float(message.twist.linear.x),)


def _twist_with_covariance(message: Any) -> Row:
    return (float(message.twist.twist.linear.x),)


def _velocity_report(message: Any) -> Row:
    return (float(message.longitudinal_velocity),)


def _words(message: Any) -> Row:
    text = message.data.lower()
    sides = {"left": Intent.LEFT, "right": Intent.RIGHT, "straight": Intent.STRAIGHT}
    named = [intent for word, intent in sides.items() if word in text]
    return (float(named[0] if len(named) == 1 else Intent.UNKNOWN),)


def _number(message: Any) -> Row:
    number = int(message.data)
    return (float(number if number in tuple(Intent) else Intent.UNKNOWN),)


def _indicators(message: Any) -> Row:
    return (float(_INDICATORS.get(message.report, Intent.UNKNOWN)),)


# Role -> message type -> its values; a type that stands earlier is taken before a later one.
# Poses: x, y, z (m), quaternion w, x, y, z, speed along the heading (m/s, NaN if not in it).
VALUES: dict[str, dict[str, Callable[[Any], Row]]] = {
    POSE: {
        "nav_msgs/msg/Odometry": _odometry,
        "geometry_msgs/msg/PoseWithCovarianceStamped": _pose_with_covariance,
        "geometry_msgs/msg/PoseStamped": _pose_stamped,
    },
    SPEED: {
        **{name: _velocity_report for name in _AUTOWARE if name.endswith("VelocityReport")},
        "geometry_msgs/msg/TwistWithCovarianceStamped": _twist_with_covariance,
        "geometry_msgs/msg/TwistStamped": _twist,
    },
    INTENT: {
        **{name: _indicators for name in _AUTOWARE if name.endswith("TurnIndicatorsReport")},
        "std_msgs/msg/String": _words,
        "std_msgs/msg/UInt8": _number,
        "std_msgs/msg/Int32": _number,
    },
    IMAGE: {
        "sensor_msgs/msg/CompressedImage": lambda _: (),
        "sensor_msgs/msg/Image": lambda _: (),
    },
}
GENERAL = frozenset({"std_msgs/msg/String", "std_msgs/msg/UInt8", "std_msgs/msg/Int32"})
INTENT_NAMES = ("intent", "command", "navigation_command")  # last part of a topic


def stamp(raw: bytes) -> int:
    """ns of the time that a CDR message begins with, be it a header's or a bare stamp.

    Raises:
        struct.error: the message is shorter.
    """
    order = "<" if raw[1] & 1 else ">"
    seconds, nanoseconds = struct.unpack_from(order + "iI", raw, 4)
    return int(seconds * 10**9 + nanoseconds)


def is_stamped(kind: str) -> bool:
    """Does this message type begin with a time?"""
    return kind not in GENERAL
