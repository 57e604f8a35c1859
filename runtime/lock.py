"""A lock that ends with its process, however that ends: for work that two must not do at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runtime.files import unwritable

LOCK = ".lock"  # the ending of a lock file's name


@contextmanager
def held(path: Path, option: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a lock file inside the block; it is made, with its folder, and removed.

    The folder goes too where the block left nothing in it and it was not there before.

    Args:
        option: the command's option that names the folder, for the error.
        waiting: called once where another process holds it, before waiting for it.

    Raises:
        SlipstreamError: the file can't be made.
    """
    made = not path.parent.exists()
    try:
        handle = _acquired(path, waiting)
    except OSError as error:
        raise unwritable(path, error, option) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is held: nobody can have locked this one since
        os.close(handle)
        if made:
            with suppress(OSError):  # it holds something
                path.parent.rmdir()


def is_held(path: Path) -> bool:
    """Whether a process holds a lock file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # another user's
    try:
        return not _try(handle)
    finally:
        os.close(handle)


def _acquired(path: Path, waiting: Callable[[], None]) -> int:
    told = False
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # who held it may have taken it along
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            if not _try(handle):
                if not told:
                    waiting()
                    told = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _is_at(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it: lock the next one


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
