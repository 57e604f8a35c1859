"""Text files read whole, up to a size that is held in memory; what is no text is refused early."""

from __future__ import annotations

import stat
from pathlib import Path

from runtime.errors import SlipstreamError

LARGEST = 1 << 30  # bytes; 30 days of poses at 20 Hz are half of it
_HEAD = 1 << 20  # bytes looked at first; a table or a sidecar has its first line in them
_SHORTER = "cut the recording into shorter drives, or check that this is the file you mean"


def read_text(path: Path, *, largest: int = LARGEST, fix: str = "check the path") -> str:
    """The text of a file, which must be UTF-8 with a line end in its first MiB.

    A byte order mark, which spreadsheets begin a CSV with, is no part of it.

    Args:
        largest: bytes that the file may have.
        fix: what mends a file that is missing or is no text.

    Raises:
        SlipstreamError: the file is missing, a folder, not text, or larger.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device may never end
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise _unread(path, "a text file", kind, fix)
        with path.open("rb") as file:
            data = file.read(_HEAD)
            if b"\0" in data:
                raise _unread(path, "a text file", f"{status.st_size} bytes with NUL in them", fix)
            if len(data) == _HEAD and b"\n" not in data and b"\r" not in data:
                found = f"{status.st_size} bytes, no line end in the first {_HEAD}"
                raise _unread(path, "a text file", found, fix)
            if status.st_size > largest:
                allowed = f"a text file of at most {largest} bytes"
                raise _unread(path, allowed, f"{status.st_size} bytes", _SHORTER)
            # Never the cap itself: a read takes as much memory as it asks for, and files grow.
            data += file.read(max(status.st_size - len(data), 0))
        if b"\0" in data:
            raise _unread(path, "a text file", f"{len(data)} bytes with NUL in them", fix)
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise _unread(path, "a text file", error.strerror or str(error), fix) from error
    except UnicodeDecodeError as error:
        raise _unread(path, "a text file", "bytes that are not UTF-8", fix) from error


def first_line(path: Path, most: int = 2000) -> str:
    """Up to `most` bytes of a file's first line, whatever the file holds; raises OSError."""
    with path.open("rb") as file:
        return file.readline(most).decode("utf-8-sig", "replace")


def _unread(path: Path, expected: str, found: str, fix: str) -> SlipstreamError:
    return SlipstreamError(f"{path} can't be read", expected=expected, found=found, fix=fix)
