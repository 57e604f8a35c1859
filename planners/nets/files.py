"""The weight files of a checkpoint folder: one safetensors file, or shards and their index."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor by name, as stored; an index goes before a single file.

    Raises:
        OSError, SafetensorError: a file is missing or damaged.
        ValueError: the index is no JSON, names files outside of the folder, or misses tensors.
    """
    if not (folder / INDEX).is_file():
        found: dict[str, Tensor] = load_file(folder / WEIGHTS)
        return found
    index = json.loads((folder / INDEX).read_text("utf-8"))
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{INDEX} has no weight_map from tensor name to file name")
    files = sorted({str(name) for name in places.values()})
    if outside := [name for name in files if Path(name).name != name]:
        raise ValueError(f"{INDEX} names {outside[0]}, a file outside of its folder")
    tensors = {name: value for file in files for name, value in load_file(folder / file).items()}
    if missing := sorted(places.keys() - tensors.keys()):
        raise ValueError(f"the shards lack {missing[0]}, which {INDEX} names")
    return tensors
