"""The drives of a run: as given or from a list, each once, and the folder of each one's report."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from drives.fetch import FETCHABLE
from drives.inside import drives_of
from runtime.errors import SlipstreamError
from runtime.files import real_path
from runtime.visible import is_text, spelled

ALL = "/*"  # behind a folder; in quotes, lest the shell takes it
MOST = 1 << 20  # bytes of a list
_COMMENT = re.compile(r"(^|\s)#.*")  # but not the # of BAG#pose=/odom
_DIGITS = 6
_LONGEST = 60  # characters of a folder's name, before its digits


def named(given: Sequence[str]) -> list[str]:
    """The drives that --drive names; `@FILE` is a list with one a line, `FOLDER/*` all in a folder.

    Blank lines of a list, and what stands behind a # at a line's begin or after a space, are left
    out. Paths are as on the command line: relative ones begin at the working folder.

    Raises:
        SlipstreamError: a list that can't be read or is empty, a folder without drives, or a drive
            that is named twice.
    """
    lines = [name for each in given for name in (_listed(each) if each[:1] == "@" else [each])]
    drives = [name for each in lines for name in (_within(each) if each.endswith(ALL) else [each])]
    seen: dict[str, str] = {}
    for name in drives:
        if not is_text(name):  # the command line's own words are checked before
            raise SlipstreamError(
                f"{spelled(name)} has a name that is no text",
                expected="names of drives in UTF-8: reports tell them",
                found="bytes of another encoding",
                fix="rename it, or name the other drives one by one",
            )
        folder = folder_of(name)
        if folder in seen:
            also = "" if seen[folder] == name else f" and {name}"
            raise SlipstreamError(
                "--drive names a drive twice",
                expected="different drives: frames that count twice make intervals too narrow",
                found=f"{seen[folder]}{also}"[:300],
                fix="name each drive once",
            )
        seen[folder] = name
    return drives


def is_several(name: str) -> bool:
    """Whether a --drive is a list of drives, or all of a folder, rather than one."""
    return name.startswith("@") or name.endswith(ALL)


def folder_of(name: str) -> str:
    """The folder of a drive's report: the drive's name or the last part of its path, readable.

    Behind a path stand digits of a hash of all of it: drives of one name in different folders get
    different reports, and the same drive always gets the same one.
    """
    if not _is_path(name):
        return re.sub(r"[^\w.-]+", "-", name)[:_LONGEST]
    before, mark, topics = name.partition("#")
    path = real_path(Path(before))
    digits = hashlib.sha256(f"{path}{mark}{topics}".encode()).hexdigest()[:_DIGITS]
    readable = re.sub(r"[^\w.-]+", "-", path.name).strip(".-")[:_LONGEST] or "drive"
    return f"{readable}-{digits}"


def place_of(name: str) -> str:
    """The drive's name, or its absolute path: workers live in other folders."""
    return os.path.abspath(name) if _is_path(name) else name


def _is_path(name: str) -> bool:
    return name not in FETCHABLE and name.partition(":")[0] != "synthetic"


def _listed(given: str) -> list[str]:
    path = Path(given[1:])
    try:
        if not path.is_file():  # a pipe would never end
            raise _no_list(path, "no such file" if not path.exists() else "no regular file")
        with path.open("rb") as file:
            raw = file.read(MOST + 1)
        if b"\0" in raw:
            raise _no_list(path, "bytes that are no text, NUL among them")
        lines = raw.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _no_list(path, str(error)[:200]) from error
    uncommented = (_COMMENT.sub("", line).strip() for line in lines)
    names = [line for line in uncommented if line]
    if len(raw) > MOST or not names:
        raise _no_list(path, f"more than {MOST >> 20} MiB" if len(raw) > MOST else "no drive")
    return names


def _within(given: str) -> list[str]:
    folder = Path(given.removesuffix(ALL) or "/")
    if names := drives_of(folder):
        return names
    raise SlipstreamError(
        f"no drive lies in {folder}",
        expected="a folder with drives right in it, a nuScenes data root, or shards of WOD-E2E",
        found="none that is recognised" if folder.exists() else "no such folder",
        fix=f"slipstream drives info {shlex.quote(str(folder))}",
    )


def _no_list(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} is no list of drives",
        expected="a text file with the name or path of one drive a line",
        found=found,
        fix="ls -d DRIVES/* > drives.txt, and --drive @drives.txt",
    )
