"""Segments of comma devices: an openpilot log (qlog or rlog) and the camera's video.

The path is dead reckoned from the wheels' speed and a yaw rate; what the device's own localiser
says is not used, since it takes most of a minute to settle.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences, check_times
from drives.motion import linear
from drives.readers.comma_camera import road_camera
from drives.readers.comma_events import events
from drives.readers.poses import check_speeds
from planners.observation import Intent
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "not stated in the log"
_LOG = re.compile(r"(?:.*(?:--|_))?[rq]log(?:\.bz2|\.zst)?")
_CAMERAS = {  # file -> camera, events that say when each picture was taken, the best first
    "qcamera.ts": ("road (qcamera)", ("qRoadEncodeIdx", "roadEncodeIdx")),
    "fcamera.hevc": ("road (fcamera)", ("roadEncodeIdx",)),
}
# openpilot's desires, in its order: none, turns, lane changes, keep left or right at a fork
_INTENTS = (Intent.UNKNOWN, *3 * (Intent.LEFT, Intent.RIGHT))
_MOST_WAIT = 0.6  # s between yaw rates; camera odometry comes at 4 Hz in a qlog
_INTENT_HOLDS = 1.0  # s


def is_comma_log(path: Path) -> bool:
    """Is this a qlog or rlog, or the folder of a segment that holds one?"""
    if path.is_file():
        return _LOG.fullmatch(path.name) is not None
    return path.is_dir() and _log_of(path) is not None


def read_comma_log(path: Path, *, name: str | None = None) -> Drive:
    """Read one segment (a minute).

    Speed is `carState.vEgo`, taken along the heading at the rear axle. The yaw rate is
    `carState.yawRate`; many cars leave it zero, then it is the camera odometry's (device frame, z
    down), and without that the localiser's. Between samples it runs linearly, so a heading knows
    up to one yaw rate ahead (0.25 s in a qlog). Desires become intents; where none is known for
    1 s, and for desire `none`, the intent is unknown.

    Args:
        path: the log, or its folder (an rlog, which holds every event, before a qlog).
        name: by default comma-<folder>.

    Raises:
        SlipstreamError: no log, a damaged one, one without car state or without any yaw rate, or
            bad time stamps.
    """
    log = path if path.is_file() else _log_of(path)
    if log is None:
        raise SlipstreamError(
            f"{path} holds no openpilot log",
            expected="qlog or rlog in it, plain or with .bz2 or .zst behind",
            found="neither",
            fix="name the folder of one segment",
        )
    columns = _columns(log)
    table = np.stack(_rows(log, columns, "carState", 3))
    times, speeds, car_rates = table[:, np.isfinite(table).all(axis=0)]
    check_times(times, f"carState of {log}")
    check_speeds(log, speeds, "take the segment's other log")
    rate_times, rates, origin, quirks = _yaw_rates(log, columns, times, car_rates)
    if lost := table.shape[1] - len(times):
        quirks.append(f"car states without a speed or a yaw rate: {lost}, left out")
    rate = linear(rate_times, rates, times)
    headings, positions = _dead_reckoned(times, speeds, rate)
    unknown = _far_from(rate_times, times)
    positions[unknown] = np.nan
    headings[unknown] = np.nan
    folder = log.resolve().parent
    return Drive(
        name=name or (folder.name if folder.name.startswith("comma") else f"comma-{folder.name}"),
        source=f"openpilot log {folder.name}/{log.name}: speeds from CAN, yaw rates from {origin}, "
        "positions dead reckoned at the rear axle",
        licence=LICENCE,
        synthetic=False,
        times=times - times[0],
        positions=positions,
        headings=headings,
        speeds=speeds,
        clock_start=float(times[0]),
        intents=_intents(columns, times),
        images=_images(log.parent, columns, times[0]),
        dataset="openpilot",
        recording=folder.name,
        warnings=tuple(quirks),
    )


def _log_of(folder: Path) -> Path | None:
    try:
        logs = [file for file in folder.iterdir() if _LOG.fullmatch(file.name) and file.is_file()]
    except OSError:
        return None
    full = [file for file in logs if "rlog" in file.name]  # every event; a qlog holds some
    return min(full or logs, default=None)


def _columns(log: Path) -> dict[str, list[tuple[float, ...]]]:
    """Event -> its rows, the recorder's time (s) first."""
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for kind, time, values in events(log, _ROWS):
        rows[kind].append((time, *values))
    return rows


def _car_state(event: Any) -> tuple[float, ...]:
    return event.vEgo, event.yawRate


def _camera_odometry(event: Any) -> tuple[float, ...]:
    turn = event.rot
    return (-turn[2] if len(turn) == 3 else np.nan,)


def _live_pose(event: Any) -> tuple[float, ...]:
    measured = event.angularVelocityDevice
    return (-measured.z if measured.valid else np.nan,)


def _lateral_plan(event: Any) -> tuple[float, ...]:
    return (float(event.desire),)


