"""Give a finished folder its name: by a rename, or by filling a folder that can't be renamed.

Such are mounts (`-v out:/out`), folders of an image's lower layers, and those in a parent that is
not ours.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runtime.hidden import COMPLETE, OLD, SWAP, TAKEN, hidden_folder, move


def place_for(path: Path) -> tuple[Path, str]:
    """Where what becomes `path` is made: a folder, and the output's name there, "" inside of it."""
    is_fixed = path.is_dir() and (is_mount(path) or not os.access(path.parent, os.W_OK | os.X_OK))
    return (path, "") if is_fixed else (path.parent, path.name)


def is_mount(path: Path) -> bool:
    """Whether a folder or a file is one, also of another folder of the same disk."""
    if os.path.ismount(path):
        return True
    mount = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", str(path))
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        return any(line.split(" ")[4] == mount for line in mounts.splitlines())
    return False


def put(work: Path, path: Path, last: str) -> None:
    """Give the finished folder its name; the old one comes back if that fails.

    Args:
        work: from `place_for`; it is gone afterwards.
        last: the file that says what the folder is: of a folder that must be filled it goes first
            and comes last, so that no mixture is taken for either.
    """
    with _turn(work.parent):
        if work.parent == path:
            return _fill(work, path, "", last)
        if not path.exists():
            work.replace(path)
            return None
        old = hidden_folder(path.parent, path.name, OLD)
        try:
            path.replace(old / path.name)
            work.replace(path)
        except BaseException as error:
            if not path.exists():
                (old / path.name).replace(path)
            old.rmdir()
            if not isinstance(error, OSError) or not path.is_dir():
                raise
            return _fill(work, path, path.name, last)
    shutil.rmtree(old, ignore_errors=True)
    return None


def _fill(work: Path, path: Path, name: str, last: str) -> None:
    """Exchange what the folder holds, entry by entry; `sweep` settles it where we are killed."""
    swap = hidden_folder(work.parent, name, SWAP)
    taken, complete = swap / TAKEN, swap / COMPLETE
    taken.mkdir()
    try:
        move(path, taken, first=last)
        work.replace(complete)
        move(complete, path, last=last)
    except BaseException:
        if complete.exists():
            move(path, complete, first=last)
            complete.replace(work)
        move(taken, path, last=last)
        shutil.rmtree(swap, ignore_errors=True)
        raise
    shutil.rmtree(taken, ignore_errors=True)  # before the other, which says that it may go
    shutil.rmtree(swap, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Writers of one name take turns, where the disk has locks."""
    held = None
    with suppress(OSError):  # a folder that we may write to, but not list, can't be opened
        held = os.open(folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if held is not None:
            os.close(held)
