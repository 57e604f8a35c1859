"""TFRecord files: uint64 length, its masked CRC-32C, the bytes, their masked CRC-32C.

Read one record at a time; a length is checked against its CRC and the file's size before anything
is read. Compressed files are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drives.readers.crc32c import masked_crc32c
from runtime.errors import SlipstreamError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_LONGEST = 1 << 26  # bytes; a frame with eight images has some 3 MB
_FIX = "fetch the file again; TFRecord files must not be compressed"


@dataclass(frozen=True)
class Record:
    """Where a record's bytes lie.

    Attributes:
        path: the file.
        number: of the record in its file, from 0.
        start, length: bytes.
    """

    path: Path
    number: int
    start: int
    length: int

    def __str__(self) -> str:
        return f"{self.path} record {self.number}"


def is_tfrecord(path: Path) -> bool:
    """Does this file begin with a record whose length fits its checksum?"""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError:
        return False
    return len(header) == _HEADER.size and _HEADER.unpack(header)[1] == masked_crc32c(header[:8])


def scan(path: Path, peek: int = 0) -> Iterator[tuple[Record, bytes]]:
    """The records of a file, each with its first `peek` bytes, which are not checked.

    Raises:
        SlipstreamError: an unreadable or truncated file, or a length with a wrong checksum.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            position = number = 0
            while position < size:
                record = _record(path, number, position, file.read(_HEADER.size), size)
                head = file.read(min(peek, record.length))
                yield record, head
                position = record.start + record.length + _FOOTER.size
                number += 1
                file.seek(position)
    except OSError as error:
        raise _unreadable(path, error) from error


def read_record(record: Record) -> bytes:
    """A record's bytes.

    Raises:
        SlipstreamError: an unreadable or truncated file, or a wrong checksum.
    """
    try:
        with record.path.open("rb") as file:
            file.seek(record.start)
            data = file.read(record.length)
            footer = file.read(_FOOTER.size)
    except OSError as error:
        raise _unreadable(record.path, error) from error
    if len(data) < record.length or len(footer) < _FOOTER.size:
        raise _truncated(record.path, record.number, record.length, len(data))
    stored, computed = _FOOTER.unpack(footer)[0], masked_crc32c(data)
    if stored != computed:
        raise _wrong_crc(f"{record} is damaged", stored, computed)
    return data


def _record(path: Path, number: int, position: int, header: bytes, size: int) -> Record:
    if len(header) < _HEADER.size:
        raise _truncated(path, number, _HEADER.size, len(header))
    length, stored = _HEADER.unpack(header)
    computed = masked_crc32c(header[:8])
    if stored != computed:
        raise _wrong_crc(f"{path} record {number} has a damaged length", stored, computed)
    start = position + _HEADER.size
    if length > _LONGEST:
        raise SlipstreamError(
            f"{path} record {number} is too long",
            expected=f"at most {_LONGEST} bytes",
            found=f"{length} bytes",
            fix=_FIX,
        )
    if start + length + _FOOTER.size > size:
        raise _truncated(path, number, length, max(size - start, 0))
    return Record(path, number, start, length)


def _wrong_crc(what: str, stored: int, computed: int) -> SlipstreamError:
    return SlipstreamError(
        what,
        expected=f"the masked CRC-32C {computed:08x}",
        found=f"{stored:08x}",
        fix=_FIX,
    )


def _truncated(path: Path, number: int, wanted: int, found: int) -> SlipstreamError:
    return SlipstreamError(
        f"{path} ends within record {number}",
        expected=f"{wanted} bytes and their checksum",
        found=f"{found} bytes",
        fix=_FIX,
    )


def _unreadable(path: Path, error: OSError) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be read",
        expected="a TFRecord file",
        found=error.strerror or str(error),
        fix="check the path",
    )
