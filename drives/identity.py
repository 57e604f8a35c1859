"""What tells one recording from another: a key over everything in it that a report depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from drives.drive import Drive

DIGITS = 16


def drive_key(drive: Drive) -> str:
    """First 16 hex digits of the SHA-256 over a drive's samples, intents, labels and windows.

    Where it was read from is not in it, nor are its images: a recording that was moved keeps its
    key, one that was changed does not.
    """
    digest = hashlib.sha256()
    given = {field.name: getattr(drive, field.name) for field in fields(drive)}
    for left_out in ("source", "licence", "warnings", "images", "opened_by"):
        del given[left_out]
    for piece in _pieces(given):
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()[:DIGITS]


def _pieces(value: Any) -> Iterator[bytes]:
    """A value as bytes, part by part, so that different values give different parts."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name.encode()
            yield from _pieces(each)
    elif isinstance(value, tuple):
        yield f"{len(value)}".encode()
        for each in value:
            yield from _pieces(each)
    elif hasattr(value, "__dataclass_fields__"):
        yield from _pieces({field.name: getattr(value, field.name) for field in fields(value)})
    else:
        yield repr(value).encode()
