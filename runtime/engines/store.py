"""Built engines on disk: each under a key of all that it depends on, with a JSON sidecar beside it.

An engine that does not fit is refused with what differs and the command that builds it again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runtime.engines.key import (
    EngineKey,
    Flavour,
    Precision,
    Sidecar,
    TensorInfo,
    differences,
    graph_digest,
    sm_name,
)
from runtime.errors import EngineError
from runtime.files import sha256, sweep, unwritable, write_atomic

__all__ = [
    "EngineKey",
    "EngineStore",
    "Flavour",
    "Precision",
    "Removed",
    "Sidecar",
    "StoredEngine",
    "TensorInfo",
    "beside",
    "default_folder",
    "graph_digest",
    "sm_name",
]
ENGINE, SIDECAR, LAYERS = ".engine", ".json", ".layers.json"
_OPTION = "--engines"  # of the commands that write here
_UNNAMED = "BUNDLE"  # in the command that rebuilds, where no bundle is known


_REFUSALS = {
    "graph_sha256": "is of another graph: the bundle was exported again, or it is another bundle",
    "flavour": "was built by the other TensorRT",
    "version": "was built by another version of TensorRT",
    "compute_capability": "was built for another GPU",
    "precision": "has another precision",
    "profile": "has other profiles",
    "flags": "was built with other flags",
    "timing_cache_sha256": "was built from another timing cache",
}


@dataclass(frozen=True)
class StoredEngine:
    """An engine file found in a store; `problem` says why it can't be used, whatever is asked."""

    path: Path
    sidecar: Sidecar | None
    problem: str | None
    size: int


@dataclass(frozen=True)
class Removed:
    """A file that `prune` took away (or would, when dry)."""

    path: Path
    reason: str
    size: int


