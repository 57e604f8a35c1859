"""A run's own folder, `training` in the checkpoint's: config, log, state, responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel

from runtime.errors import SlipstreamError
from runtime.files import check_writable, write_atomic
from runtime.lock import LOCK, held

CONFIG = "config.json"
OUT = "`out` in the config"  # as an option is named


class RunFolder:
    """Where a run lives, and whether it may begin there or go on.

    Attributes:
        path: `out/training`.
        settled: what the run was begun with.
    """

    def __init__(self, out: Path, config: BaseModel) -> None:
        self.out, self.path = out, out / "training"
        self.settled = config.model_dump(mode="json")

    @contextmanager
    def opened(self, resume: bool, command: str) -> Iterator[None]:
        """Begin a run or go on with one, alone in its folder inside the block.

        Args:
            resume: a run that is there is continued.
            command: what the user gave, for the advice.

        Raises:
            SlipstreamError: another run or process, or files that are no run's, are in the way.
        """
        check_writable(self.path, folder=True, option=OUT)
        with held(self.path / LOCK, OUT, self._refuse):
            self._open(resume, command)
            yield

    def _refuse(self) -> None:
        raise SlipstreamError(
            f"another process trains in {self.out}",
            expected="one process in a run's folder",
            found=f"{self.path / LOCK} is held",
            fix=f"wait until it has ended; or change {OUT} to begin a run beside it",
        )

    def _open(self, resume: bool, command: str) -> None:
        begun = self.path / CONFIG
        if not begun.is_file():
            if others := self._others():
                raise SlipstreamError(
                    f"{self.out} is not replaced by a checkpoint",
                    expected="a new folder, an empty one, or an earlier run",
                    found=", ".join(others[:5]),
                    fix=f"change {OUT}",
                )
            write_atomic(begun, json.dumps(self.settled, indent=1) + "\n", option=OUT)
            return
        if not resume:
            raise SlipstreamError(
                f"an unfinished run lies in {self.out}"
                if not (self.out / "model.safetensors").exists()
                else f"{self.out} holds a finished run",
                expected="a new folder, or --resume to go on with this run",
                found=str(begun),
                fix=f"add --resume: {command} --resume; or change {OUT}",
            )
        self._check_same(begun)

    def _others(self) -> list[str]:
        """What lies in the folder; a run that was killed while it began has left hidden files."""
        entries = [entry for entry in self.out.iterdir() if entry != self.path]
        inside = [entry for entry in self.path.iterdir() if not entry.name.startswith(".")]
        return sorted(str(entry.relative_to(self.out)) for entry in (*entries, *inside))

    def _check_same(self, begun: Path) -> None:
        try:
            before = json.loads(begun.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise SlipstreamError(
                f"{begun} can't be read",
                expected="the config that the run was begun with",
                found=str(error),
                fix=f"remove {self.path} and train from the start",
            ) from error
        changed = sorted(name or "config" for name in _differing(before, self.settled))
        if changed:
            raise SlipstreamError(
                f"{self.out} was begun with another config",
                expected=f"the same {changed[0]} as in {begun}",
                found=f"a change of {', '.join(changed)}",
                fix=f"undo the change, or change {OUT} to begin a new run",
            )


def _differing(one: object, other: object, name: str = "") -> list[str]:
    """Dotted names of fields that are not the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        inner = [
            _differing(one.get(key), other.get(key), f"{name}.{key}" if name else str(key))
            for key in keys
        ]
        return [each for found in inner for each in found]
    return [] if one == other else [name]
