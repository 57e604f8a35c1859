"""Which topics of a ROS 2 bag a drive is read from: by message type, or as the user says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drives.readers.ros_messages import GENERAL, IMAGE, INTENT, INTENT_NAMES, POSE, ROLES, SPEED
from drives.readers.ros_messages import VALUES as TYPES
from runtime.errors import SlipstreamError

_ODOMETRY = "nav_msgs/msg/Odometry"  # carries its own speed


def choose(bag: Path, connections: Iterable[Any], topics: dict[str, str]) -> dict[str, list[Any]]:
    """The connections for each role.

    Args:
        connections: of the bag, each with `topic` and `msgtype`.
        topics: role -> topic, as the user says.

    Returns:
        Role -> connections: exactly one pose, at most one speed and one intent, every image.

    Raises:
        SlipstreamError: an unknown role or topic, a type that does not fit, no pose, or several.
    """
    there: dict[str, Any] = {}
    for each in connections:
        there.setdefault(each.topic, each)
    for role, topic in topics.items():
        _check_given(bag, there, role, topic)
    chosen = {role: _of_role(bag, there, role, topics) for role in ROLES}
    if not chosen[POSE]:
        raise SlipstreamError(
            f"{bag} has no topic with poses",
            expected="one of " + ", ".join(TYPES[POSE]),
            found=_listed(there.values()) or "no topics",
            fix="record the localisation, e.g. `ros2 bag record /odom`",
        )
    if chosen[POSE][0].msgtype == _ODOMETRY and SPEED not in topics:
        chosen[SPEED] = []
    return chosen


def _check_given(bag: Path, there: dict[str, Any], role: str, topic: str) -> None:
    if role not in ROLES:
        raise SlipstreamError(
            f"{role} is not what a topic can be for",
            expected=", ".join(ROLES),
            found=role,
            fix="say for example --topic pose=/odom",
        )
    found = there.get(topic)
    if found is None or found.msgtype not in TYPES[role]:
        fitting = [each for each in there.values() if each.msgtype in TYPES[role]]
        raise SlipstreamError(
            f"{bag} can't give the {role} from {topic}",
            expected="a topic of type " + ", ".join(TYPES[role]),
            found="no such topic" if found is None else f"type {found.msgtype}",
            fix=f"name one of: {_listed(fitting)}" if fitting else "record such a topic",
        )


def _of_role(bag: Path, there: dict[str, Any], role: str, topics: dict[str, str]) -> list[Any]:
    if role in topics:
        return [there[topics[role]]]
    fitting = [each for each in there.values() if each.msgtype in TYPES[role]]
    if role == IMAGE:
        return fitting
    if role == INTENT:
        fitting = [each for each in fitting if _says_intent(each)]
    for kind in TYPES[role]:
        of_kind = [each for each in fitting if each.msgtype == kind]
        if len(of_kind) > 1:
            raise SlipstreamError(
                f"{bag} has several topics that could give the {role}",
                expected=f"one topic of type {kind}",
                found=_listed(of_kind),
                fix=f"say which: --topic {role}={of_kind[0].topic}",
            )
        if of_kind:
            return of_kind
    return []


def _says_intent(connection: Any) -> bool:
    last = connection.topic.rstrip("/").rpartition("/")[2]
    return connection.msgtype not in GENERAL or last in INTENT_NAMES


def _listed(connections: Iterable[Any]) -> str:
    return ", ".join(sorted(f"{each.topic} ({each.msgtype})" for each in connections))[:600]
