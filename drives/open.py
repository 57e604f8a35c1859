"""Open a drive by name or by path, whatever its format."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drives.drive import Drive
from drives.fetch import FETCHABLE, cached, is_cached
from drives.formats import FORMATS, recognise
from drives.inside import drives_inside, listed
from drives.readers.kitti import read_kitti
from drives.readers.rosbag2 import is_rosbag2, read_rosbag2
from drives.readers.synthetic import LICENCE as SYNTHETIC_LICENCE
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError

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
            in one of `drives.formats.FORMATS`. Behind a ROS 2 bag, `#ROLE=TOPIC,...` says which
            topics to take, e.g. `bag.mcap#pose=/localization/odom`.

    Raises:
        SlipstreamError: nothing of that name or at that path, a drive that is not fetched yet, an
            unknown format, a folder of several drives, or a broken file.
    """
    name = str(name_or_path)
    return replace(_opened(name), opened_by=name)


def _opened(name: str) -> Drive:
    if name == "synthetic" or name.startswith("synthetic:"):
        return synthetic_drive(_seed(name))
    if name in FETCHABLE:
        return _open_fetched(name)
    path, topics = _parted(name)
    if topics:
        return _open_bag(path, topics)
    found = recognise(path)
    if found is not None:
        return found.read(path)
    if within := drives_inside(path):
        raise SlipstreamError(
            f"{name} is a folder that holds drives",
            expected="one of them",
            found=listed(within),
            fix=f"name one, with --drive {(one := shlex.quote(str(within[0].path)))} where drives "
            f"are run; or look at it: slipstream drives info {one}",
        )
    if not path.exists():
        raise _missing(name, path)
    raise SlipstreamError(
        f"{name} is not a drive",
        expected=f"one of {', '.join(item.name for item in list_drives())}, or a path: "
        + "; ".join(f"{each.name}: {each.path}" for each in FORMATS),
        found=_kind(path),
        fix="see what is known: slipstream drives list; for others, write the plain format",
    )


def check_drive(name_or_path: str | Path) -> None:
    """Insist that something is there that looks like the drive, reading names at most.

    Raises:
        SlipstreamError: as `open_drive` says it; damage is found only by that.
    """
    name = str(name_or_path)
    path, topics = _parted(name)
    known = name in FETCHABLE or name.partition(":")[0] == "synthetic"
    found = None if known else recognise(path)
    if found is None:
        open_drive(name)
    elif found.check is not None and not topics:
        found.check(path)


def with_topics(name: str, choices: Sequence[str]) -> str:
    """The name of a bag and which of its topics to take, as `open_drive` understands it.

    Args:
        choices: ROLE=TOPIC each.

    Raises:
        SlipstreamError: a choice of another form.
    """
    for choice in choices:
        role, mark, topic = choice.partition("=")
        if not (role and mark and topic) or "," in choice:
            raise SlipstreamError(
                f"--topic {choice} does not name a topic",
                expected="ROLE=TOPIC",
                found=choice,
                fix="say for example --topic pose=/odom",
            )
    return f"{name}#{','.join(choices)}" if choices else name


def format_of(name_or_path: str | Path) -> str:
    """The format that `open_drive` would read, or where a drive known by name comes from."""
    name = str(name_or_path)
    if name.partition(":")[0] == "synthetic":
        return "computed"
    if name in FETCHABLE:
        return "kitti-odometry"
    found = recognise(_parted(name)[0])
    return found.name if found else "unknown"


def _parted(name: str) -> tuple[Path, dict[str, str]]:
    """A path, and role -> topic from what stands behind a #."""
    before, mark, behind = name.rpartition("#")
    if not mark or "=" not in behind or Path(name).exists():
        return Path(name), {}
    pairs = (each.partition("=") for each in behind.split(","))
    return Path(before), {role.strip(): topic.strip() for role, _, topic in pairs}


def _open_bag(path: Path, topics: dict[str, str]) -> Drive:
    if not is_rosbag2(path):
        raise SlipstreamError(
            f"{path} has no topics to choose from",
            expected="a ROS 2 bag before #ROLE=TOPIC",
            found=_kind(path),
            fix="leave out what stands behind the #",
        )
    return read_rosbag2(path, topics=topics)


def _missing(name: str, path: Path) -> SlipstreamError:
    """Of a path that leads nowhere, or a word that is no drive's name."""
    names = ", ".join(item.name for item in list_drives())
    there = next(parent for parent in path.absolute().parents if parent.exists())
    return SlipstreamError(
        f"{name} is not a drive",
        expected="a file or folder that exists" if os.sep in name else f"a path, or one of {names}",
        found=f"no such file or folder; the nearest that exists is {there}",
        fix=f"ls {shlex.quote(str(there))}" if os.sep in name else "slipstream drives list",
    )


def _kind(path: Path) -> str:
    if path.is_dir():
        return "a folder of another kind"
    return "a file of another kind" if path.exists() else "no such file or folder"


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
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise SlipstreamError(
            f"{name} is not a synthetic drive",
            expected=f"synthetic or synthetic:SEED, a whole number of up to {_MOST_DIGITS} digits",
            found=text[:60],
            fix="open synthetic:1",
        )
    return int(text)
