"""Checkpoints in the Hugging Face layout, read with numpy alone: config.json and safetensors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from runtime.errors import SlipstreamError

Floats = NDArray[np.float32]

_HEADER_LIMIT = 100 << 20  # bytes; the format's own limit
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "BOOL": 1}
_WEIGHTS = ("F32", "F16", "BF16")


class CheckpointError(SlipstreamError):
    """A checkpoint's config or weights are missing, damaged or of an unknown kind."""


@dataclass(frozen=True)
class Location:
    """Where one tensor lies: file, first byte, dtype as safetensors names it, shape."""

    path: Path
    start: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder whose headers were read; tensors are read when asked for.

    Attributes:
        folder: where config.json lies.
        config: its content.
        tensors: every tensor's place by name.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Location]

    @classmethod
    def open(cls, folder: str | Path) -> Checkpoint:
        """Read config.json and the safetensors headers (one file, or shards by their index).

        Raises:
            CheckpointError: a file is missing, cut short or no safetensors file.
        """
        folder = Path(folder)
        config = _read_json(folder / "config.json", folder)
        tensors: dict[str, Location] = {}
        for path in _weight_files(folder):
            tensors.update(_read_header(path))
        return cls(folder, config, tensors)

    def tensor(self, name: str, *shape: int) -> Floats:
        """One tensor as fp32, of exactly this shape.

        Raises:
            CheckpointError: it is missing, has another shape, or holds a number that isn't finite.
        """
        place = self._place(name, shape)
        if place.dtype not in _WEIGHTS:
            raise self.unfit(name, f"a tensor of {', '.join(_WEIGHTS)}", place.dtype)
        values = _decode(place)
        if not np.isfinite(values).all():
            raise CheckpointError(
                f"{place.path}: {name} holds numbers that are not finite",
                expected="finite weights",
                found=f"{int((~np.isfinite(values)).sum())} of {values.size} are NaN or infinite",
                fix="train or save the checkpoint again",
            )
        return values

    def integers(self, name: str, *shape: int) -> NDArray[np.int64]:
        """One tensor of whole numbers, of exactly this shape.

        Raises:
            CheckpointError: it is missing, or has another shape or type.
        """
        place = self._place(name, shape)
        if place.dtype != "I64":
            raise self.unfit(name, "a tensor of I64", place.dtype)
        values = np.fromfile(place.path, "<i8", prod(place.shape), offset=place.start)
        return values.reshape(place.shape).astype(np.int64, copy=False)

    def unfit(self, name: str, expected: str, found: object) -> CheckpointError:
        """An error about what a tensor holds."""
        return CheckpointError(
            f"{self.tensors[name].path}: {name} can't be used",
            expected=expected,
            found=str(found)[:80],
            fix="train or save the checkpoint again",
        )

    def _place(self, name: str, shape: tuple[int, ...]) -> Location:
        place = self.tensors.get(name)
        if place is None:
            raise CheckpointError(
                f"{self.folder} lacks the tensor {name}",
                expected=f"{name} of shape {list(shape)}",
                found=f"{len(self.tensors)} tensors, e.g. {', '.join(sorted(self.tensors)[:3])}",
                fix="save the whole checkpoint again with save_pretrained",
            )
        if place.shape != shape:
            raise CheckpointError(
                f"{place.path}: {name} has the wrong shape",
                expected=f"{list(shape)}, as {self.folder / 'config.json'} says",
                found=str(list(place.shape)),
                fix="use the config.json that was saved with these weights",
            )
        return place


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    weight_map = _read_json(index, folder).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{index} has no weight_map",
            expected="an object from tensor name to file name",
            found=type(weight_map).__name__,
            fix="save the checkpoint again with save_pretrained",
        )
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(
                f"{index} names a file outside of its folder",
                expected="plain file names",
                found=name,
                fix="save the checkpoint again with save_pretrained",
            )
    return [folder / name for name in names]


def _read_json(path: Path, folder: Path) -> dict[str, Any]:
    try:
        content = from_json(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"{folder} is no checkpoint folder",
            expected=f"a file {path}",
            found="none",
            fix="name a folder written by save_pretrained, with config.json and model.safetensors",
        ) from None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} can't be read",
            expected="JSON text",
            found=str(error),
            fix="copy or save the checkpoint again",
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} is not valid",
            expected="a JSON object",
            found=type(content).__name__,
            fix="copy or save the checkpoint again",
        )
    return content


def _read_header(path: Path) -> dict[str, Location]:
    """Parse a safetensors header: 8 bytes of length, JSON, then the tensors' bytes."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
                raise ValueError(f"a header of {length} bytes in a file of {size} bytes")
            header = from_json(file.read(length))
        places = {
            str(name): _location(path, 8 + length, size, entry)
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing",
            expected="the checkpoint's weights",
            found="no such file",
            fix="copy the whole checkpoint folder",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged or no safetensors file",
            expected="a whole safetensors file of F32, F16 or BF16 tensors",
            found=str(error) or type(error).__name__,
            fix="copy or save the checkpoint again (pickled .bin weights are never loaded)",
        ) from error
    return places


def _location(path: Path, data: int, size: int, entry: dict[str, Any]) -> Location:
    dtype, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
    start, stop = (int(n) for n in entry["data_offsets"])
    if dtype not in _BYTES:
        raise ValueError(f"a tensor of dtype {dtype}")
    if min(shape, default=1) < 0 or start < 0 or stop - start != prod(shape) * _BYTES[dtype]:
        raise ValueError(f"offsets {start}..{stop} for shape {list(shape)} of {dtype}")
    if data + stop > size:
        raise ValueError(f"{size} bytes where {data + stop} are needed: it was cut short")
    return Location(path, data + start, dtype, shape)


def _decode(place: Location) -> Floats:
    count = prod(place.shape)
    if place.dtype == "BF16":
        halves = np.fromfile(place.path, "<u2", count, offset=place.start)
        # bf16 is the upper half of an fp32
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(place.shape)
    kind = "<f4" if place.dtype == "F32" else "<f2"
    values = np.fromfile(place.path, kind, count, offset=place.start)
    return values.astype(np.float32, copy=False).reshape(place.shape)
