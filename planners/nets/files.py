"""The weight files of a checkpoint folder: one safetensors file, or shards and their index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from planners.drafter_layouts import of_network
from runtime.json_text import parsed

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
    places = read_object(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise ValueError(f"{INDEX} has no weight_map from tensor name to file name")
    files = sorted({str(name) for name in places.values()})
    if outside := [name for name in files if Path(name).name != name]:
        raise ValueError(f"{INDEX} names {outside[0]}, a file outside of its folder")
    tensors = {name: value for file in files for name, value in load_file(folder / file).items()}
    if missing := sorted(places.keys() - tensors.keys()):
        raise ValueError(f"the shards lack {missing[0]}, which {INDEX} names")
    return tensors


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object; raises OSError, or ValueError for what is none."""
    found = parsed(path.read_bytes())
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is no object")
    return found


def as_floats(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A drafter's tensors, numbers as fp32; what is not its own is left out."""
    return {
        name: value.float() if value.is_floating_point() else value
        for name, value in weights.items()
        if of_network(name)
    }
