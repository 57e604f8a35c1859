"""Small, valid openpilot logs, written from a computed drive."""

from __future__ import annotations

import bz2
from pathlib import Path
from typing import Any

import numpy as np

from drives.drive import Drive
from drives.readers.comma_events import _schema

START = 38.2  # s on the recorder's clock
CAMERA_STEP = 5  # samples of a 20 Hz drive: 4 Hz


def log_bytes(
    drive: Drive,
    *,
    yaw_rates: np.ndarray | None = None,
    yaw_from: str = "cameraOdometry",
    desires: np.ndarray | None = None,
    pictures: int = 0,
    silent: tuple[float, float] = (0.0, 0.0),
) -> bytes:
    """Car state at every sample, yaw rates at every fifth, one event of an unknown kind each.

    Args:
        yaw_rates: [n] rad/s, left positive.
        yaw_from: `carState`, `cameraOdometry`, `livePose`, or `` for none.
        desires: [n], numbered as openpilot does; -1 for no event.
        pictures: encode indices at 20 Hz.
        silent: s of the drive without yaw rates of a camera.
    """
    rates = np.zeros(len(drive.times)) if yaw_rates is None else yaw_rates
    rates, speeds = rates.tolist(), drive.speeds.tolist()  # Cap'n Proto takes no NumPy numbers
    rows: list[tuple[float, str, dict[str, Any] | None]] = []
    for i, time in enumerate((drive.times + START).tolist()):
        state = {"vEgo": speeds[i], "yawRate": rates[i] if yaw_from == "carState" else 0.0}
        rows.append((time, "carState", state))
        if desires is not None and desires[i] >= 0:
            rows.append((time, "lateralPlan", {"desire": int(desires[i])}))
        if i % CAMERA_STEP == 0 and not silent[0] < time - START < silent[1]:
            rows.append((time + 1e-3, "gap75", None))
            if yaw_from == "cameraOdometry":
                rows.append((time + 2e-3, yaw_from, {"rot": [0.0, 0.0, -rates[i]]}))
            elif yaw_from == "livePose":
                turn = {"z": -rates[i], "valid": True}
                rows.append((time + 2e-3, yaw_from, {"angularVelocityDevice": turn}))
    for number in range(pictures):
        at = START + 0.05 * number
        index = {"segmentId": number, "timestampEof": round((at + 0.02) * 1e9)}
        rows.append((at + 0.03, "qRoadEncodeIdx", index))
    return b"".join(event(*row) for row in sorted(rows, key=lambda row: row[0]))


def event(time: float, kind: str, values: dict[str, Any] | None) -> bytes:
    """One message; values None for a member without any."""
    made = _schema().Event.new_message(logMonoTime=round(time * 1e9), **{kind: values})
    return bytes(made.to_bytes())


def write_log(folder: Path, data: bytes, name: str = "qlog.bz2") -> Path:
    """Compressed as the name says."""
    folder.mkdir(parents=True, exist_ok=True)
    if name.endswith(".bz2"):
        data = bz2.compress(data)
    elif name.endswith(".zst"):
        from backports import zstd

        data = zstd.compress(data)
    (folder / name).write_bytes(data)
    return folder
