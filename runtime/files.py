"""Files that are either whole or absent: hashes, and writes that rename at the end."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.errors import SlipstreamError


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file under a temporary name in the same folder, then rename it."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise unwritable(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes its name `path` only when the block ends without an error.

    What was at `path` before is replaced as a whole; on an error it is left as it was.
    """
    path = path.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        work.chmod(0o755)
        yield work
        if path.exists():
            old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
            path.replace(old / path.name)
            work.replace(path)
            shutil.rmtree(old)
        else:
            work.replace(path)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def unwritable(path: Path, error: OSError) -> SlipstreamError:
    """The error for an output that can't be written."""
    return SlipstreamError(
        f"can't write {path}",
        expected="a folder that this user may write to, with free space",
        found=error.strerror or str(error),
        fix="name another output folder with -o",
    )
