"""slipstream's own format: a table of poses (Parquet or CSV) and a JSON file that says what it is.

docs/drives.md describes it. What no other reader fits becomes a drive with a few lines of code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from drives.drive import Drive, ImageReferences, check_times
from drives.frames import rear_axle
from drives.readers.plain_camera import Camera, camera_of
from drives.readers.plain_table import IMAGE, read_columns, write_columns
from drives.readers.poses import check_positions, check_speeds, speeds_of_poses
from drives.readers.text import first_line, read_text
from planners.observation import Intent
from runtime.errors import SlipstreamError
from runtime.files import real_path, write_atomic
from runtime.json_text import model_of
from runtime.strict import One

Floats = NDArray[np.float64]

FORMAT: Final = "slipstream-drive"
TABLES = (".csv", ".parquet")
NEEDED = ("time", "x", "y", "heading")
KNOWN = (*NEEDED, "z", "speed", "intent")
_RATE_OFF = 0.2  # of the stated rate; more means that time is in another unit
LATEST = 1e11  # s on any clock; more is another unit
_MOST_TURNS = 1000.0  # rad; more are degrees over a long drive or no headings at all


class Sidecar(BaseModel):
    """What the JSON file beside a table says.

    Attributes:
        format: always `slipstream-drive`.
        version: of the format.
        name: short name of the drive.
        licence: of the recording.
        rate_hz: how often it was sampled; checked against the times.
        frame: of the world. `enu`: x east, y north, z up, heading from x, left positive. `ned`:
            x north, y east, z down, heading from north, right positive.
        lever_arm: m that the recorded point is ahead of the rear axle.
        source: one line: which vehicle, which sensors.
        synthetic: True for computed motion.
        clock_start: s to add to `time` for the recorder's clock.
        dataset, recording: what a record of training data calls it.
        cameras: camera -> its calibration, for those that have one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal["slipstream-drive"]
    version: One
    name: str = Field(min_length=1, max_length=200)
    licence: str = Field(min_length=1, max_length=1000)
    rate_hz: float = Field(gt=0.0, le=1000.0)
    frame: Literal["enu", "ned"]
    lever_arm: float = Field(default=0.0, ge=-10.0, le=10.0)
    source: str = Field(default="", max_length=1000)
    synthetic: bool = False
    clock_start: float = Field(default=0.0, ge=-LATEST, le=LATEST)
    dataset: str = ""
    recording: str = ""
    cameras: dict[str, Camera] = Field(default_factory=dict)


def is_plain(path: Path) -> bool:
    """Is this a table of the plain format? Its sidecar, or columns of that name, tell."""
    if path.suffix not in TABLES or not path.is_file():
        return False
    if path.with_suffix(".json").is_file() or path.suffix == ".parquet":
        return True
    try:
        columns = first_line(path).split(",")
    except OSError:
        return False
    return set(NEEDED) <= {column.strip() for column in columns}


def read_plain(path: Path, *, name: str | None = None) -> Drive:
    """Read a table and the JSON file of the same name beside it.

    Speeds that are not in the table come from the poses of the last 0.5 s.

    Args:
        path: a .csv or .parquet file.
        name: by default the sidecar's.

    Raises:
        SlipstreamError: no sidecar, an unknown or missing column, a cell that is not a number,
            times that do not increase or do not fit the rate, headings in degrees, an unknown
            intent, or a damaged file.
    """
    sidecar = _sidecar(path)
    columns = read_columns(path, KNOWN)
    _check_columns(path, columns)
    times = _numbers(path, columns["time"], "time")
    rows = range(2, len(times) + 2) if path.suffix == ".csv" else None
    check_times(times, str(path), rows)
    _check_rate(path, times, sidecar.rate_hz)
    axes = [_numbers(path, columns[axis], axis) for axis in ("x", "y", "z") if axis in columns]
    positions, headings = np.stack(axes, axis=1), _numbers(path, columns["heading"], "heading")
    check_positions(path, positions, "store metres around an origin nearby")
    _check_headings(path, headings)
    if sidecar.frame == "ned":
        positions[:, [0, 1]] = positions[:, [1, 0]]
        positions[:, 2:] *= -1.0
        headings = 0.5 * np.pi - headings
    known = np.isfinite(headings)
    headings[known] = np.unwrap(headings[known])
    speeds = speeds_of_poses(times, positions, headings)
    if "speed" in columns:
        speeds = _numbers(path, columns["speed"], "speed")
        check_speeds(path, speeds, "store metres per second")
    return Drive(
        name=name or sidecar.name,
        source=sidecar.source or f"{path.name}, {FORMAT} version {sidecar.version}",
        licence=sidecar.licence,
        synthetic=sidecar.synthetic,
        times=times - times[0],
        positions=rear_axle(positions, headings, sidecar.lever_arm),
        headings=headings,
        speeds=speeds,
        clock_start=sidecar.clock_start + float(times[0]),
        intents=_intents(path, columns["intent"]) if "intent" in columns else None,
        images=_images(path, columns, times - times[0], sidecar),
        dataset=sidecar.dataset,
        recording=sidecar.recording,
    )