class EngineStore:
    """A folder of engines.

    Args:
        folder: None takes `default_folder()`.
        bundle: the bundle's folder, for the command that an error names.
    """

    def __init__(self, folder: str | Path | None = None, bundle: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self.bundle = str(bundle) if bundle is not None else _UNNAMED

    def path(self, key: EngineKey) -> Path:
        """Where the engine of a key lies, or would."""
        return self.folder / key.filename

    def put(
        self,
        key: EngineKey,
        engine: bytes | memoryview,
        sidecar: Sidecar,
        layers: str | None = None,
    ) -> Path:
        """Store an engine, what the inspector said of its layers (JSON), and its sidecar, last.

        Raises:
            EngineError: the engine is empty, or the sidecar describes another one.
            SlipstreamError: the folder can't be written.
        """
        path = self.path(key)
        raw = bytes(engine)
        if not raw:
            raise self._refusal(path, "is empty", "a built engine", "0 bytes", key)
        told = (sidecar.key, sidecar.size, sidecar.sha256)
        if told != (key, len(raw), hashlib.sha256(raw).hexdigest()):
            raise self._refusal(path, "does not fit its sidecar", "one engine", "two", key)
        for ending in (SIDECAR, LAYERS, ENGINE):  # never an old sidecar with a new engine
            _delete(beside(path, ending))
        write_atomic(path, raw, _OPTION)
        if layers is not None:
            write_atomic(beside(path, LAYERS), layers, _OPTION)
        write_atomic(beside(path, SIDECAR), sidecar.model_dump_json(indent=1), _OPTION)
        return path

    def get(self, key: EngineKey) -> tuple[Path, Sidecar]:
        """The engine of exactly this key, its file checked against the sidecar's SHA-256.

        Raises:
            EngineError: missing, or what is there is stale, foreign, truncated, empty or altered.
        """
        path = self.path(key)
        if path.exists() or beside(path, SIDECAR).exists():
            return path, self.check(path, asdict(key))
        raise self._none_fits(asdict(key))

    def find(
        self,
        *,
        graph: str,
        graph_sha256: str,
        precision: Precision,
        flavour: Flavour,
        version: str,
        compute_capability: str,
    ) -> tuple[Path, Sidecar]:
        """The newest engine that this device can run for a graph, whatever its profiles and flags.

        Raises:
            EngineError: as `get`.
        """
        wanted: dict[str, Any] = {
            "graph": graph,
            "graph_sha256": graph_sha256,
            "precision": precision,
            "flavour": flavour,
            "version": version,
            "compute_capability": compute_capability,
        }
        fitting = [
            entry
            for entry in self.entries()
            if entry.sidecar and not differences(wanted, entry.sidecar)
        ]
        if not fitting:
            raise self._none_fits(wanted)
        newest = max(fitting, key=lambda entry: entry.sidecar.built_at if entry.sidecar else "")
        return newest.path, self.check(newest.path, wanted)

    def check(self, path: Path, wanted: Mapping[str, Any] | None = None) -> Sidecar:
        """The sidecar of an engine file that is whole and has the `wanted` fields of a key.

        Raises:
            EngineError: as `get`.
        """
        known = dict(wanted) if wanted is not None else None
        sidecar = self._read_sidecar(path, known)
        if known is not None and (differing := differences(known, sidecar)):
            raise self._differs(path, known, sidecar, differing)
        if problem := _damage(path, sidecar):
            raise self._refusal(path, problem[0], problem[1], problem[2], known or sidecar.key)
        if (found := sha256(path)) != sidecar.sha256:
            raise self._refusal(
                path, "was altered", f"SHA-256 {sidecar.sha256}", found, known or sidecar.key
            )
        return sidecar

    def layers(self, path: Path) -> str | None:
        """What was recorded of an engine's layers at its build, JSON.

        Raises:
            EngineError: the record can't be read.
        """
        recorded = beside(path, LAYERS)
        try:
            return recorded.read_text(encoding="utf-8") if recorded.is_file() else None
        except (OSError, UnicodeDecodeError) as error:
            raise self.bad_layers(path, str(error)) from error

    def bad_layers(self, path: Path, found: str) -> EngineError:
        """The error for a record of an engine's layers that is not whole."""
        file = beside(path, LAYERS)
        what = "can't be read"
        return self._refusal(file, what, "the layers as compile recorded them", found, None)

    def entries(self) -> list[StoredEngine]:
        """All engines, newest first; those that can't be used have a problem. Hashes are not read:
        `check` does that."""
        found = [self._entry(path) for path in sorted(self.folder.glob(f"*{ENGINE}"))]
        return sorted(found, key=lambda e: e.sidecar.built_at if e.sidecar else "", reverse=True)

    def prune(
        self, unwanted: Callable[[Sidecar], str | None] | None = None, *, dry_run: bool = False
    ) -> list[Removed]:
        """Remove engines that can't be used, what broken writes left, and what is not wanted.

        A folder with something in it is no engine's and stays.

        Args:
            unwanted: gives the reason to remove a sound engine, or None to keep it.
            dry_run: say what would go, and leave it.
        """
        removed: list[Removed] = []
        for entry in self.entries():
            reason = entry.problem
            if reason is None and unwanted is not None and entry.sidecar is not None:
                reason = unwanted(entry.sidecar)
            if reason is not None and not _is_filled(entry.path):
                removed.append(Removed(entry.path, reason, entry.size))
        engines = {entry.path for entry in self.entries()}
        for path in sorted(self.folder.glob(f"*{SIDECAR}")):
            base = path.name.removesuffix(LAYERS).removesuffix(SIDECAR)
            if path.with_name(base + ENGINE) not in engines and not _is_filled(path):
                removed.append(Removed(path, "its engine is gone", _size(path)))
        if dry_run:
            return removed
        for item in removed:
            self._remove(item.path)
        return removed + self._sweep()

    def _sweep(self) -> list[Removed]:
        """Remove what killed writers left; a writer that is at work keeps its file."""
        left = [(path, _size(path)) for path in self.folder.glob(".*.tmp")]
        for path, _ in left:
            sweep(path.with_name(path.name.removeprefix(".").rsplit(".", 3)[0]))
        reason = "a write that was broken off"
        return [Removed(path, reason, size) for path, size in left if not os.path.lexists(path)]

    def _remove(self, path: Path) -> None:
        """The sidecar first: an engine without one is never used."""
        endings = (SIDECAR, LAYERS, ENGINE) if path.name.endswith(ENGINE) else ()
        for file in (*(beside(path, ending) for ending in endings), path):
            if not _is_filled(file):
                _delete(file)

    def _entry(self, path: Path) -> StoredEngine:
        size = _size(path)
        if not path.is_file():
            kind = "a link to nothing" if path.is_symlink() else "no file"
            return StoredEngine(path, None, f"is {kind}", size)
        try:
            sidecar = self._read_sidecar(path, None)
        except EngineError as error:
            return StoredEngine(path, None, error.what.removeprefix(f"{path} "), size)
        damage = _damage(path, sidecar)
        return StoredEngine(path, sidecar, damage[0] if damage else None, size)

    def _read_sidecar(self, path: Path, wanted: Mapping[str, Any] | None) -> Sidecar:
        file = beside(path, SIDECAR)
        try:
            if file.exists() and not file.is_file():  # reading a pipe would wait for ever
                raise OSError("no file")
            sidecar = Sidecar.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise self._refusal(path, "has no sidecar", f"{file}", "no such file", wanted) from None
        except (OSError, ValidationError, ValueError) as error:
            found = _first_problem(error)
            raise self._refusal(
                path, "has a sidecar that can't be read", f"a whole {file.name}", found, wanted
            ) from error
        if sidecar.key.filename != path.name:
            raise self._refusal(
                path, "has another engine's sidecar", sidecar.key.filename, path.name, wanted
            )
        return sidecar

    def _none_fits(self, wanted: Mapping[str, Any]) -> EngineError:
        """Why none of the engines of this graph's name will do, by the one that comes closest."""
        near = [
            (differences(wanted, entry.sidecar), entry.path, entry.sidecar)
            for entry in self.entries()
            if entry.sidecar and entry.sidecar.graph == wanted["graph"]
        ]
        if near:
            differing, path, sidecar = min(near, key=lambda item: len(item[0]))
            return self._differs(path, wanted, sidecar, differing)
        broken = [entry for entry in self.entries() if entry.sidecar is None]
        known = f"{len(broken)} that can't be used" if broken else "none"
        return self._refusal(
            self.folder,
            f"has no engine for the graph {wanted['graph']}",
            _described(wanted),
            known,
            wanted,
        )

    def _differs(
        self, path: Path, wanted: Mapping[str, Any], sidecar: Sidecar, differing: list[str]
    ) -> EngineError:
        return self._refusal(
            path,
            _REFUSALS.get(differing[0], f"is for another {differing[0]}"),
            "; ".join(f"{name} {_value(wanted[name])}" for name in differing),
            "; ".join(f"{name} {_value(getattr(sidecar, name))}" for name in differing),
            wanted,
        )

    def _refusal(
        self, path: Path, what: str, expected: str, found: str, wanted: object
    ) -> EngineError:
        fields = asdict(wanted) if isinstance(wanted, EngineKey) else wanted
        return EngineError(
            f"{path} {what}",
            expected=expected,
            found=found,
            fix=rebuild_command(self.bundle, fields if isinstance(fields, Mapping) else None),
        )


def rebuild_command(bundle: str, wanted: Mapping[str, Any] | None) -> str:
    """The `slipstream compile` command for what a key wants, on the machine it is wanted for."""
    if wanted is None:
        return f"slipstream compile {bundle} --target TARGET"
    flavour = str(wanted["flavour"]).replace("_", "-")
    command = (
        f"slipstream compile {bundle} --target {sm_name(wanted['compute_capability'])} "
        f"--precision {wanted['precision']} --flavour {flavour}"
    )
    return f"{command} --graph {wanted['graph']}"


def beside(path: Path, ending: str) -> Path:
    """The file of another kind that belongs to an engine file."""
    return path.with_name(path.name.removesuffix(ENGINE) + ending)


def default_folder() -> Path:
    """The user's cache folder: a bundle may lie on a read-only mount, and engines are remade."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "slipstream" / "engines"


def _damage(path: Path, sidecar: Sidecar) -> tuple[str, str, str] | None:
    """What is wrong with a file by its size alone: what, expected, found."""
    size = path.stat().st_size if path.is_file() else None
    wanted = f"{sidecar.size} bytes"
    if size is None:
        return "is missing", wanted, "no such file"
    if size == 0:
        return "is empty", wanted, "0 bytes"
    if size < sidecar.size:
        return "is truncated", wanted, f"{size} bytes"
    if size > sidecar.size:
        return "was altered", wanted, f"{size} bytes"
    return None


def _size(path: Path) -> int:
    """Bytes of a file, behind a link too; 0 of what is no file."""
    return path.stat().st_size if path.is_file() else 0


def _is_filled(path: Path) -> bool:
    """Whether a path is a folder that has something in it."""
    return path.is_dir() and not path.is_symlink() and any(path.iterdir())


def _delete(path: Path) -> None:
    """Remove a file, a link or an empty folder, if there is one.

    Raises:
        SlipstreamError: it can't be removed.
    """
    remove = Path.rmdir if path.is_dir() and not path.is_symlink() else Path.unlink
    try:
        with suppress(FileNotFoundError, NotADirectoryError):  # told when it is written to
            remove(path)
    except OSError as error:
        raise unwritable(path, error, _OPTION) from error


def _value(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _described(wanted: Mapping[str, Any]) -> str:
    return (
        f"{wanted['precision']} for {sm_name(wanted['compute_capability'])} by "
        f"{wanted['flavour']} {wanted['version']}"
    )


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error)
