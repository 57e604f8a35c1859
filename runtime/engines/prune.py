"""Removing engines: what can't be used, what broken writes left, what is not wanted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime.engines.engine_files import (
    ENDINGS,
    ENGINE,
    beside,
    delete,
    engine_of,
    is_filled,
    size_of,
)
from runtime.engines.key import Sidecar
from runtime.engines.store import EngineStore
from runtime.files import sweep
from runtime.lock import LOCK, is_held


@dataclass(frozen=True)
class Removed:
    """A file that `prune` took away (or would, when dry)."""

    path: Path
    reason: str
    size: int


def prune(
    store: EngineStore,
    unwanted: Callable[[Sidecar], str | None] | None = None,
    *,
    dry_run: bool = False,
) -> list[Removed]:
    """Remove engines with all that belongs to them.

    A folder with something in it is no engine's and stays.

    Args:
        unwanted: gives the reason to remove a sound engine, or None to keep it.
        dry_run: say what would go, and leave it.

    Raises:
        SlipstreamError: something can't be removed.
    """
    removed: list[Removed] = []
    entries = store.entries()
    for entry in entries:
        reason = entry.problem
        if reason is None and unwanted is not None and entry.sidecar is not None:
            reason = unwanted(entry.sidecar)
        if reason is not None and not is_filled(entry.path):
            removed.append(Removed(entry.path, reason, entry.size))
    engines = {entry.path for entry in entries}
    for path in sorted(store.folder.glob("*")):
        if engine_of(path) not in {path, *engines} and not is_filled(path):
            removed.append(Removed(path, "its engine is gone", size_of(path)))
    if dry_run:
        return removed
    for item in removed:
        _remove(item.path)
    return removed + _sweep(store.folder)


def _remove(path: Path) -> None:
    whole = path.name.endswith(ENGINE)
    for file in [beside(path, ending) for ending in ENDINGS] if whole else [path]:
        if not is_filled(file):
            delete(file)


def _sweep(folder: Path) -> list[Removed]:
    """Remove what killed writers left; a writer that is at work keeps its file."""
    left = [(path, size_of(path)) for path in folder.glob(".*.tmp")]
    for path, _ in left:
        sweep(path.with_name(path.name.removeprefix(".").rsplit(".", 3)[0]))
    for path in folder.glob(f".*{LOCK}"):
        if not is_held(path):
            delete(path)
    reason = "a write that was broken off"
    return [Removed(path, reason, size) for path, size in left if not os.path.lexists(path)]