def write_plain(drive: Drive, path: Path) -> None:
    """Write a drive as a table and its sidecar; each is whole or absent.

    Camera frames whose times are samples of the drive are kept as references, other ones and
    labelled road users are not part of the format.

    Args:
        path: ends in .csv or .parquet; the sidecar gets the same name and .json.

    Raises:
        SlipstreamError: another ending, or a place that can't be written to.
    """
    if path.suffix not in TABLES:
        raise _no_table(path)
    axes = dict(zip("xyz", drive.positions.T, strict=False))
    columns: dict[str, Any] = {"time": drive.times, **axes}
    columns.update(heading=drive.headings, speed=drive.speeds)
    if drive.intents is not None:
        columns["intent"] = drive.intents
    for camera in drive.images or ():
        columns[IMAGE + camera.camera] = _paths_at(camera, drive.times)
    sidecar = Sidecar(
        format=FORMAT,
        version=1,
        name=drive.name,
        licence=drive.licence,
        rate_hz=float(1.0 / np.median(np.diff(drive.times))),
        frame="enu",
        source=drive.source,
        synthetic=drive.synthetic,
        clock_start=drive.clock_start,
        dataset=drive.dataset,
        recording=drive.recording,
        cameras={
            each.camera: camera_of(each.calibration)
            for each in drive.images or ()
            if each.calibration is not None
        },
    )
    write_atomic(path, write_columns(columns, path.suffix))
    write_atomic(path.with_suffix(".json"), sidecar.model_dump_json(indent=2) + "\n")


def _sidecar(path: Path) -> Sidecar:
    file = path.with_suffix(".json")
    if path.suffix not in TABLES:
        raise _no_table(path)
    if not file.is_file():
        raise SlipstreamError(
            f"{path} has no sidecar",
            expected=f"{file.name} beside it, with name, licence, rate_hz and frame",
            found="no such file",
            fix="write it as docs/drives.md shows",
        )
    try:
        return model_of(Sidecar, read_text(file))
    except ValueError as error:
        place, found = _wrong(error)
        raise SlipstreamError(
            f"{file} does not describe a drive",
            expected="format, version, name, licence, rate_hz and frame as in docs/drives.md",
            found=found,
            fix=f"mend {place} in {file.name}",
        ) from error


def _wrong(error: ValueError) -> tuple[str, str]:
    """Which field is wrong, and what is wrong with it."""
    if not isinstance(error, ValidationError):
        return "it", str(error)[:200]
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "it"
    return place, f"{place}: {first['msg']}, {json.dumps(first.get('input'), default=str)[:80]}"


