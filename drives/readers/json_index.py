"""Some objects out of a large JSON list, found by the value of one key without parsing the others.

A data set's tables have gigabytes, and a scene needs a thousandth of them. A table of flat objects
is searched as bytes once and kept as an index; any other is parsed whole, with the same result.
"""

from __future__ import annotations

import json
import mmap
import re
from array import array
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.readers.json_records import Record, records

Ints = NDArray[np.int64]

_BEGIN, _END = re.compile(rb"\s*\[\s*\{"), re.compile(rb"\}\s*\]\s*\Z")
_MARGIN = 4096  # bytes at either end of a file in which the list must begin and end
_PIECE = 1 << 24  # bytes counted at once


@dataclass(frozen=True, eq=False)
class _Index:
    """Where a key's values stand: [n] hashes, rising, and [n] bytes of the file."""

    hashes: Ints
    places: Ints


def records_with(path: Path, key: str, wanted: Collection[str], fix: str) -> list[Record]:
    """The objects whose `key` is a string of `wanted`, in the file's order.

    Of the others no more than the key is looked at.

    Raises:
        SlipstreamError: a missing file, another content than a list of objects, or objects without
            that key.
    """
    # where this fails, the parser says what is wrong, or reads what is written in another way
    with suppress(OSError, ValueError):
        status = path.stat()
        index = _indexed(path, key, status.st_size, status.st_mtime_ns)
        if index is not None:
            return _found(path, key, index, wanted, fix)
    return [record for record in records(path, fix) if record.text(key) in wanted]


@lru_cache(maxsize=8)
def _indexed(path: Path, key: str, size: int, changed: int) -> _Index | None:
    """Kept as long as the file is the same; None if its objects are not flat ones with this key."""
    pattern = re.compile(rb'"%s"\s*:\s*"([^"\\]*)"' % re.escape(key.encode()))
    hashes, places = array("q"), array("q")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not _is_list(data):
            return None
        for match in pattern.finditer(data):
            hashes.append(hash(match[1]))
            places.append(match.start())
        if not len(places) == _count(data, b"{") == _count(data, b"}"):
            return None
    order = np.argsort(np.asarray(hashes), kind="stable")
    return _Index(np.asarray(hashes)[order], np.asarray(places)[order])


def _found(path: Path, key: str, index: _Index, wanted: Collection[str], fix: str) -> list[Record]:
    """Raises ValueError where an object can't be cut out."""
    ours = np.array(sorted(hash(each.encode()) for each in wanted), dtype=np.int64)
    first, last = (np.searchsorted(index.hashes, ours, side) for side in ("left", "right"))
    ranges = [index.places[a:b] for a, b in zip(first, last, strict=True)]
    places = np.unique(np.concatenate(ranges)) if ranges else index.places[:0]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        starts = [data.rfind(b"{", 0, place) for place in places.tolist()]
        texts = [data[start : data.find(b"}", start) + 1] for start in starts]
    objects = json.loads(b"[" + b",".join(texts) + b"]")
    if len(objects) != len(starts) or any(each.get(key) not in wanted for each in objects):
        raise ValueError("objects that are not flat")
    return [
        Record(path, f"at byte {start}", each, fix)
        for start, each in zip(starts, objects, strict=True)
    ]


def _is_list(data: mmap.mmap) -> bool:
    begin, end = _BEGIN.match(data[:_MARGIN]), _END.search(data[-_MARGIN:])
    return begin is not None and end is not None


def _count(data: mmap.mmap, what: bytes) -> int:
    return sum(data[at : at + _PIECE].count(what) for at in range(0, len(data), _PIECE))
