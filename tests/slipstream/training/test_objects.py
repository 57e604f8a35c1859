"""Labelled road users as the flags of `critical_objects`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from drives.drive import AgentFrame, Drive
from drives.open import open_drive
from drives.windows import windows
from planners.published import CRITICAL_OBJECTS
from planners.training.data import Recorded
from slipstream.training.objects import objects_around
from slipstream.training.windows import record

SHARED = Path(__file__).resolve().parents[4] / "shared" / "drives"
DRIVES = Path(os.environ.get("SLIPSTREAM_DRIVES", SHARED))


@pytest.fixture(scope="module")
def drive() -> Drive:
    """Straight on along y, so that frames are not the world's, at 10 m/s."""
    times = np.arange(0, 12, 0.1)
    return Drive(
        name="straight",
        source="computed",
        licence="",
        synthetic=True,
        times=times,
        positions=np.stack([np.full(len(times), 3.0), 10 * times], -1),
        headings=np.full(len(times), np.pi / 2),
        speeds=np.full(len(times), 10.0),
        dataset="Argoverse 2",
    )


def flags(
    drive: Drive, kind: str, ahead: float, left: float, turned: float = 0.0, dataset: str = ""
) -> dict[str, int]:
    """Of the window at 5 s, with one agent at a place in its frame, in every label frame."""
    at = np.array([[3.0 - left, 50.0 + ahead, 0.5]])
    frame = AgentFrame(
        5.0, ("a",), (kind,), at, np.array([np.pi / 2 + turned]), np.array([[4.0, 2.0, 1.5]])
    )
    frames = tuple(replace(frame, time=float(t)) for t in np.arange(0, 12, 0.5))
    labelled = replace(drive, agents=frames, dataset=dataset or drive.dataset)
    chosen = [w for w in windows(labelled, 0.5) if abs(w.observation.time - 5.0) < 0.01]
    found = objects_around(labelled, chosen)
    assert found is not None
    return dict(zip(CRITICAL_OBJECTS, found[0].tolist(), strict=True))


def test_class_and_place_decide(drive: Drive) -> None:
    assert flags(drive, "PEDESTRIAN", 20, 3)["pedestrian"] == 1
    assert flags(drive, "PEDESTRIAN", 20, 3)["nearby_vehicle"] == 0
    assert flags(drive, "BUS", 20, -7)["nearby_vehicle"] == 1
    for ahead, left in ((-5, 0), (45, 0), (20, 9), (20, -9)):
        assert flags(drive, "PEDESTRIAN", ahead, left)["pedestrian"] == 0
    assert flags(drive, "BICYCLE", 20, 3)["cyclist"] == 0  # nobody rides it


def test_what_a_data_set_does_not_label_is_unknown(drive: Drive) -> None:
    found = flags(drive, "Car", 20, 3, dataset="Boreas")
    known = {name for name, flag in found.items() if flag >= 0}
    assert known == {"nearby_vehicle", "pedestrian", "cyclist", "conflicting_vehicle"}
    assert flags(drive, "vehicle.emergency.police", 9, 0, dataset="nuScenes")["emergency_vehicle"]


def test_a_vehicle_across_the_driven_path_is_a_conflict(drive: Drive) -> None:
    across = np.pi / 2
    assert flags(drive, "REGULAR_VEHICLE", 30, 1, across)["conflicting_vehicle"] == 1
    assert flags(drive, "REGULAR_VEHICLE", 30, 1, 0.1)["conflicting_vehicle"] == 0
    assert flags(drive, "REGULAR_VEHICLE", 30, 1, np.pi)["conflicting_vehicle"] == 0
    assert flags(drive, "REGULAR_VEHICLE", 30, 5, across)["conflicting_vehicle"] == 0
    assert flags(drive, "PEDESTRIAN", 30, 1, across)["conflicting_vehicle"] == 0


def test_without_labels_nothing_is_known(drive: Drive) -> None:
    assert objects_around(drive, list(windows(drive, 1.0))) is None
    frame = AgentFrame(
        1e3, ("a",), ("BUS",), np.zeros((1, 3)), np.zeros(1), np.ones((1, 3))
    )  # long after
    late = objects_around(replace(drive, agents=(frame,)), list(windows(drive, 1.0)))
    assert late is not None
    assert (late == -1).all()


@pytest.mark.parametrize(
    ("folder", "wanted"),
    [
        ("boreas/boreas-objects-v1", {"nearby_vehicle": 1, "animal": -1}),
        (
            "av2/7fab2350-7eaf-3b7e-a39d-6937a4c1bede",
            {"nearby_vehicle": 1, "weather_condition": -1},
        ),
        ("nuscenes/scene-0103", {"nearby_vehicle": 1, "cyclist": -1}),
    ],
)
def test_recorded_drives(folder: str, wanted: dict[str, int]) -> None:
    if not (DRIVES / folder.split("/")[0]).is_dir():
        pytest.skip(f"no {folder} in {DRIVES} (set SLIPSTREAM_DRIVES)")
    drive = open_drive(str(DRIVES / folder))
    found = objects_around(drive, [w for w in windows(drive, 1.0) if w.future is not None])
    assert found is not None
    for name, flag in wanted.items():
        assert flag in found[:, CRITICAL_OBJECTS.index(name)]


def test_drives_with_and_without_labels_are_joined() -> None:
    plain = record("synthetic", 5.0)
    assert plain.objects is None
    known = replace(plain, objects=np.ones((len(plain), 12), np.int8))
    joined = Recorded.join([plain, known])
    assert joined.objects is not None
    assert (joined.objects[: len(plain)] == -1).all()
    assert (joined[np.arange(len(plain), len(joined))].objects == 1).all()
    assert Recorded.join([plain, plain]).objects is None
