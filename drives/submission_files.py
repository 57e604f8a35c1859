"""The files of a WOD-E2E challenge submission: shards and the archive to upload, and back."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drives.submission_format import (
    ARCHIVE,
    FOLDER,
    MOST_FRAMES,
    Method,
    Predictions,
    check_required,
    read_shards,
    shard_name,
    written_shard,
)
from runtime.errors import SlipstreamError
from runtime.files import check_writable, new_folder, unwritable, write_atomic

_LARGEST = 1 << 28  # bytes of all shards together, and of an unpacked archive
_PIECE = 1 << 20  # bytes unpacked at a time
_SHARD_OF = 10_000  # frames, unless the user says


@dataclass(frozen=True, eq=False)
class Checked:
    """A submission that was read back and breaks no rule of the format."""

    method: Method
    predictions: Predictions
    shards: int


def write_submission(
    folder: Path, method: Method, predictions: Predictions, shards: int | None = None
) -> Path:
    """Write FOLDER with its shards, and the archive to upload; both appear only when whole.

    Args:
        folder: gets `MySubmission/` and `MySubmission.tar.gz`; earlier ones are replaced.
        shards: how many; by default one for each 10,000 frames.

    Returns:
        the archive.

    Raises:
        SlipstreamError: a bad number of shards, or the folder can't be written.
    """
    count = len(predictions.frames)
    parts = shard_count(count, shards)
    size = -(-count // parts)
    files = {}
    for number in range(parts):
        taken = slice(number * size, (number + 1) * size)
        part = Predictions(predictions.frames[taken], predictions.trajectories[taken])
        files[shard_name(number, parts)] = written_shard(method, part)
    check_output(folder)
    with new_folder(folder / FOLDER) as work:
        try:
            for name, data in files.items():
                (work / name).write_bytes(data)
        except OSError as error:
            raise unwritable(folder, error) from error
    write_atomic(folder / ARCHIVE, _archived(files))
    return folder / ARCHIVE


def shard_count(frames: int, wanted: int | None) -> int:
    """How many shards that many frames make.

    Raises:
        SlipstreamError: none, more than frames, or too few for so many frames.
    """
    least = -(-frames // MOST_FRAMES)
    shards = max(1, -(-frames // _SHARD_OF)) if wanted is None else wanted
    # every shard holds a frame: with equal shares the last ones could stay empty
    if not least <= shards <= frames or -(-frames // -(-frames // shards)) != shards:
        raise SlipstreamError(
            f"{frames} frames can't be shared out over {shards} shards",
            expected=f"from {least} to {frames} shards, a frame in each",
            found=str(shards),
            fix="leave --shards out",
        )
    return shards


def check_output(folder: Path) -> None:
    """Insist that both outputs can be made in a folder.

    Raises:
        SlipstreamError: naming what can't.
    """
    check_writable(folder / FOLDER, folder=True)
    check_writable(folder / ARCHIVE)


def check_submission(path: Path, required: Sequence[str] | None = None) -> Checked:
    """Read a submission back and check it.

    Args:
        path: an archive, a folder with one (then its shards must be those beside it), or a folder
            of shards.
        required: the frames that must be there, no others.

    Raises:
        SlipstreamError: nothing there, or a rule that is broken.
    """
    archive = path / ARCHIVE if path.is_dir() else path
    loose = path / FOLDER if (path / FOLDER).is_dir() else path
    if archive.is_file():
        shards = _unpacked(archive)
        if loose != path and shards != _loose(loose):
            raise SlipstreamError(
                f"{archive} and {loose} hold different shards",
                expected="the same files in both",
                found="others",
                fix=f"pack the folder again: tar -C {path} -czf {archive} {FOLDER}",
            )
    else:
        shards = _loose(loose)
    where = str(archive if archive.is_file() else loose)
    method, predictions = read_shards(shards, where)
    if required is not None:
        check_required(predictions.frames, required, where)
    return Checked(method, predictions, len(shards))


def _archived(files: Mapping[str, bytes]) -> bytes:
    """A tar.gz that depends on the files alone."""
    raw = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        folder = tarfile.TarInfo(FOLDER)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return raw.getvalue()


def _unpacked(archive: Path) -> dict[str, bytes]:
    """The files of an archive by name; nothing is written to disk."""
    files: dict[str, bytes] = {}
    left = _LARGEST
    try:
        with tarfile.open(fileobj=io.BytesIO(_inflated(archive)), mode="r:") as tar:
            for entry in tar:
                if entry.isdir():
                    continue
                left -= entry.size
                content = tar.extractfile(entry) if entry.isfile() and left >= 0 else None
                name = entry.name.rpartition("/")[2]
                if content is None or name in files:
                    raise tarfile.TarError(f"{name[:80]} is no file, too large, or there twice")
                files[name] = content.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise _unreadable(archive, str(error) or type(error).__name__) from error
    return files


def _inflated(archive: Path) -> bytes:
    """All of it, so that its checksum is looked at, but never more than `_LARGEST`."""
    with gzip.open(archive) as packed:
        raw = bytearray()
        while piece := packed.read(_PIECE):
            raw += piece
            if len(raw) > _LARGEST:
                raise OSError(f"more than {_LARGEST >> 20} MiB when it is unpacked")
    return bytes(raw)


def _loose(folder: Path) -> dict[str, bytes]:
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.is_file())
        if sum(entry.stat().st_size for entry in entries) > _LARGEST:
            raise OSError(f"files of over {_LARGEST >> 20} MiB")
        return {entry.name: entry.read_bytes() for entry in entries}
    except OSError as error:
        raise _unreadable(folder, error.strerror or str(error)) from error


def _unreadable(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be read as a submission",
        expected=f"a folder with {ARCHIVE} or {FOLDER}/, or a .tar.gz of shards",
        found=found,
        fix="name what `slipstream submission ... -o` has written",
    )