def _check_columns(path: Path, columns: dict[str, Any]) -> None:
    missing = [name for name in NEEDED if name not in columns]
    unknown = [name for name in columns if name not in KNOWN and not name.startswith(IMAGE)]
    if missing or unknown:
        parts = [f"without {', '.join(missing)}"] if missing else []
        parts += [f"with {', '.join(unknown)[:100]}"] if unknown else []
        raise SlipstreamError(
            f"{path} does not have the columns of a drive",
            expected=f"{', '.join(NEEDED)}, and if there are any {', '.join(KNOWN[4:])} and "
            f"{IMAGE}<camera>",
            found="; ".join(parts),
            fix="name the columns as docs/drives.md does, and leave out others",
        )


def _numbers(path: Path, cells: Any, column: str) -> Floats:
    """An empty cell is NaN: a value that is not known."""
    if isinstance(cells, np.ndarray):
        return np.array(cells, dtype=np.float64)
    values = np.empty(len(cells))
    for i, cell in enumerate(cells):
        try:
            values[i] = float(cell) if cell.strip() else np.nan
        except ValueError:
            raise SlipstreamError(
                f"{path} row {i + 2} has no number for {column}",
                expected="a number, or an empty cell where it is not known",
                found=repr(cell[:60]),
                fix="write the table again, or remove the row",
            ) from None
    return values


def _check_rate(path: Path, times: Floats, rate: float) -> None:
    found = 1.0 / float(np.median(np.diff(times)))
    if abs(found - rate) > _RATE_OFF * rate:
        raise SlipstreamError(
            f"{path} is not sampled as its sidecar says",
            expected=f"about {rate:g} Hz, with time in seconds",
            found=f"{found:g} Hz by the median of its steps",
            fix=f"store seconds in `time`, or mend rate_hz in {path.with_suffix('.json').name}",
        )


def _check_headings(path: Path, headings: Floats) -> None:
    step = np.abs(np.diff(headings[np.isfinite(headings)]))
    # wrapped degrees jump by 360, wrapped radians by 2 pi
    if np.any(step > 4.0 * np.pi) or np.nanmax(np.abs(headings), initial=0.0) > _MOST_TURNS:
        raise SlipstreamError(
            f"{path} has headings that are no radians",
            expected="radians, wrapped or not",
            found=f"steps of up to {step.max(initial=0.0):g} from row to row",
            fix="convert degrees to radians",
        )


def _intents(path: Path, cells: Any) -> NDArray[np.int64]:
    """Commands by number or by name; an empty cell is `unknown`."""
    names = {intent.name.lower(): intent for intent in Intent}
    names.update({str(int(intent)): intent for intent in Intent} | {"": Intent.UNKNOWN})
    commands = np.zeros(len(cells), dtype=np.int64)
    for i, cell in enumerate(cells):
        text = cell.strip().lower() if isinstance(cell, str) else f"{np.nan_to_num(cell):g}"
        if text not in names:
            raise SlipstreamError(
                f"{path} row {i + 2} has no intent",
                expected="0 to 3, or " + ", ".join(intent.name.lower() for intent in Intent),
                found=repr(text[:60]),
                fix="write one of these, or leave the cell empty",
            )
        commands[i] = names[text]
    return commands


def _images(
    path: Path, columns: dict[str, Any], times: Floats, sidecar: Sidecar
) -> tuple[ImageReferences, ...] | None:
    cameras = []
    told = {
        name: camera.calibration(f"camera {name} of {path.with_suffix('.json')}")
        for name, camera in sidecar.cameras.items()
    }
    for name in columns:
        if name.startswith(IMAGE):
            there = [i for i, cell in enumerate(columns[name]) if cell.strip()]
            paths = tuple(str(path.parent / columns[name][i].strip()) for i in there)
            camera = name.removeprefix(IMAGE)
            cameras.append(ImageReferences(camera, times[there], paths, told.get(camera)))
    return tuple(cameras) or None


def _paths_at(camera: ImageReferences, times: Floats) -> list[str]:
    by_time = dict(zip(camera.times.tolist(), camera.paths, strict=True))
    return [str(real_path(Path(by_time[time]))) if time in by_time else "" for time in times]


def _no_table(path: Path) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be a table of a drive",
        expected="a file that ends in " + " or ".join(TABLES),
        found=path.suffix or "no ending",
        fix="rename it",
    )
