"""Clips of the Waymo Open Dataset end-to-end challenge (WOD-E2E): TFRecord shards of E2EDFrame.

Each record is one frame with its own past and future in its own vehicle frame; those of a clip lie
scattered over the shards and carry no time. Xu et al., "WOD-E2E", arXiv 2510.26125.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive, ImageReferences
from drives.readers.tfrecord import Record, is_tfrecord, scan
from drives.readers.wod_e2e_camera import calibration_of
from drives.readers.wod_e2e_frame import PEEK, ClipFrame, FrameName, name_of, read_frame
from drives.readers.wod_e2e_track import FRAME_PERIOD, joined, lone_window, windows_of
from drives.recorded import RecordedWindow
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

LICENCE = "Waymo Dataset License Agreement for Non-Commercial Use (not redistributed)"
_LISTED = 8  # clips that an error names


def is_wod_e2e(path: Path) -> bool:
    """Is this a shard, a folder of shards, or <folder or shard>/<clip>?"""
    try:
        place, _ = _parted(path)
        return bool(_shards(place))
    except OSError:
        return False


def wod_e2e_clips(path: Path) -> tuple[str, ...]:
    """The clips in a shard or a folder of shards, sorted.

    Raises:
        SlipstreamError: no shard, or a damaged one.
    """
    return tuple(sorted(_index(_parted(path)[0])))


def check_clip(path: Path) -> None:
    """Insist that a path names a clip, by its records' names; damage is `read_wod_e2e`'s to tell.

    Raises:
        SlipstreamError: no clip of that name, or none is named of several.
    """
    place, clip = _parted(path)
    try:
        clips = sorted(_index(place))
    except SlipstreamError:
        return
    _choice(place, clip, clips)


def read_wod_e2e(path: Path, *, clip: str | None = None, name: str | None = None) -> Drive:
    """Read one clip.

    `recorded` holds the data set's own windows, one a frame: their past, future, intent and
    ratings as stored. The drive itself is pieced together from them, each frame laid over the one
    before by the motion that both hold, in the ego frame of the first.

    The format's quirks: times come from the frame numbers (0.1 s each), since all stamps are zero;
    the velocity stored with past state i is that of state i + 1, the last one repeated.

    Of other clips' records only the names are read; their checksums are not checked.

    Args:
        path: a shard, a folder of shards, or one of these with a clip's name behind it.
        clip: its name; may be left out where there is only one.
        name: of the drive, by default the clip.

    Raises:
        SlipstreamError: no such clip, a damaged shard, or a record that is not a frame.
    """
    place, within = _parted(path)
    index = _index(place)
    chosen = _choice(place, clip or within, sorted(index))
    frames = [read_frame(record) for _, record in sorted(index[chosen], key=_number)]
    for before, frame in pairwise(frames):
        if before.index == frame.index:
            raise _twice(place, frame.name, before.record, frame.record)
    track = joined(frames)
    return Drive(
        name=name or chosen,
        source=f"WOD-E2E clip {chosen}, {len(frames)} frames, each laid over the one before by "
        "their common motion; no z is recorded for the past",
        licence=LICENCE,
        synthetic=False,
        times=track.times - track.times[0],
        positions=track.positions,
        headings=track.headings,
        speeds=track.speeds,
        clock_start=float(track.times[0]),
        intents=track.intents,
        images=_images(frames, float(track.times[0])),
        dataset="WOD-E2E",
        recording=chosen,
        warnings=(*_quirks(frames), *track.warnings),
        recorded=windows_of(frames, track),
    )


def wod_e2e_frames(path: Path) -> dict[str, Record]:
    """Every frame's name, as stored, and its record, sorted by clip and number.

    Args:
        path: as in `read_wod_e2e`; without a clip, the frames of all clips.

    Raises:
        SlipstreamError: no such clip, no shard, a damaged one, or a frame that is there twice.
    """
    place, clip = _parted(path)
    index = _index(place)
    chosen = sorted(index) if clip is None else [_choice(place, clip, sorted(index))]
    frames: dict[str, Record] = {}
    for name, record in (each for one in chosen for each in sorted(index[one], key=_number)):
        if name.text in frames:
            raise _twice(place, name.text, frames[name.text], record)
        frames[name.text] = record
    return frames


def read_window(record: Record) -> RecordedWindow:
    """A record's own past, future, intent and ratings, without the rest of its clip.

    Raises:
        SlipstreamError: a damaged record, or one that is not a frame.
    """
    return lone_window(read_frame(record))


def read_jpeg(reference: str) -> bytes:
    """The JPEG that a path of `Drive.images` names: `<shard>#<start>+<length>`.

    Raises:
        SlipstreamError: an unreadable or shorter file.
    """
    shard, _, span = reference.rpartition("#")
    start, _, length = span.partition("+")
    try:
        with open(shard, "rb") as file:
            if int(start) + int(length) > Path(shard).stat().st_size:
                raise ValueError("a shorter file")
            file.seek(int(start))
            return file.read(int(length))
    except (OSError, ValueError) as error:
        raise _no_image(reference, str(error)) from error


def _parted(path: Path) -> tuple[Path, str | None]:
    """(shard or folder, clip): the last part of a path that does not exist names the clip."""
    if not path.exists() and path.parent.exists():
        return path.parent, path.name
    return path, None


def _shards(place: Path) -> list[Path]:
    if place.is_file():
        return [place] if ".tfrecord" in place.name or is_tfrecord(place) else []
    if not place.is_dir():
        return []
    return sorted(file for file in place.iterdir() if ".tfrecord" in file.name and file.is_file())


def _index(place: Path) -> dict[str, list[tuple[FrameName, Record]]]:
    """Clip -> its frames in any order, from the first bytes of every record."""
    shards = _shards(place)
    if not shards:
        raise SlipstreamError(
            f"{place} holds no WOD-E2E shard",
            expected="files such as val_202504211843.tfrecord-00015-of-00093",
            found="no file with .tfrecord in its name" if place.exists() else "no such path",
            fix="name the folder of the shards",
        )
    clips: dict[str, list[tuple[FrameName, Record]]] = {}
    for shard in shards:
        stat = shard.stat()
        for name, record in _indexed(shard, stat.st_size, stat.st_mtime_ns):
            clips.setdefault(name.clip, []).append((name, record))
    if not clips:
        raise SlipstreamError(
            f"{place} holds no record",
            expected="TFRecord files with frames",
            found=f"{len(shards)} empty files",
            fix="fetch the shards again",
        )
    return clips


@lru_cache(maxsize=512)
def _indexed(shard: Path, size: int, changed: int) -> tuple[tuple[FrameName, Record], ...]:
    """Kept as long as the file is the same: a folder is read once for all of its clips."""
    return tuple((name_of(record, head), record) for record, head in scan(shard, PEEK))


def _number(frame: tuple[FrameName, Record]) -> int:
    return frame[0].number


def _twice(place: Path, name: str, first: Record, second: Record) -> SlipstreamError:
    return SlipstreamError(
        f"{place} holds frame {name} twice",
        expected="every frame once",
        found=f"{first} and {second}",
        fix="keep one copy of each shard in the folder",
    )


def _choice(place: Path, wanted: str | None, clips: list[str]) -> str:
    if wanted in clips:
        return str(wanted)
    if wanted is None and len(clips) == 1:
        return clips[0]
    listed = ", ".join(clips[:_LISTED]) + (", ..." if len(clips) > _LISTED else "")
    raise SlipstreamError(
        f"{place} holds several clips" if wanted is None else f"{place} holds no clip {wanted}",
        expected=f"one of {len(clips)} clips: {listed}",
        found="no clip named" if wanted is None else wanted,
        fix=f"name the clip behind the path: {place / clips[0]}",
    )


def _images(frames: list[ClipFrame], start: float) -> tuple[ImageReferences, ...] | None:
    cameras: dict[str, list[tuple[float, str]]] = {}
    for frame in frames:
        for camera, first, length in frame.images:
            path = f"{frame.record.path}#{first}+{length}"
            cameras.setdefault(camera, []).append((frame.index * FRAME_PERIOD - start, path))
    if not cameras:
        return None
    told = {
        camera: calibration_of(message, frames[0].record, camera)
        for camera, message in frames[0].calibrations
    }
    return tuple(
        ImageReferences(
            camera,
            np.array([time for time, _ in each]),
            tuple(path for _, path in each),
            told.get(camera),
        )
        for camera, each in cameras.items()
    )


def _quirks(frames: list[ClipFrame]) -> list[str]:
    quirks = []
    if all(frame.timestamp == 0 for frame in frames):
        quirks.append("all time stamps are zero: times are frame numbers, 0.1 s apart")
    if all((frame.velocities[-1] == frame.velocities[-2]).all() for frame in frames):
        quirks.append("the last past velocity repeats the one before: each was read as the next's")
    missing = sum(frame.future is None for frame in frames)
    if missing:
        quirks.append(f"frames without a future of 5 s: {missing} of {len(frames)}")
    return quirks


def _no_image(reference: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"image {reference} can't be read",
        expected="<shard>#<start>+<length>",
        found=found,
        fix="open the drive again; its shard has changed or moved",
    )
