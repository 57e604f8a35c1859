"""Which drives lie in a folder that is none itself: what a user who named it may have meant."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from drives.formats import POSE_NUMBERS, Format, recognise
from drives.readers.text import first_line

_DEEPEST = 3  # folders below the one that was named
_MOST_ENTRIES = 2000  # looked at; a data set's root may hold millions
_LISTED = 6


@dataclass(frozen=True)
class Inside:
    """A drive, or a place of several that its own reader lists (scenes, clips)."""

    path: Path
    format: Format


def drives_inside(folder: Path) -> list[Inside]:
    """The drives in a folder, by name; at most three levels down, of at most 2,000 entries."""
    if not folder.is_dir():
        return []
    return sorted(_found(folder), key=lambda each: str(each.path))


def drives_of(folder: Path) -> list[str]:
    """Paths of all drives right in a folder, or of all scenes or clips that it holds, by name."""
    own = recognise(folder)
    if own is not None and own.several is not None:
        return [str(folder / name) for name in own.several(folder)]
    if own is not None or not folder.is_dir():
        return []
    paths = []
    for path in sorted(Path(entry) for entry in _entries(folder, sys.maxsize)):
        format = None if path.name.startswith(".") else recognise(path)
        if format is not None and _is_meant(path, format):
            paths += [str(path)] if format.several is None else drives_of(path)
    return paths


def listed(drives: list[Inside]) -> str:
    """Some of them with their formats, and how many there are."""
    names = [f"{each.path} ({each.format.name})" for each in drives[:_LISTED]]
    return ", ".join(names) + (f" and {len(drives) - _LISTED} more" * (len(drives) > _LISTED))


def _found(folder: Path) -> Iterator[Inside]:
    """Level by level, so that the entries that are looked at are the nearest ones."""
    level, left = [folder], _MOST_ENTRIES
    for _ in range(_DEEPEST):
        below = []
        for place in level:
            for entry in _entries(place, left):
                left -= 1
                path = Path(entry)
                if entry.name.startswith("."):
                    continue
                format = recognise(path)
                if format is not None and _is_meant(path, format):
                    yield Inside(path, format)
                elif path.is_dir():
                    below.append(path)
        level = below


def _entries(place: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return [entry for entry, _ in zip(entries, range(most), strict=False)]
    except OSError:
        return []


def _is_meant(path: Path, format: Format) -> bool:
    """A text file counts as poses only if it begins like them."""
    if format.name != "kitti-odometry":
        return True
    try:
        fields = first_line(path).split()
        return len(fields) == POSE_NUMBERS and bool([*map(float, fields)])
    except (OSError, ValueError):
        return False
