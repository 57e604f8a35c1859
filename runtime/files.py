"""Files that are either whole or absent: hashes, and writes that rename at the end.

What is being written stands beside its place under a hidden name that says who writes it. A writer
that was killed leaves that behind; the next write to the same place removes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from runtime.errors import SlipstreamError
from runtime.exchange import is_mount, place_for, put
from runtime.hidden import NEW, STALE_S, contents, hidden_folder, prefix, stands_for, sweep
from runtime.visible import is_text, spelled

__all__ = [
    "STALE_S",
    "check_writable",
    "contents",
    "new_file",
    "new_folder",
    "real_path",
    "sha256",
    "stands_for",
    "sweep",
    "unwritable",
    "work_folder",
    "write_atomic",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def real_path(path: Path) -> Path:
    """The path without links; a loop of links stays, and whoever opens it tells of it.

    `Path.resolve` makes a RuntimeError of such a loop.
    """
    return Path(os.path.realpath(path))


def write_atomic(path: Path, data: bytes | str, option: str = "-o") -> None:
    """Write a whole file under a temporary name in the same folder, then rename it.

    Args:
        option: the command's option that names the place, for the error.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        with _made(path.parent):
            sweep(path)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix(path.name), suffix=NEW)
            temporary = Path(name)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(raw)
                temporary.chmod(0o644)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error, option) from error


def check_writable(path: Path, *, folder: bool = False, option: str = "-o") -> None:
    """Insist, before the work, that `write_atomic` or `new_folder` can make `path` after it.

    Args:
        path: the output; nothing of it is made here, but what killed writers left of it is settled.
        folder: it is one; a folder in a file's place is in the way.
        option: the command's option that names the place, for the error.

    Raises:
        SlipstreamError: naming the output.
    """
    try:
        real = _output(path)
        if not is_text(str(real)):
            raise SlipstreamError(
                f"{spelled(str(real))} is no text",
                expected="an output whose whole path is in UTF-8",
                found="bytes of another encoding",
                fix=f"name a folder elsewhere with {option}",
            )
        if real.is_dir() and not folder:
            raise _error(errno.EISDIR)
        if real.is_file() and is_mount(real):
            raise _error(errno.EBUSY)  # it can be written to, but not as a whole
        sweep(real)
        place, name = place_for(real) if folder else (real.parent, real.name)
        there = next(each for each in (place, *place.parents) if each.exists())
        os.rmdir(hidden_folder(there, name, NEW))
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
    with _work(path, option, folder=False) as (real, work):
        try:
            yield work / real.name
            (work / real.name).chmod(0o644)
            (work / real.name).replace(real)
        except OSError as error:
            raise unwritable(path, error, option) from error


@contextmanager
def new_folder(path: Path, last: str = "") -> Iterator[Path]:
    """A folder to fill that takes its name `path` only when the block ends without an error.

    What was at `path` before is replaced as a whole; on an error it is left as it was.

    Args:
        last: the file that says what the folder is. Where `path` can't be renamed, such as a mount,
            what it holds is exchanged: that file goes first and comes last.

    Raises:
        SlipstreamError: the place can't be written to.
    """
    with _work(path, "-o", folder=True) as (real, work):
        work.chmod(0o755)
        yield work
        try:
            put(work, real, last)
        except OSError as error:
            raise unwritable(path, error) from error


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
    with _work(path, option, folder=True) as (_, work):
        try:
            yield work
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise unwritable(path, error, option) from error


def unwritable(path: Path, error: OSError, option: str = "-o") -> SlipstreamError:
    """The error for an output that can't be written; `option` names the place.

    A hidden name that stands for an output while it is written is told as that output's own.
    """
    stand = [stands_for(part) for part in path.parts]
    path = Path(
        *(part if own is None else own for part, own in zip(path.parts, stand, strict=True))
    )
    return SlipstreamError(
        f"can't write {path}",
        expected="a folder that this user may write to, with free space",
        found=error.strerror or str(error),
        fix=f"name another output folder with {option}",
    )


@contextmanager
def _work(path: Path, option: str, *, folder: bool) -> Iterator[tuple[Path, Path]]:
    """The output's real path, and a hidden folder on the way to it, which goes at the end."""
    with ExitStack() as stack:
        try:
            real = _output(path)
            place, name = place_for(real) if folder else (real.parent, real.name)
            stack.enter_context(_made(place))
            sweep(real)
            work = hidden_folder(place, name, NEW)
            stack.callback(shutil.rmtree, work, ignore_errors=True)
        except OSError as error:
            raise unwritable(path, error, option) from error
        yield real, work


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder and all above it; those that are made here go again where nothing came of them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        with suppress(OSError):  # the nearest that holds something, and so all above it
            for each in missing:
                each.rmdir()


def _output(path: Path) -> Path:
    """Its real path.

    Raises:
        OSError: links that lead nowhere but to themselves, or a folder that is not ours to look in.
    """
    real = real_path(path)
    with suppress(FileNotFoundError, NotADirectoryError):
        real.stat()
    return real


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
