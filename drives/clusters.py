"""Scenario clusters of WOD-E2E sequences, which its leaderboard averages over."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from runtime.errors import SlipstreamError
from runtime.json_text import parsed

_MOST = 64 << 20  # bytes
_KEY = "scenario_cluster"


def read_clusters(path: Path) -> dict[str, str]:
    """Sequence -> cluster from the data set's `val_sequence_name_to_scenario_cluster.json`.

    Raises:
        SlipstreamError: no file, too large, no JSON, or entries of another form.
    """
    try:
        if not path.is_file():  # a pipe would never end
            raise _bad(path, "no file" if not path.exists() else "no regular file")
        with path.open("rb") as file:
            raw = file.read(_MOST + 1)
        if len(raw) > _MOST:
            raise _bad(path, f"over {_MOST >> 20} MiB")
        entries: Any = parsed(raw)
    except (OSError, ValueError) as error:
        found = (str(error).splitlines() or [type(error).__name__])[0]
        raise _bad(path, found[:200]) from error
    if not isinstance(entries, dict) or not entries:
        raise _bad(path, type(entries).__name__ if entries else "nothing in it")
    clusters = {}
    for sequence, entry in entries.items():
        cluster = entry.get(_KEY) if isinstance(entry, dict) else entry
        if not isinstance(cluster, str) or not cluster:
            raise _bad(path, f"{str(sequence)[:60]}: {str(entry)[:100]}")
        clusters[sequence] = cluster
    return clusters


def clusters_key(clusters: Mapping[str, str]) -> str:
    """Tells one set of clusters from another; "" for none."""
    if not clusters:
        return ""
    return sha256(repr(sorted(clusters.items())).encode()).hexdigest()[:16]


def _bad(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} holds no scenario clusters",
        expected=f'a JSON object: sequence -> {{"{_KEY}": name}}',
        found=found,
        fix="give val_sequence_name_to_scenario_cluster.json of the data set",
    )
