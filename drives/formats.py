"""The formats that a drive can be read from, and which one a path holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from drives.drive import Drive
from drives.readers.argoverse2 import is_argoverse2, read_argoverse2
from drives.readers.boreas import is_boreas, read_boreas
from drives.readers.comma2k19 import is_comma2k19, read_comma2k19
from drives.readers.comma_log import is_comma_log, read_comma_log
from drives.readers.kitti import read_kitti
from drives.readers.kitti_raw import is_kitti_raw, read_kitti_raw
from drives.readers.nuscenes import check_scene, is_nuscenes, nuscenes_scenes, read_nuscenes
from drives.readers.plain import is_plain, read_plain
from drives.readers.rosbag2 import is_rosbag2, read_rosbag2
from drives.readers.text import first_line
from drives.readers.wod_e2e import check_clip, is_wod_e2e, read_wod_e2e, wod_e2e_clips

POSE_NUMBERS = 12  # numbers in a line of KITTI odometry


@dataclass(frozen=True)
class Format:
    """A format of recordings.

    Attributes:
        name: short name.
        path: what a user names: which file or folder, and how one drive of several.
        what: what is read from it.
        recognises: does this path hold the format? Looks at names, hardly into files.
        read: the drive at that path.
        several: names of the drives in a place that may hold several.
        check: of such a format, insist that a path names one of them; only names are read.
    """

    name: str
    path: str
    what: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path], Drive]
    several: Callable[[Path], tuple[str, ...]] | None = None
    check: Callable[[Path], None] | None = None


def _is_kitti(path: Path) -> bool:
    """A .txt file, or any other whose first line is twelve numbers."""
    if not path.is_file():
        return False
    try:
        fields = first_line(path).split()
        return path.suffix == ".txt" or (
            len(fields) == POSE_NUMBERS and bool([*map(float, fields)])
        )
    except (OSError, ValueError):
        return False


# Looked through in this order: those that a file or folder of their own tells come first.
FORMATS = (
    Format(
        "boreas",
        "a run's folder (with applanix/)",
        "poses of camera or lidar, velocities, labelled road users",
        is_boreas,
        read_boreas,
    ),
    Format(
        "comma2k19",
        "a segment's folder (with global_pose/)",
        "fused poses and velocities",
        is_comma2k19,
        read_comma2k19,
    ),
    Format(
        "openpilot",
        "a qlog or rlog (plain, .bz2, .zst), or the folder of its segment",
        "CAN speed and yaw rate, dead reckoned; desires as intents; video frames",
        is_comma_log,
        read_comma_log,
    ),
    Format(
        "argoverse2",
        "a sensor log's folder (with city_SE3_egovehicle.feather)",
        "poses, labelled road users, images",
        is_argoverse2,
        read_argoverse2,
    ),
    Format(
        "kitti-raw",
        "a drive's folder (with oxts/)",
        "GPS/IMU poses and velocities, images",
        is_kitti_raw,
        read_kitti_raw,
    ),
    Format(
        "rosbag2",
        "an .mcap or .db3 file, or a bag's folder; other topics: BAG#pose=/odom,intent=/route",
        "odometry or poses, speeds, intents, images",
        is_rosbag2,
        read_rosbag2,
    ),
    Format(
        "plain",
        "a .csv or .parquet file with a .json file of the same name",
        "slipstream's own format, for everything else",
        is_plain,
        read_plain,
    ),
    Format(
        "nuscenes",
        "ROOT/SCENE, the scene by its name",
        "poses, labelled road users, images",
        is_nuscenes,
        read_nuscenes,
        nuscenes_scenes,
        check_scene,
    ),
    Format(
        "wod-e2e",
        "a shard or a folder of shards, and /CLIP behind it",
        "states, intents, rated trajectories, images",
        is_wod_e2e,
        read_wod_e2e,
        wod_e2e_clips,
        check_clip,
    ),
    Format(
        "kitti-odometry",
        "a file of poses, twelve numbers a line",
        "camera poses; speeds from them",
        _is_kitti,
        read_kitti,
    ),
)


def recognise(path: Path) -> Format | None:
    """The format that a path holds, or None; a missing file is no clip or scene of its folder."""
    if path.suffix and not path.exists():
        return None
    return next((each for each in FORMATS if each.recognises(path)), None)
