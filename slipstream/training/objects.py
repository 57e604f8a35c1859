"""Which critical objects are around at an instant, from a drive's labelled road users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from drives.drive import AgentFrame, Drive
from drives.frames import to_ego
from drives.windows import Window
from planners.published import CRITICAL_OBJECTS

Flags = NDArray[np.int8]
Floats = NDArray[np.float64]

UNKNOWN, NO, YES = -1, 0, 1
AHEAD = 40.0  # m of the corridor in front of the rear axle ...
ASIDE = 8.0  # ... and to either side of it
NEAR = 2.5  # m from a vehicle's centre to the driven path; nearer is a conflict ...
SOON = 4.0  # ... within these seconds ...
ACROSS = np.deg2rad(30)  # ... if it goes this much across, not with the ego or against it
_FRESH = 0.3  # s between an instant and the labels that tell about it

# data set -> flag -> what its classes begin with. A flag that is not named stays unknown: the data
# set has no class for it, or labels only some of them.
_VEHICLES = ("REGULAR_VEHICLE", "LARGE_VEHICLE", "BUS", "BOX_TRUCK", "TRUCK", "VEHICULAR_TRAILER")
CLASSES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Boreas": {
        "nearby_vehicle": ("Car",),
        "pedestrian": ("Pedestrian",),
        "cyclist": ("Cyclist",),
    },
    "Argoverse 2": {
        "nearby_vehicle": (*_VEHICLES, "SCHOOL_BUS", "ARTICULATED_BUS"),
        "pedestrian": ("PEDESTRIAN", "STROLLER", "WHEELCHAIR", "OFFICIAL_SIGNALER"),
        "cyclist": ("BICYCLIST", "MOTORCYCLIST", "WHEELED_RIDER"),
        "construction": ("CONSTRUCTION_", "MESSAGE_BOARD_TRAILER"),
        "animal": ("ANIMAL", "DOG"),
        "special_vehicle": ("SCHOOL_BUS", "RAILED_VEHICLE"),
    },
    "nuScenes": {
        "nearby_vehicle": ("vehicle.car", "vehicle.bus", "vehicle.truck", "vehicle.trailer"),
        "pedestrian": ("human.pedestrian",),
        "construction": ("vehicle.construction", "movable_object.trafficcone"),
        "road_hazard": ("movable_object.debris",),
        "emergency_vehicle": ("vehicle.emergency",),
        "animal": ("animal",),
    },
}


def objects_around(drive: Drive, windows: Sequence[Window]) -> Flags | None:
    """[M, 12] of `planners.published.CRITICAL_OBJECTS`: 1 yes, 0 no, -1 unknown.

    None for a drive without labels, or with classes that no table is known for.
    """
    classes = CLASSES.get(drive.dataset)
    if not drive.agents or classes is None:
        return None
    times = np.array([frame.time for frame in drive.agents])
    return np.stack([_flags(drive.agents, times, window, classes) for window in windows])


def _flags(
    agents: Sequence[AgentFrame],
    times: Floats,
    window: Window,
    classes: Mapping[str, tuple[str, ...]],
) -> Flags:
    flags = np.full(len(CRITICAL_OBJECTS), UNKNOWN, np.int8)
    now = window.observation.time
    nearest = int(np.abs(times - now).argmin())
    if abs(times[nearest] - now) > _FRESH:
        return flags
    frame = agents[nearest]
    places = _in_ego(frame, window)
    inside = (places[:, 0] > 0) & (places[:, 0] <= AHEAD) & (np.abs(places[:, 1]) <= ASIDE)
    for name, prefixes in classes.items():
        flags[CRITICAL_OBJECTS.index(name)] = bool((_are(frame, prefixes) & inside).any())
    coming = agents[nearest : int(np.searchsorted(times, now + SOON, side="right"))]
    if window.future is not None and coming:
        vehicles = classes["nearby_vehicle"]
        crossed = any(_crosses(frame, window, vehicles) for frame in coming)
        flags[CRITICAL_OBJECTS.index("conflicting_vehicle")] = crossed
    return flags


def _crosses(frame: AgentFrame, window: Window, vehicles: tuple[str, ...]) -> bool:
    """Whether a vehicle stands across the path that was driven, as near as a conflict."""
    assert window.future is not None
    path = np.concatenate([np.zeros((1, 2)), window.future])
    places = _in_ego(frame, window)
    distances = np.linalg.norm(places[:, None] - path, axis=-1)
    steps = np.diff(path, axis=0, append=path[-1:])
    steps[-1] = steps[-2]
    courses = np.arctan2(steps[:, 1], steps[:, 0])[distances.argmin(1)]
    across = np.abs(np.sin(frame.headings - window.pose[2] - courses)) > np.sin(ACROSS)
    found = _are(frame, vehicles) & across & (distances.min(1) < NEAR)
    return bool(found.any())


def _are(frame: AgentFrame, prefixes: tuple[str, ...]) -> NDArray[np.bool_]:
    """[k] which of the agents are of a class that begins so."""
    return np.array([kind.startswith(prefixes) for kind in frame.kinds], bool)


def _in_ego(frame: AgentFrame, window: Window) -> Floats:
    """[k, 2] m, the agents in the window's ego frame."""
    x, y, heading = window.pose
    positions = frame.positions[None, :, :2]
    return np.asarray(to_ego(positions, np.array([[x, y]]), np.array([heading]))[0])
