"""ROS 2 messages of what a replay holds, made by `rosbags` without ROS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.views import Picture

Floats = NDArray[np.float64]

_WIDTH = 0.08  # m, of a rollout's line
_LINE_STRIP, _ADD, _DELETE_ALL = 4, 0, 3  # of visualization_msgs/Marker


class RosMessages:
    """Makes messages of one type store; stamps are ns, positions m, in `map` unless said.

    Args:
        typesys: the module `rosbags.typesys`.
    """

    PATH = "nav_msgs/msg/Path"
    MARKERS = "visualization_msgs/msg/MarkerArray"
    ODOMETRY = "nav_msgs/msg/Odometry"
    TF = "tf2_msgs/msg/TFMessage"
    NUMBER = "std_msgs/msg/Float64"
    TEXT = "std_msgs/msg/String"
    IMAGE = "sensor_msgs/msg/CompressedImage"
    INFO = "sensor_msgs/msg/CameraInfo"

    def __init__(self, typesys: Any) -> None:
        self.store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)

    def path(self, stamp: int, stamps: Sequence[int], positions: Floats, headings: Floats) -> Any:
        """nav_msgs/Path of [n, 3] positions and [n] headings, each pose with its own stamp."""
        poses = [
            self._make(
                "geometry_msgs/msg/PoseStamped",
                header=self._header(each, "map"),
                pose=self._pose(position, self.turn(float(heading))),
            )
            for each, position, heading in zip(stamps, positions, headings, strict=True)
        ]
        return self._make(self.PATH, header=self._header(stamp, "map"), poses=poses)

    def lines(self, stamp: int, lines: Sequence[Floats], color: tuple[float, float, float]) -> Any:
        """MarkerArray: the lines before go, each of [n, 3] is drawn."""
        markers = [self._marker(stamp, 0, _DELETE_ALL, np.zeros((0, 3)), color)]
        for number, line in enumerate(lines):
            markers.append(self._marker(stamp, number, _ADD, line, color))
        return self._make(self.MARKERS, markers=markers)

    def odometry(self, stamp: int, position: Floats, heading: float, speed: float) -> Any:
        """Odometry of base_link in map; m/s along the heading."""
        zero = self._vector(0.0, 0.0, 0.0)
        twist = self._make(
            "geometry_msgs/msg/Twist", linear=self._vector(speed, 0.0, 0.0), angular=zero
        )
        unknown = np.zeros(36)
        return self._make(
            self.ODOMETRY,
            header=self._header(stamp, "map"),
            child_frame_id="base_link",
            pose=self._make(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=self._pose(position, self.turn(heading)),
                covariance=unknown,
            ),
            twist=self._make(
                "geometry_msgs/msg/TwistWithCovariance", twist=twist, covariance=unknown
            ),
        )

    def transform(self, stamp: int, parent: str, child: str, position: Floats, turn: Any) -> Any:
        """TransformStamped: the child's pose in the parent."""
        moved = self._make(
            "geometry_msgs/msg/Transform",
            translation=self._vector(*position.tolist()),
            rotation=turn,
        )
        return self._make(
            "geometry_msgs/msg/TransformStamped",
            header=self._header(stamp, parent),
            child_frame_id=child,
            transform=moved,
        )

    def transforms(self, transforms: list[Any]) -> Any:
        return self._make(self.TF, transforms=transforms)

    def number(self, value: float) -> Any:
        return self._make(self.NUMBER, data=float(value))

    def text(self, value: str) -> Any:
        return self._make(self.TEXT, data=value)

    def image(self, stamp: int, frame: str, picture: Picture) -> Any:
        data = np.frombuffer(picture.jpeg, np.uint8)
        header = self._header(stamp, frame)
        return self._make(self.IMAGE, header=header, format="jpeg", data=data)

    def info(self, stamp: int, frame: str, picture: Picture) -> Any:
        """CameraInfo of a calibrated picture, at the copy's size."""
        known = picture.camera.calibration
        assert known is not None
        across, down = picture.scale
        k = np.array(
            [
                [known.fx * across, 0.0, known.cx * across],
                [0.0, known.fy * down, known.cy * down],
                [0.0, 0.0, 1.0],
            ]
        )
        return self._make(
            self.INFO,
            header=self._header(stamp, frame),
            height=picture.height,
            width=picture.width,
            distortion_model="plumb_bob",
            d=np.array(known.distortion or (0.0,) * 5),
            k=k.ravel(),
            r=np.eye(3).ravel(),
            p=np.column_stack([k, np.zeros(3)]).ravel(),
            binning_x=0,
            binning_y=0,
            roi=self._make(
                "sensor_msgs/msg/RegionOfInterest",
                x_offset=0,
                y_offset=0,
                height=0,
                width=0,
                do_rectify=False,
            ),
        )

    def turn(self, heading: float) -> Any:
        """Quaternion of a turn about z, rad."""
        half = 0.5 * heading
        return self._quaternion(0.0, 0.0, float(np.sin(half)), float(np.cos(half)))

    def quaternion(self, rotation: Floats) -> Any:
        """Quaternion of [3, 3]: the eigenvector of Bar-Itzhack's matrix (JGCD 23, 2000)."""
        (a, b, c), (d, e, f), (g, h, i) = rotation
        matrix = np.array(
            [
                [a - e - i, b + d, c + g, h - f],
                [b + d, e - a - i, f + h, c - g],
                [c + g, f + h, i - a - e, d - b],
                [h - f, c - g, d - b, a + e + i],
            ]
        )
        x, y, z, w = np.linalg.eigh(matrix)[1][:, -1]
        return self._quaternion(float(x), float(y), float(z), float(w))

    def _marker(
        self,
        stamp: int,
        number: int,
        action: int,
        line: Floats,
        color: tuple[float, float, float],
    ) -> Any:
        red, green, blue = color
        nothing = self._make("builtin_interfaces/msg/Duration", sec=0, nanosec=0)
        points = [self._point(*point.tolist()) for point in line]
        shade = self._make("std_msgs/msg/ColorRGBA", r=red, g=green, b=blue, a=0.5)
        empty = np.zeros(0, np.uint8)
        values = {
            "header": self._header(stamp, "map"),
            "ns": "rollouts",
            "id": number,
            "type": _LINE_STRIP,
            "action": action,
            "pose": self._pose(np.zeros(3), self.turn(0.0)),
            "scale": self._vector(_WIDTH, 0.0, 0.0),
            "color": shade,
            "lifetime": nothing,
            "frame_locked": False,
            "points": points,
            "colors": [],
            "texture_resource": "",
            "texture": self._make(
                self.IMAGE, header=self._header(stamp, ""), format="", data=empty
            ),
            "uv_coordinates": [],
            "text": "",
            "mesh_resource": "",
            "mesh_file": self._make("visualization_msgs/msg/MeshFile", filename="", data=empty),
            "mesh_use_embedded_materials": False,
        }
        return self._make("visualization_msgs/msg/Marker", **values)

    def _pose(self, position: Floats, turn: Any) -> Any:
        at = self._point(*position.tolist())
        return self._make("geometry_msgs/msg/Pose", position=at, orientation=turn)

    def _header(self, stamp: int, frame: str) -> Any:
        second, rest = divmod(stamp, 10**9)
        time = self._make("builtin_interfaces/msg/Time", sec=second, nanosec=rest)
        return self._make("std_msgs/msg/Header", stamp=time, frame_id=frame)

    def _point(self, x: float, y: float, z: float) -> Any:
        return self._make("geometry_msgs/msg/Point", x=x, y=y, z=z)

    def _vector(self, x: float, y: float, z: float) -> Any:
        return self._make("geometry_msgs/msg/Vector3", x=x, y=y, z=z)

    def _quaternion(self, x: float, y: float, z: float, w: float) -> Any:
        return self._make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)

    def _make(self, kind: str, **values: Any) -> Any:
        return self.store.types[kind](**values)
