"""Open a drive by name or by path, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from drives.drive import Drive
from drives.fetch import FETCHABLE, cached, is_cached
from drives.readers.boreas import is_boreas, read_boreas
from drives.readers.comma2k19 import is_comma2k19, read_comma2k19
from drives.readers.kitti import read_kitti
from drives.readers.synthetic import LICENCE as SYNTHETIC_LICENCE
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError

_FORMATS = (
    "a file of KITTI odometry poses (12 numbers a line), the folder of a Boreas run (with "
    "applanix/) or of a comma2k19 segment (with global_pose/)"
)

_MOST_DIGITS = 18  # of a seed


@dataclass(frozen=True)
class KnownDrive:
    """A drive that can be opened by name.

    Attributes:
        available: False if it must be fetched first, with `slipstream drives fetch NAME`.
    """

    name: str
    what: str
    licence: str
    available: bool


def list_drives() -> tuple[KnownDrive, ...]:
    """Every drive known by name."""
    fetched = [
        KnownDrive(item.name, item.what, item.licence, is_cached(item.name))
        for item in FETCHABLE.values()
    ]
    computed = KnownDrive(
        "synthetic",
        "computed bicycle-model drive with turns and stops; synthetic:SEED for another one",
        SYNTHETIC_LICENCE,
        True,
    )
    return (computed, *fetched)


def open_drive(name_or_path: str | Path) -> Drive:
    """Open a drive.

    Args:
        name_or_path: `synthetic`, `synthetic:SEED`, a fetched drive such as `kitti-00`, or a path
            to a KITTI odometry poses file, a Boreas run folder or a comma2k19 segment folder.

    Raises:
        SlipstreamError: nothing of that name or at that path, a drive that is not fetched yet, an
            unknown format, or a broken file.
    """
    name = str(name_or_path)
    if name == "synthetic" or name.startswith("synthetic:"):
        return synthetic_drive(_seed(name))
    if name in FETCHABLE:
        return _open_fetched(name)
    path = Path(name_or_path)
    if path.is_file():
        return read_kitti(path)
    if is_boreas(path):
        return read_boreas(path)
    if is_comma2k19(path):
        return read_comma2k19(path)
    raise SlipstreamError(
        f"{name} is not a drive",
        expected=f"one of {', '.join(item.name for item in list_drives())}, or {_FORMATS}",
        found="a folder of another kind" if path.is_dir() else "no such file or folder",
        fix="see what is known: slipstream drives list",
    )


def _open_fetched(name: str) -> Drive:
    path = cached(name)
    if path is None:
        raise SlipstreamError(
            f"drive {name} is not on this machine yet",
            expected=f"a cached copy ({FETCHABLE[name].licence}; not shipped with slipstream)",
            found="none",
            fix=f"slipstream drives fetch {name}",
        )
    return read_kitti(path, name=name)


def _seed(name: str) -> int:
    text = name.partition(":")[2] or "0"
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise SlipstreamError(
            f"{name} is not a synthetic drive",
            expected=f"synthetic or synthetic:SEED, a whole number of up to {_MOST_DIGITS} digits",
            found=text[:60],
            fix="open synthetic:1",
        )
    return int(text)
