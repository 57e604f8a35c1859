"""Small files that others wrote, read whole: never a pipe, a device, or more than is allowed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LARGEST = 256 << 20  # bytes; the largest published tokenizer.json has 33 MB


def exists(path: Path) -> bool:
    """Whether there is anything of this name, also a link that leads nowhere."""
    return os.path.lexists(path)


def small_file(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it is missing, no regular file, or has more than `largest` bytes.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
        raise OSError(f"no regular file: {stat.filemode(status.st_mode)}")
    if status.st_size > largest:
        raise OSError(f"{status.st_size} bytes, of at most {largest}")
    return path.read_bytes()
