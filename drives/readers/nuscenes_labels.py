"""The labelled road users of nuScenes scenes, 2 Hz, in the data set's global frame."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame
from drives.frames import rotation_from_quaternion
from drives.readers.json_index import records_with
from drives.readers.json_records import records
from drives.readers.poses import check_positions, check_quaternions
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

FIX = "unpack the data set's metadata archive again"

_MICROSECOND = 1e-6
_FORWARD = np.array([1.0, 0.0, 0.0])


def read_labels(
    tables: Path, samples: dict[str, int], start: int, origin: Floats
) -> tuple[AgentFrame, ...] | None:
    """Boxes at each sample of a scene, or None where there is no table of them (the test split).

    Args:
        tables: folder of the tables.
        samples: token -> microseconds, of the scene.
        start: microseconds, the clock at the drive's time 0.
        origin: [3] m, global position of the drive's origin.

    Raises:
        SlipstreamError: a table that is missing, damaged or refers to records that are not there.
    """
    path = tables / "sample_annotation.json"
    if not path.is_file():
        return None
    boxes: dict[str, list[tuple[str, list[float]]]] = {}
    for record in records_with(path, "sample_token", samples, FIX):
        values = record.numbers("translation", 3) + record.numbers("size", 3)
        values += record.numbers("rotation", 4)
        if not all(map(math.isfinite, values)):
            raise record.bad("finite numbers", values)
        box = record.text("instance_token"), values
        boxes.setdefault(record.text("sample_token"), []).append(box)
    kinds = _kinds(tables, {instance for each in boxes.values() for instance, _ in each})
    frames = []
    for sample, stamp in sorted(samples.items(), key=lambda item: item[1]):
        given = boxes.get(sample, [])
        rows = np.array([values for _, values in given]).reshape(-1, 10)
        check_positions(path, rows[:, :6], FIX)
        check_quaternions(path, rows[:, 6:], FIX)
        forward = rotation_from_quaternion(rows[:, 6:]) @ _FORWARD
        frames.append(
            AgentFrame(
                time=(stamp - start) * _MICROSECOND,
                ids=tuple(instance for instance, _ in given),
                kinds=tuple(kinds[instance] for instance, _ in given),
                positions=rows[:, :3] - origin,
                headings=np.arctan2(forward[:, 1], forward[:, 0]),
                sizes=rows[:, [4, 3, 5]],  # stored as width, length, height
            )
        )
    return tuple(frames)


def _kinds(tables: Path, instances: set[str]) -> dict[str, str]:
    """Instance -> category, e.g. vehicle.car."""
    names = {
        record.text("token"): record.text("name")
        for record in records(tables / "category.json", FIX)
    }
    kinds = {}
    for record in records_with(tables / "instance.json", "token", instances, FIX):
        category = record.text("category_token")
        if category not in names:
            raise record.bad("a category of the table", category)
        kinds[record.text("token")] = names[category]
    if lost := instances - kinds.keys():
        raise SlipstreamError(
            f"{tables / 'instance.json'} lacks instances of this scene",
            expected=f"{len(instances)} instances",
            found=f"{len(lost)} missing, such as {min(lost)[:40]}",
            fix=FIX,
        )
    return kinds
