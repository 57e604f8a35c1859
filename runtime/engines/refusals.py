"""Why an engine is refused, and the command that builds it again, ready to be run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.engines.engine_files import OPTION, is_default
from runtime.engines.key import Sidecar, sm_name
from runtime.errors import EngineError

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
_NAME = re.compile(
    r"(?P<graph>\w+)-(?P<precision>\w+)-sm(?P<sm>[0-9]+)-(?P<flavour>tensorrt(?:-rtx)?)-[0-9.]+-"
)


class Refusals:
    """The errors of one store.

    Args:
        folder: the store's.
        bundle: the bundle's folder, if it is known.
    """

    def __init__(self, folder: Path, bundle: str | None) -> None:
        self.folder, self.bundle = folder, bundle

    def refusal(
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
        """An error about a file.

        Args:
            wanted: fields of the key that is asked for; None: that of the sidecar or the name.
            sidecar: the engine's own, if it can be read.
            force: the store takes the engine for whole, so building it again has to be forced.
        """
        fields = wanted or (sidecar.key_fields if sidecar else key_in_name(path.name))
        return EngineError(
            f"{path} {what}",
            expected=expected,
            found=found,
            fix=self._rebuild(fields, sidecar, force),
        )

    def differs(
        self, path: Path, wanted: Mapping[str, Any], sidecar: Sidecar, differing: Sequence[str]
    ) -> EngineError:
        """An engine that lacks wanted fields of a key."""
        return self.refusal(
            path,
            _REFUSALS.get(differing[0], f"is for another {differing[0]}"),
            "; ".join(f"{name} {_value(wanted[name])}" for name in differing),
            "; ".join(f"{name} {_value(getattr(sidecar, name))}" for name in differing),
            wanted=wanted,
        )

    def absent(self, wanted: Mapping[str, Any], unusable: int) -> EngineError:
        """No engine of the wanted graph's name at all."""
        return self.refusal(
            self.folder,
            f"has no engine for the graph {wanted['graph']}",
            f"{wanted['precision']} for {sm_name(wanted['compute_capability'])} by "
            f"{wanted['flavour']} {wanted['version']}",
            f"{unusable} that can't be used" if unusable else "none",
            wanted=wanted,
        )

    def _rebuild(
        self, fields: Mapping[str, Any] | None, sidecar: Sidecar | None, force: bool
    ) -> str:
        known = sidecar.bundle_folder if sidecar else None
        bundle = self.bundle or (known if known and Path(known).is_dir() else None)
        folder = None if is_default(self.folder) else self.folder
        options = sidecar.options if sidecar else []
        return rebuild_command(bundle, fields, options=options, folder=folder, force=force)


def rebuild_command(
    bundle: str | None,
    fields: Mapping[str, Any] | None,
    *,
    options: Sequence[str] = (),
    folder: Path | None = None,
    force: bool = False,
) -> str:
    """The `slipstream compile` command for fields of a key.

    Args:
        bundle: None where it isn't known: BUNDLE stands for it.
        fields: None where nothing is known: TARGET stands for them.
        options: further ones, as typed.
        folder: the store's, if it is not the user's own.
    """
    words = ["slipstream", "compile", bundle or "BUNDLE", "--target"]
    if fields is None:
        words.append("TARGET")
    else:
        flavour = str(fields["flavour"]).replace("_", "-")
        words += [sm_name(fields["compute_capability"]), "--precision", fields["precision"]]
        words += ["--flavour", flavour, "--graph", fields["graph"]]
    words += options
    words += [OPTION, str(folder)] if folder else []
    words += ["--force"] if force else []
    return shlex.join(words)


def key_in_name(name: str) -> dict[str, str] | None:
    """The fields of a key that an engine's file name tells."""
    found = _NAME.match(name)
    if found is None:
        return None
    return {
        "graph": found["graph"],
        "precision": found["precision"],
        "compute_capability": f"{found['sm'][:-1]}.{found['sm'][-1]}",
        "flavour": found["flavour"].replace("-", "_"),
    }


def _value(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
