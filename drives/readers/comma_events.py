"""Event logs of openpilot (qlog, rlog): unpacked piece by piece, cut into events, decoded.

A log is a row of Cap'n Proto messages (capnproto.org/encoding), each one `Event` of openpilot's
log.capnp, compressed as a whole by bzip2 or Zstandard. `comma_log.capnp` declares what is used.
"""

from __future__ import annotations

import bz2
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from drives.readers.extra import library
from runtime.errors import SlipstreamError

# Members of the event's union that are decoded, by ordinal.
ORDINALS = {
    "roadEncodeIdx": 15,
    "liveCalibration": 19,
    "carState": 22,
    "cameraOdometry": 63,
    "lateralPlan": 64,
    "qRoadEncodeIdx": 90,
    "livePose": 129,
}
_OUTSIDE = 67  # ordinal of a field that is not in the union, so later members count one less
_WANTED = {number - 1 - (number > _OUTSIDE): name for name, number in ORDINALS.items()}

Row = tuple[float, ...]

_PIECE = 1 << 18  # bytes read and unpacked at once
_MOST_SEGMENTS = 512  # Cap'n Proto's own limit
_LARGEST_EVENT = 1 << 26  # bytes; a thumbnail is 100 kB
_FAR = 2  # kind of a pointer into another segment


class _Unpacker(Protocol):
    """What bz2 and zstd decompressors share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def events(
    path: Path, take: Mapping[str, Callable[[Any], Row]]
) -> Iterator[tuple[str, float, Row]]:
    """The values of a log's events, in the log's order.

    At most one event and one piece of the file are in memory.

    Args:
        take: member of the union (one of ORDINALS) -> the values to take from it.

    Yields:
        Name of the member, s on the recorder's clock, values.

    Raises:
        SlipstreamError: an unreadable, truncated or damaged log.
    """
    schema = _schema()
    capnp = library("capnp", "an openpilot log")
    number = 0
    for number, message in enumerate(_messages(path), 1):
        kind = _discriminant(message)
        if kind is not None and kind not in _WANTED:
            continue
        try:
            with schema.Event.from_bytes(message) as event:
                name = str(event.which()) if kind is None else _WANTED[kind]
                if name not in take:
                    continue
                row = name, event.logMonoTime * 1e-9, take[name](getattr(event, name))
        except capnp.KjException as error:
            found = str(error).partition("\nstack")[0].rpartition("failed: ")[2]
            raise _damaged(path, f"event {number}: {found}") from error
        yield row
    if not number:
        raise _damaged(path, "no event")


@cache
def _schema() -> Any:
    capnp: Any = library("capnp", "an openpilot log")
    return capnp.load(str(Path(__file__).with_name("comma_log.capnp")))


def _messages(path: Path) -> Iterator[bytes]:
    """Each message with its frame: segment count - 1, segment sizes in words, segments."""
    held = bytearray()
    start = 0
    for piece in _unpacked(path):
        del held[:start]
        start = 0
        held += piece
        while (size := _size(path, held, start)) and start + size <= len(held):
            yield bytes(held[start : start + size])
            start += size
    if start < len(held):
        raise _damaged(path, f"it ends within an event, {len(held) - start} bytes after its begin")


def _size(path: Path, held: bytearray, start: int) -> int:
    """Bytes of the message that begins at `start`, 0 if its frame is not all there yet."""
    if start + 4 > len(held):
        return 0
    count = struct.unpack_from("<I", held, start)[0] + 1
    if count > _MOST_SEGMENTS:
        raise _damaged(path, f"an event of {count} segments")
    header = 4 * (1 + count)
    header += header % 8
    if start + header > len(held):
        return 0
    size: int = header + 8 * sum(struct.unpack_from(f"<{count}I", held, start + 4))
    if size > _LARGEST_EVENT:
        raise _damaged(path, f"an event of {size} bytes")
    return size


def _discriminant(message: bytes) -> int | None:
    """Which member of the union an event is; None where that takes a whole decoder.

    Decoding is slow, and a full log is mostly events that a drive does not need.
    """
    count = struct.unpack_from("<I", message)[0] + 1
    root = 4 * (1 + count)
    root += root % 8
    if root + 8 > len(message):
        return None
    (pointer,) = struct.unpack_from("<Q", message, root)
    offset = struct.unpack_from("<i", message, root)[0] >> 2
    place = root + 8 + 8 * offset + 8  # behind the pointer, the offset and logMonoTime
    words = (pointer >> 32) & 0xFFFF
    if pointer & 3 == _FAR or words < 2 or not 0 <= place <= len(message) - 2:
        return None
    kind: int = struct.unpack_from("<H", message, place)[0]
    return kind


def _unpacked(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            begin = file.read(4)
            file.seek(0)
            if begin[:3] == b"BZh":
                yield from _decompressed(path, file, bz2.BZ2Decompressor)
            elif begin == b"\x28\xb5\x2f\xfd":
                zstd = library("backports.zstd", "a Zstandard log")
                yield from _decompressed(path, file, zstd.ZstdDecompressor)
            else:
                yield from iter(lambda: file.read(_PIECE), b"")
    except OSError as error:
        if error.errno is not None:
            raise SlipstreamError(
                f"{path} can't be read",
                expected="an openpilot log",
                found=error.strerror or str(error),
                fix="check the path",
            ) from error
        raise _damaged(path, str(error)) from error  # bz2's word for damage


def _decompressed(path: Path, file: Any, make: Any) -> Iterator[bytes]:
    """The content of one or several compressed streams, in bounded pieces."""
    unpacker: _Unpacker = make()
    waiting = b""
    while True:
        if unpacker.eof:
            waiting = unpacker.unused_data or file.read(_PIECE)
            if not waiting:
                return
            unpacker = make()
        elif unpacker.needs_input and not waiting:
            waiting = file.read(_PIECE)
            if not waiting:
                raise _damaged(path, "it ends within its compressed data")
        try:
            piece = unpacker.decompress(waiting, _PIECE)
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            raise _damaged(path, str(error)) from error
        except Exception as error:  # ZstdError derives from Exception alone
            if type(error).__name__ != "ZstdError":
                raise
            raise _damaged(path, str(error)) from error
        waiting = b""
        if piece:
            yield piece


def _damaged(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} is not a whole openpilot log",
        expected="Cap'n Proto events, plain or compressed by bzip2 or Zstandard",
        found=found,
        fix="fetch the log again",
    )
