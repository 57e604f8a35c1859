"""TensorRT-RTX's kernels on disk: what it compiled for a GPU's shapes, for the next process.

Without them every start compiles again. TensorRT-RTX itself checks that they are of this GPU,
driver and version; the header here checks that the file is whole and of this very engine. Kernels
only save time: a file that can't be used or written is one warning.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from runtime.engines.engine_files import KERNELS, OPTION, beside
from runtime.errors import SlipstreamError
from runtime.files import write_atomic

MAGIC = b"slipstream kernels 1\n"
KEPT_AFTER = (8, 64, 512)  # passes: a vehicle that loses its power never ends its process


class Kernels:
    """One engine's runtime cache, read when this is made and kept beside the engine.

    Args:
        cache: TensorRT-RTX's `IRuntimeCache`, empty.
        engine: the engine's file.
        sha256: of that file, hex.
    """

    def __init__(self, cache: Any, engine: Path, sha256: str) -> None:
        self.cache, self.path = cache, beside(engine, KERNELS)
        self._mark = MAGIC + bytes.fromhex(sha256)
        self._kept = b""  # what the file holds
        self._passes = 0
        self._writable = True
        if problem := self._read():
            warnings.warn(
                f"{self.path} is not used: {problem}; kernels are compiled again, and it is "
                "written anew",
                RuntimeWarning,
                stacklevel=2,
            )

    def passed(self) -> None:
        """Count a pass of the engine; after some of them, keep what was compiled so far."""
        self._passes += 1
        if self._passes in KEPT_AFTER:
            self.keep()

    def keep(self) -> None:
        """Write the file if there are other kernels than in it."""
        raw = bytes(self.cache.serialize() or b"")
        if not self._writable or not raw or raw == self._kept:
            return
        try:
            write_atomic(self.path, self._mark + hashlib.sha256(raw).digest() + raw, OPTION)
        except SlipstreamError as error:
            self._writable = False
            text = f"{error.what} ({error.found}): the next start compiles its kernels again"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            self._kept = raw

    def _read(self) -> str:
        """Why the file can't be used, or "": it is, or there is none."""
        try:
            if not self.path.is_file():
                return "" if not self.path.exists() else "it is no file"
            raw = self.path.read_bytes()
        except OSError as error:
            return error.strerror or str(error)
        digest, content = raw[len(self._mark) :][:32], raw[len(self._mark) + 32 :]
        if not raw.startswith(MAGIC):
            return "it is of another kind"
        if not raw.startswith(self._mark):
            return "it is of another engine"
        if hashlib.sha256(content).digest() != digest:
            return "it was cut short or altered"
        if not self.cache.deserialize(content):
            return "TensorRT-RTX refuses it, as of another GPU, driver or version"
        self._kept = content
        return ""
