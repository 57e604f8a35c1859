"""What is known about weights beside their numbers: their name, data and licences, kept with them.

Nothing in a checkpoint says what it was trained on. Who exports first says it; a later export of
the very same weights finds it in the earlier bundle.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from export.checkpoint import Checkpoint
from runtime.bundle import MANIFEST, Manifest
from runtime.files import sha256

# names that say what kind of folder it is, not which
_GENERIC = re.compile(
    r"(target|drafter?|model|checkpoints?|weights|hf|best|last|latest|final)([-_]\d+)?|\d+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Record:
    """An earlier bundle's name, data and licences, and where that bundle lies."""

    name: str
    data: tuple[str, ...]
    licences: tuple[str, ...]
    folder: Path


def earlier_record(weights: dict[str, str], target: Path, out: Path) -> Record | None:
    """The record of an earlier bundle of the same weights.

    Looked for in the bundle that is replaced, then beside the target and in its folder. A record
    that speaks of other weights is never taken over.

    Args:
        weights: from `weights_of`; a bundle with a drafter more holds for the target alone too.
    """
    home = target.resolve()
    found = (path.parent for path in sorted(home.parent.glob(f"*/{MANIFEST}")))
    for folder in (out, *found, home):
        try:
            manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except (OSError, ValidationError):  # none, or not of this version
            continue
        known = manifest.provenance
        if weights.items() <= known.weights.items():
            return Record(manifest.name, tuple(known.data), tuple(known.licences), folder)
    return None


def weights_of(
    target: Checkpoint, drafter: Checkpoint | None, markov: Checkpoint | None = None
) -> dict[str, str]:
    """SHA-256 over the weight files of each checkpoint, in the order of their names.

    Args:
        markov: the file of the target's own Markov head, which counts as the target's.
    """
    weights = {"target": _digest(target, *([markov] if markov else []))}
    return weights | ({"drafter": _digest(drafter)} if drafter else {})


def folder_name(folder: Path) -> str:
    """A name for what the folder holds; `tiny/target` is called tiny."""
    path = folder.resolve()
    while _GENERIC.fullmatch(path.name) and path.parent.name:
        path = path.parent
    return path.name or "bundle"


def checkpoint_name(folder: Path) -> str:
    """The folder's name, with the one that says which it is: `tiny/target`."""
    path, name = folder.resolve(), folder_name(folder)
    return name if name == path.name else f"{name}/{path.name}"


def _digest(*parts: Checkpoint) -> str:
    files = sorted({place.path for part in parts for place in part.tensors.values()})
    return hashlib.sha256("".join(sha256(path) for path in files).encode()).hexdigest()
