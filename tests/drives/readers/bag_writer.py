"""Small, valid ROS 2 bags, written by `rosbags` from a computed drive."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from drives.drive import Drive
from drives.readers.rosbag2 import _types

START_NS = 1_700_000_000_000_000_000
LATE_NS = 2_000_000  # from a message's stamp to the recorder's


class Bag:
    """Collects messages of any topic; `write` sorts them by the recorder's time."""

    def __init__(self) -> None:
        self.store = _types()
        self.rows: list[tuple[int, str, str, bytes]] = []

    def add(self, topic: str, kind: str, logged: int, message: Any) -> None:
        raw = bytes(self.store.serialize_cdr(message, kind))
        self.rows.append((logged, topic, kind, raw))

    def make(self, kind: str, **values: Any) -> Any:
        return self.store.types[kind](**values)

    def header(self, stamp: int) -> Any:
        time = self.make("builtin_interfaces/msg/Time", sec=stamp // 10**9, nanosec=stamp % 10**9)
        return self.make("std_msgs/msg/Header", stamp=time, frame_id="map")

    def pose(self, x: float, y: float, z: float, heading: float) -> Any:
        at = self.make("geometry_msgs/msg/Point", x=x, y=y, z=z)
        half = 0.5 * heading
        turn = self.make(
            "geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=np.sin(half), w=np.cos(half)
        )
        return self.make("geometry_msgs/msg/Pose", position=at, orientation=turn)

    def twist(self, speed: float) -> Any:
        vector = "geometry_msgs/msg/Vector3"
        linear = self.make(vector, x=speed, y=0.0, z=0.0)
        turning = self.make(vector, x=0.0, y=0.0, z=0.0)
        return self.make("geometry_msgs/msg/Twist", linear=linear, angular=turning)

    def write(self, path: Path, *, mcap: bool = True, publishers: int = 1) -> Path:
        """One bag; with several publishers, each topic's messages come from them in turn."""
        from rosbags.rosbag2 import StoragePlugin, Writer

        plugin = StoragePlugin.MCAP if mcap else StoragePlugin.SQLITE3
        with Writer(path, version=9, storage_plugin=plugin) as writer:
            connections: dict[tuple[str, int], Any] = {}
            for number, (logged, topic, kind, raw) in enumerate(sorted(self.rows)):
                key = topic, number % publishers
                if key not in connections:
                    qos = [_quality(key[1])] if publishers > 1 else []
                    connections[key] = writer.add_connection(
                        topic, kind, typestore=self.store, offered_qos_profiles=qos
                    )
                writer.write(connections[key], logged, raw)
        return path


def _quality(depth: int) -> Any:
    from rosbags import interfaces as ros

    never = ros.QosTime(0, 0)
    return ros.Qos(
        ros.QosHistory.KEEP_LAST,
        depth,
        ros.QosReliability.RELIABLE,
        ros.QosDurability.VOLATILE,
        never,
        never,
        ros.QosLiveliness.AUTOMATIC,
        never,
        False,
    )


def stamps(drive: Drive) -> np.ndarray:
    """[n] ns of the messages' own stamps."""
    return START_NS + np.round(drive.times * 1e9).astype(np.int64)


def add_odometry(
    bag: Bag, drive: Drive, topic: str = "/odom", *, twist: bool = True, stamped: bool = True
) -> None:
    zeros = np.zeros(36)
    rows = zip(stamps(drive).tolist(), drive.positions, drive.headings, drive.speeds, strict=True)
    for stamp, position, heading, speed in rows:
        pose = bag.pose(float(position[0]), float(position[1]), 0.0, float(heading))
        message = bag.make(
            "nav_msgs/msg/Odometry",
            header=bag.header(stamp if stamped else 0),
            child_frame_id="base_link",
            pose=bag.make("geometry_msgs/msg/PoseWithCovariance", pose=pose, covariance=zeros),
            twist=bag.make(
                "geometry_msgs/msg/TwistWithCovariance",
                twist=bag.twist(float(speed) if twist else 0.0),
                covariance=zeros,
            ),
        )
        bag.add(topic, "nav_msgs/msg/Odometry", stamp + LATE_NS, message)


def add_poses(bag: Bag, drive: Drive, topic: str = "/pose") -> None:
    for stamp, position, heading in zip(
        stamps(drive).tolist(), drive.positions, drive.headings, strict=True
    ):
        pose = bag.pose(float(position[0]), float(position[1]), 0.0, float(heading))
        kind = "geometry_msgs/msg/PoseStamped"
        bag.add(topic, kind, stamp + LATE_NS, bag.make(kind, header=bag.header(stamp), pose=pose))


def add_velocity_reports(bag: Bag, drive: Drive, topic: str = "/vehicle/status") -> None:
    kind = "autoware_vehicle_msgs/msg/VelocityReport"
    for stamp, speed in zip(stamps(drive).tolist(), drive.speeds.tolist(), strict=True):
        message = bag.make(
            kind,
            header=bag.header(stamp),
            longitudinal_velocity=speed,
            lateral_velocity=0.0,
            heading_rate=0.0,
        )
        bag.add(topic, kind, stamp + LATE_NS, message)


def add_words(bag: Bag, drive: Drive, words: list[str], topic: str = "/intent") -> None:
    for stamp, word in zip(stamps(drive).tolist(), words, strict=True):
        kind = "std_msgs/msg/String"
        bag.add(topic, kind, stamp + LATE_NS, bag.make(kind, data=word))


def add_images(bag: Bag, drive: Drive, size: int, topic: str = "/camera", every: int = 1) -> None:
    """CompressedImage messages of `size` random bytes: nothing here looks into them."""
    random = np.random.default_rng(1)
    kind = "sensor_msgs/msg/CompressedImage"
    for stamp in stamps(drive).tolist()[::every]:
        data = random.integers(0, 256, size, dtype=np.uint8)
        message = bag.make(kind, header=bag.header(stamp), format="jpeg", data=data)
        bag.add(topic, kind, stamp + LATE_NS, message)


def set_checksums(path: Path, *, wrong: int = -1) -> None:
    """Give every chunk of an uncompressed MCAP file its CRC, which `rosbags` leaves out.

    Args:
        wrong: number of a chunk that gets a wrong one.
    """
    data = bytearray(path.read_bytes())
    at, chunks = 8, 0
    while at < len(data) - 8:
        kind, size = data[at], struct.unpack_from("<Q", data, at + 1)[0]
        if kind == 6:
            body = at + 9
            name = struct.unpack_from("<I", data, body + 28)[0]
            begin = body + 32 + name
            length = struct.unpack_from("<Q", data, begin)[0]
            crc = zlib.crc32(data[begin + 8 : begin + 8 + length])
            struct.pack_into("<I", data, body + 24, crc ^ (chunks == wrong))
            chunks += 1
        at += 9 + size
    assert chunks > max(wrong, 0)
    path.write_bytes(data)


def write_streamed(path: Path, drive: Drive, gigabytes: float, image: int = 1 << 20) -> Path:
    """An MCAP bag of any size, written message by message: odometry, and one image over and over.

    Args:
        image: bytes of each image; as many stand behind each pose as the size asks for.
    """
    from rosbags.rosbag2 import StoragePlugin, Writer

    bag = Bag()
    add_odometry(bag, drive)
    add_images(bag, drive, image, every=len(drive.times))
    kinds = {topic: kind for _, topic, kind, _ in bag.rows}
    (picture,) = (raw for _, topic, _, raw in bag.rows if topic == "/camera")
    poses = sorted(row for row in bag.rows if row[1] == "/odom")
    share = round(gigabytes * 2**30 / image / len(poses))
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        into = {
            topic: writer.add_connection(topic, kind, typestore=bag.store)
            for topic, kind in kinds.items()
        }
        for logged, topic, _, raw in poses:
            writer.write(into[topic], logged, raw)
            for number in range(share):
                stamp = logged - LATE_NS + 1000 * number
                head = struct.pack("<iI", stamp // 10**9, stamp % 10**9)
                writer.write(into["/camera"], logged + number, picture[:4] + head + picture[12:])
    return path