def _live_calibration(event: Any) -> tuple[float, ...]:
    angles = [float(each) for each in event.rpyCalib] if len(event.rpyCalib) == 3 else [np.nan] * 3
    height = float(event.height[0]) if len(event.height) == 1 else np.nan
    return (float(max(event.calStatus, event.oldStatus)), *angles, height)


def _encode_index(event: Any) -> tuple[float, ...]:
    return float(event.segmentId), event.timestampEof * 1e-9


_ROWS = {
    "carState": _car_state,
    "cameraOdometry": _camera_odometry,
    "livePose": _live_pose,
    "lateralPlan": _lateral_plan,
    "liveCalibration": _live_calibration,
    "roadEncodeIdx": _encode_index,
    "qRoadEncodeIdx": _encode_index,
}


def _rows(log: Path, columns: dict[str, Any], kind: str, width: int) -> tuple[Floats, ...]:
    table = np.array(columns.get(kind, []), dtype=np.float64).reshape(-1, width)
    if len(table) < 2:
        raise SlipstreamError(
            f"{log} has no {kind}",
            expected="at least 2 such events",
            found=f"{len(table)}",
            fix="take a log that was recorded while driving",
        )
    check_times(table[:, 0], f"{kind} of {log}")
    return tuple(table.T)


def _yaw_rates(
    log: Path, columns: dict[str, Any], times: Floats, car: Floats
) -> tuple[Floats, Floats, str, list[str]]:
    """Times, rad/s (left positive), where they come from, and the quirks met."""
    if np.any(car != 0.0):
        return times, car, "CAN", []
    for kind in ("cameraOdometry", "livePose"):
        if len(columns.get(kind, [])) < 2:
            continue
        at, rates = _rows(log, columns, kind, 2)
        known = np.isfinite(rates)
        if known.sum() >= 2:
            quirk = f"the yaw rate of the CAN log is all zero; {kind} is taken instead"
            return at[known], rates[known], kind, [quirk]
    raise SlipstreamError(
        f"{log} says nothing of how the vehicle turns",
        expected="carState.yawRate, cameraOdometry or livePose",
        found="a yaw rate that is all zero, and neither of the others",
        fix="take the segment's rlog",
    )


def _dead_reckoned(times: Floats, speeds: Floats, rates: Floats) -> tuple[Floats, Floats]:
    """Headings [n] and positions [n, 2] from 0, by the trapezoidal rule and mid-step headings."""
    step = np.diff(times)
    turned = 0.5 * (rates[1:] + rates[:-1]) * step
    headings = np.concatenate([[0.0], np.cumsum(turned)])
    middle = headings[:-1] + 0.5 * turned
    moved = 0.5 * (speeds[1:] + speeds[:-1]) * step
    positions = np.zeros((len(times), 2))
    positions[1:, 0] = np.cumsum(moved * np.cos(middle))
    positions[1:, 1] = np.cumsum(moved * np.sin(middle))
    return headings, positions


def _far_from(known: Floats, times: Floats) -> NDArray[np.bool_]:
    """[n] True at times in a hole of `known`, or further than that outside of it."""
    above = np.clip(np.searchsorted(known, times), 1, len(known) - 1)
    before, behind = known[above - 1], known[above]
    inside = (before <= times) & (times <= behind)
    away = np.maximum(before - times, times - behind)
    exact = (times == before) | (times == behind)
    hole = inside & ~exact & (behind - before > _MOST_WAIT)
    return np.asarray(hole | (~inside & (away > _MOST_WAIT)))


def _intents(columns: dict[str, Any], times: Floats) -> NDArray[np.int64] | None:
    plans = np.array(columns.get("lateralPlan", []), dtype=np.float64).reshape(-1, 2)
    if not len(plans):
        return None
    plans = plans[np.argsort(plans[:, 0], kind="stable")]
    table = np.array(_INTENTS, dtype=np.int64)
    last = np.searchsorted(plans[:, 0], times, side="right") - 1
    desire = plans[np.maximum(last, 0), 1].astype(np.int64)
    fresh = (last >= 0) & (times - plans[np.maximum(last, 0), 0] <= _INTENT_HOLDS)
    return np.where(fresh & (desire < len(table)), table[np.minimum(desire, len(table) - 1)], 0)


def _images(
    folder: Path, columns: dict[str, Any], start: float
) -> tuple[ImageReferences, ...] | None:
    """Pictures of the videos beside the log; a picture counts from the end of its exposure."""
    found = []
    for file, (camera, kinds) in _CAMERAS.items():
        kind = next((kind for kind in kinds if columns.get(kind)), None)
        if kind is None or not (folder / file).is_file():
            continue
        rows = np.array(columns[kind], dtype=np.float64)
        rows = rows[np.argsort(rows[:, 1], kind="stable")]
        at = np.where(rows[:, 2] > 0.0, rows[:, 2], rows[:, 0]) - start
        paths = tuple(f"{folder / file}#frame={int(number)}" for number in rows[:, 1])
        calibration = road_camera(folder / file, columns.get("liveCalibration", []))
        found.append(ImageReferences(camera, at, paths, calibration))
    return tuple(found) or None
