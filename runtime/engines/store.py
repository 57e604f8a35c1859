"""Built engines on disk: each under a key of all that it depends on, with a JSON sidecar beside it.

An engine that does not fit is refused with what differs and the command that builds it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runtime.engines.engine_files import (
    ENDINGS,
    ENGINE,
    LAYERS,
    OPTION,
    SIDECAR,
    beside,
    damage,
    default_folder,
    delete,
    engine_of,
    size_of,
)
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
from runtime.engines.refusals import Refusals
from runtime.errors import EngineError
from runtime.files import sha256, write_atomic
from runtime.lock import LOCK, held

__all__ = [
    "EngineKey",
    "EngineStore",
    "Flavour",
    "Precision",
    "Sidecar",
    "StoredEngine",
    "TensorInfo",
    "beside",
    "default_folder",
    "graph_digest",
    "sm_name",
]


@dataclass(frozen=True)
class StoredEngine:
    """An engine file found in a store; `problem` says why it can't be used, whatever is asked."""

    path: Path
    sidecar: Sidecar | None
    problem: str | None
    size: int


class EngineStore:
    """A folder of engines.

    Args:
        folder: None takes `default_folder()`.
        bundle: the bundle's folder, for the command that an error names.
    """

    def __init__(self, folder: str | Path | None = None, bundle: str | Path | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_folder()
        self._refusals = Refusals(self.folder, str(bundle) if bundle is not None else None)

    def path(self, key: EngineKey) -> Path:
        """Where the engine of a key lies, or would."""
        return self.folder / key.filename

    @contextmanager
    def building(self, key: EngineKey, waiting: Callable[[], None]) -> Iterator[None]:
        """Keep others from building a key's engine inside the block.

        Args:
            waiting: called once if another process is at it, before waiting for that.

        Raises:
            SlipstreamError: the folder can't be written.
        """
        with held(self.folder / f".{key.stem}{LOCK}", OPTION, waiting):
            yield

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
            raise self._refusal(path, "is empty", "a built engine", "0 bytes", sidecar=sidecar)
        told = (sidecar.key, sidecar.size, sidecar.sha256)
        if told != (key, len(raw), hashlib.sha256(raw).hexdigest()):
            what = "does not fit its sidecar"
            raise self._refusal(path, what, "one engine", "two", wanted=asdict(key))
        for ending in ENDINGS:  # never an old sidecar with a new engine
            delete(beside(path, ending))
        write_atomic(path, raw, OPTION)
        if layers is not None:
            write_atomic(beside(path, LAYERS), layers, OPTION)
        write_atomic(beside(path, SIDECAR), sidecar.model_dump_json(indent=1), OPTION)
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
            raise self._refusals.differs(path, known, sidecar, differing)
        if problem := damage(path, sidecar):
            raise self._refusal(path, *problem, sidecar=sidecar)
        if (found := self._sha256(path, sidecar)) != sidecar.sha256:
            expected = f"SHA-256 {sidecar.sha256}"
            raise self._refusal(path, "was altered", expected, found, sidecar=sidecar)
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
        return self.refused(file, "can't be read", "the layers as compile recorded them", found)

    def refused(self, path: Path, what: str, expected: str, found: str) -> EngineError:
        """The error for a file of an engine that `check` takes for whole."""
        try:
            sidecar = self._read_sidecar(engine_of(path))
        except EngineError:
            sidecar = None
        return self._refusal(path, what, expected, found, sidecar=sidecar, force=True)

    def entries(self) -> list[StoredEngine]:
        """All engines, newest first; those that can't be used have a problem. Hashes are not read:
        `check` does that."""
        found = [self._entry(path) for path in sorted(self.folder.glob(f"*{ENGINE}"))]
        return sorted(found, key=lambda e: e.sidecar.built_at if e.sidecar else "", reverse=True)

    def _entry(self, path: Path) -> StoredEngine:
        size = size_of(path)
        if not path.is_file():
            kind = "a link to nothing" if path.is_symlink() else "no file"
            return StoredEngine(path, None, f"is {kind}", size)
        try:
            sidecar = self._read_sidecar(path)
        except EngineError as error:
            return StoredEngine(path, None, error.what.removeprefix(f"{path} "), size)
        damaged = damage(path, sidecar)
        return StoredEngine(path, sidecar, damaged[0] if damaged else None, size)

    def _read_sidecar(self, path: Path, wanted: Mapping[str, Any] | None = None) -> Sidecar:
        file = beside(path, SIDECAR)
        try:
            if file.exists() and not file.is_file():  # reading a pipe would wait for ever
                raise OSError("no file")
            sidecar = Sidecar.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise self._refusal(
                path, "has no sidecar", f"{file}", "no such file", wanted=wanted
            ) from None
        except (OSError, ValidationError, ValueError) as error:
            what, found = "has a sidecar that can't be read", _first_problem(error)
            raise self._refusal(path, what, f"a whole {file.name}", found, wanted=wanted) from error
        if sidecar.key.filename != path.name:
            what = "has another engine's sidecar"
            raise self._refusal(path, what, sidecar.key.filename, path.name, wanted=wanted)
        return sidecar

    def _none_fits(self, wanted: Mapping[str, Any]) -> EngineError:
        """Why none of the engines of this graph's name will do, by the one that comes closest."""
        entries = self.entries()
        near = [
            (differences(wanted, entry.sidecar), entry.path, entry.sidecar)
            for entry in entries
            if entry.sidecar and entry.sidecar.graph == wanted["graph"]
        ]
        if near:
            differing, path, sidecar = min(near, key=lambda item: len(item[0]))
            return self._refusals.differs(path, wanted, sidecar, differing)
        return self._refusals.absent(wanted, sum(entry.sidecar is None for entry in entries))

    def _sha256(self, path: Path, sidecar: Sidecar) -> str:
        try:
            return sha256(path)
        except OSError as error:
            found = error.strerror or str(error)
            what = "can't be read"
            raise self._refusal(path, what, "a readable file", found, sidecar=sidecar) from error

    def _refusal(
        self,
        path: Path,
        what: str,
        expected: str,
        found: str,
        *,
        wanted: Mapping[str, Any] | None = None,
        sidecar: Sidecar | None = None,
        force: bool = False,
    ) -> EngineError:
        return self._refusals.refusal(
            path, what, expected, found, wanted=wanted, sidecar=sidecar, force=force
        )


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error)
