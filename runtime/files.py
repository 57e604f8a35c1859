"""Files that are either whole or absent: hashes, and writes that rename at the end.

What is being written stands beside its place under a hidden name that says who writes it. A writer
that was killed leaves that behind; the next write to the same place removes it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from runtime.errors import SlipstreamError

STALE_S = 3600.0  # without a change, when the writer's machine can't be asked
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_NEW, _OLD = ".tmp", ".old"  # being written; what is being replaced


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes | str, option: str = "-o") -> None:
    """Write a whole file under a temporary name in the same folder, then rename it.

    Args:
        option: the command's option that names the place, for the error.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_prefix(path), suffix=_NEW)
    except OSError as error:
        raise unwritable(path, error, option) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error, option) from error
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path, *, folder: bool = False, option: str = "-o") -> None:
    """Insist, before the work, that `write_atomic` or `new_folder` can make `path` after it.

    Args:
        path: the output; nothing of it is made here.
        folder: it is one; a folder in a file's place is in the way.
        option: the command's option that names the place, for the error.

    Raises:
        SlipstreamError: naming the output.
    """
    path = Path(os.path.realpath(path))
    try:
        if path.is_dir() and not folder:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        os.rmdir(tempfile.mkdtemp(dir=_first_there(path), prefix=_prefix(path), suffix=_NEW))
    except OSError as error:
        raise unwritable(path, error, option) from error


@contextmanager
def new_file(path: Path, option: str = "-o") -> Iterator[Path]:
    """Where to write a file that takes its name `path` only when the block ends without an error.

    It stands alone in a hidden folder beside its place, for writers that make more than one file.

    Args:
        option: the command's option that names the place, for the error.

    Raises:
        SlipstreamError: the place can't be written to.
    """
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        work = _folder_beside(path, _NEW)
    except OSError as error:
        raise unwritable(path, error, option) from error
    try:
        yield work / path.name
        (work / path.name).chmod(0o644)
        (work / path.name).replace(path)
    except OSError as error:
        raise unwritable(path, error, option) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes its name `path` only when the block ends without an error.

    What was at `path` before is replaced as a whole; on an error it is left as it was.
    """
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path)
        work = _folder_beside(path, _NEW)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        work.chmod(0o755)
        yield work
        _put(work, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextmanager
def work_folder(path: Path, option: str = "-o") -> Iterator[Path]:
    """A hidden folder for what is made on the way to the output `path`; it goes at the end.

    It stands on the output's own disk, which was named with free space in mind. A place that runs
    full while the block writes is told as the output's.

    Args:
        option: the command's option that names the place, for the error.

    Raises:
        SlipstreamError: the place can't be written to.
    """
    path = path.resolve()
    beside = _first_there(path) / path.name
    try:
        sweep(beside)
        work = _folder_beside(beside, _NEW)
    except OSError as error:
        raise unwritable(path, error, option) from error
    try:
        yield work
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise unwritable(path, error, option) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove what killed writers left beside `path`; give back what they were replacing.

    Only names made here for this very path go, and only if their writer is gone. A writer on
    another machine, or before a restart, can't be asked: its leavings go after an hour without a
    change.
    """
    ours = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]{{8}})-(\d+)\.\w+(\.tmp|\.old)")
    for entry in list(path.parent.iterdir()):
        found = ours.fullmatch(entry.name)
        if found is None or not _is_stale(entry, found[1], int(found[2])):
            continue
        if found[3] == _OLD and not path.exists():
            with suppress(OSError):  # killed between two renames: the old one is the only one
                (entry / path.name).replace(path)
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with suppress(OSError):
                entry.unlink()


def unwritable(path: Path, error: OSError, option: str = "-o") -> SlipstreamError:
    """The error for an output that can't be written; `option` names the place.

    A hidden name that stands for an output while it is written is told as that output's own.
    """
    own = (re.sub(r"^\.(.+)\.[0-9a-f]{8}-\d+\.\w+\.tmp$", r"\1", part) for part in path.parts)
    path = Path(*own)
    return SlipstreamError(
        f"can't write {path}",
        expected="a folder that this user may write to, with free space",
        found=error.strerror or str(error),
        fix=f"name another output folder with {option}",
    )


def _put(work: Path, path: Path) -> None:
    """Give the finished folder its name; the old one comes back if that fails."""
    with _turn(path.parent):
        if not path.exists():
            work.replace(path)
            return
        old = _folder_beside(path, _OLD)
        try:
            path.replace(old / path.name)
            work.replace(path)
        except BaseException:
            if not path.exists():
                (old / path.name).replace(path)
            old.rmdir()
            raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Writers of one name take turns, where the disk has locks."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _first_there(path: Path) -> Path:
    """The folder that `path` stands in, or the nearest one above it that is there."""
    return next((parent for parent in path.parents if parent.exists()), path)


def _folder_beside(path: Path, suffix: str) -> Path:
    return Path(tempfile.mkdtemp(dir=path.parent, prefix=_prefix(path), suffix=suffix))


def _prefix(path: Path) -> str:
    return f".{path.name}.{_machine()}-{os.getpid()}."


def _is_stale(entry: Path, machine: str, pid: int) -> bool:
    if machine == _machine():
        return not _is_running(pid)
    try:
        changed = max(each.lstat().st_mtime for each in (entry, *entry.rglob("*")))
    except OSError:  # it is just going away
        return False
    return time.time() - changed > STALE_S


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's
    return True


@cache
def _machine() -> str:
    """Eight hex digits for where process numbers mean the same: machine, start and container."""
    parts = [platform.node()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
