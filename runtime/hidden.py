"""Hidden names that stand for an output while it is written, and what killed writers leave of them.

`.NAME.WHERE-PID.x.tmp` stands beside the output NAME. Without NAME, `..WHERE-PID.x.tmp`, it stands
in the output itself: a folder that can be filled, but not renamed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

STALE_S = 3600.0  # without a change, when the writer's machine can't be asked
NEW, OLD, SWAP = ".tmp", ".old", ".swap"  # being written; being replaced; both, in a filled folder
TAKEN, COMPLETE = "old", "new"  # in a SWAP: what was there; what comes, once that is out of the way
_NAME = re.compile(r"\.(.*)\.([0-9a-f]{8})-(\d+)\.\w+(\.tmp|\.old|\.swap)", re.DOTALL)


def hidden_folder(folder: Path, name: str, suffix: str) -> Path:
    """A new one, for the output `name` of a folder; "" for the folder itself."""
    return Path(tempfile.mkdtemp(dir=folder, prefix=prefix(name), suffix=suffix))


def prefix(name: str) -> str:
    """How hidden names begin that this process makes for an output."""
    return f".{name}.{_machine()}-{os.getpid()}."


def stands_for(name: str) -> str | None:
    """The output that a hidden name stands for; None of another name."""
    found = _NAME.fullmatch(name)
    return None if found is None else found[1]


def contents(folder: Path) -> list[Path]:
    """What a folder holds, by name, without what stands in it for itself."""
    return sorted(entry for entry in folder.iterdir() if stands_for(entry.name) != "")


def move(source: Path, target: Path, *, first: str = "", last: str = "") -> None:
    """Rename what a folder holds into another one; `first` and `last` say which entries go when."""
    for entry in sorted(contents(source), key=lambda e: (e.name != first, e.name == last)):
        entry.replace(target / entry.name)


def sweep(path: Path) -> None:
    """Remove what killed writers left beside `path`, and in it; settle what they were replacing.

    Only names made here for this very path go, and only if their writer is gone. A writer on
    another machine, or before a restart, can't be asked: its leavings go after an hour without a
    change.
    """
    for folder, name in ((path.parent, path.name), (path, "")):
        for entry, kind in _stale(folder, name):
            with suppress(OSError):  # what can't be settled stays
                _settle(entry, kind, path)
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()


def _settle(entry: Path, kind: str, path: Path) -> None:
    """Bring back what was being replaced, or complete what was nearly there."""
    if kind == OLD and not path.exists():  # killed between two renames
        with suppress(FileNotFoundError):
            (entry / path.name).replace(path)
    if kind == SWAP and path.is_dir():
        complete = (entry / COMPLETE).is_dir()
        with suppress(FileNotFoundError):
            move(entry / (COMPLETE if complete else TAKEN), path)
        shutil.rmtree(entry / TAKEN, ignore_errors=True)  # before COMPLETE, which says so


def _stale(folder: Path, name: str) -> Iterator[tuple[Path, str]]:
    entries: list[Path] = []
    with suppress(OSError):  # it is no folder, or not ours to list
        entries = list(folder.iterdir())
    for entry in entries:
        found = _NAME.fullmatch(entry.name)
        if found and found[1] == name and _is_gone(entry, found[2], int(found[3])):
            yield entry, found[4]


def _is_gone(entry: Path, machine: str, pid: int) -> bool:
    """Whether the writer is."""
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
