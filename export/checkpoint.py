"""Checkpoints in the Hugging Face layout, read with numpy alone: config.json and safetensors."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from planners.small_files import exists, small_file
from runtime.errors import SlipstreamError
from runtime.json_text import parsed

Floats = NDArray[np.float32]
Stored = NDArray[Any]  # fp32, fp16 or bf16 (ml_dtypes), as the file has it

_HEADER_LIMIT = 100 << 20  # bytes; the format's own limit
_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "BOOL": 1}
_WEIGHTS = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),  # of the machine's byte order, as all of numpy's
}
_PIECE = 1 << 22  # numbers
_MOST_AXES = 16
_SHARD = re.compile(r"\w[\w.+-]{0,180}\.safetensors")


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
            CheckpointError: a file is missing, cut short or no safetensors file, or the index names
                a tensor that is not in its shard.
        """
        folder = Path(folder)
        config = read_json(folder / "config.json", folder)
        index = folder / "model.safetensors.index.json"
        if not exists(index):
            return cls(folder, config, _read_header(folder / "model.safetensors"))
        return cls(folder, config, _read_shards(index))

    def beside(self, name: str) -> Checkpoint:
        """The tensors of another safetensors file in the folder, and no others.

        Raises:
            CheckpointError: it is missing, cut short or no safetensors file.
        """
        return Checkpoint(self.folder, self.config, _read_header(self.folder / name))

    def tensor(self, name: str, *shape: int) -> Floats:
        """One tensor as fp32, of exactly this shape.

        Raises:
            CheckpointError: as `stored`.
        """
        return self.stored(name, *shape).astype(np.float32, copy=False)

    def stored(self, name: str, *shape: int) -> Stored:
        """One tensor of exactly this shape in the file's own type: fp32, fp16 or bf16.

        Raises:
            CheckpointError: it is missing, has another shape, or holds a number that isn't finite.
        """
        place = self._place(name, shape)
        if place.dtype not in _WEIGHTS:
            raise self.unfit(name, f"a tensor of {', '.join(_WEIGHTS)}", place.dtype)
        values = np.fromfile(place.path, _WEIGHTS[place.dtype], prod(shape), offset=place.start)
        if values.size < prod(shape):  # it was whole when its header was read
            raise self.unfit(name, f"{prod(shape)} numbers", f"{values.size}: it was cut short")
        if bad := sum(int((~np.isfinite(part)).sum()) for part in _pieces(values)):
            raise CheckpointError(
                f"{place.path}: {name} holds numbers that are not finite",
                expected="finite weights",
                found=f"{bad} of {values.size} are NaN or infinite",
                fix="train or save the checkpoint again",
            )
        return values.reshape(shape)

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
                fix="copy or save the whole checkpoint again",
            )
        if place.shape != shape:
            raise CheckpointError(
                f"{place.path}: {name} has the wrong shape",
                expected=f"{list(shape)}, as {self.folder / 'config.json'} says",
                found=str(list(place.shape)),
                fix="use the config.json that was saved with these weights",
            )
        return place


def _read_shards(index: Path) -> dict[str, Location]:
    """All shards' tensors, each where the index says that it is."""
    weight_map = _weight_map(index)
    shards = {name: _read_header(index.parent / name) for name in sorted({*weight_map.values()})}
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise CheckpointError(
                f"{index} names a tensor that is not where it says",
                expected=f"{name} in {shard}",
                found=f"{len(shards[shard])} other tensors there",
                fix="copy the whole checkpoint folder, or save it again with save_pretrained",
            )
    found = {name: place for places in shards.values() for name, place in places.items()}
    return found | {name: shards[shard][name] for name, shard in weight_map.items()}


def _weight_map(index: Path) -> dict[str, str]:
    weight_map = read_json(index, index.parent).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(
            f"{index} has no weight_map",
            expected="an object from tensor name to file name",
            found=type(weight_map).__name__,
            fix="save the checkpoint again with save_pretrained",
        )
    for name in weight_map.values():
        if not isinstance(name, str) or not _SHARD.fullmatch(name):
            raise CheckpointError(
                f"{index} names a file outside of its folder, or one that is no safetensors file",
                expected="plain file names, such as model-00001-of-00002.safetensors",
                found=repr(name)[:120],
                fix="save the checkpoint again with save_pretrained",
            )
    return weight_map


def read_json(path: Path, folder: Path) -> dict[str, Any]:
    """A JSON object in a checkpoint's folder; raises CheckpointError that names the file."""
    try:
        content = parsed(small_file(path))
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
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe may never end
            raise ValueError(f"no regular file: {stat.filemode(status.st_mode)}")
        size = status.st_size
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
        _check_lie_apart(places)
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
            found=str(error)[:200] or type(error).__name__,
            fix="copy or save the checkpoint again (pickled .bin weights are never loaded)",
        ) from error
    return places


def _location(path: Path, data: int, size: int, entry: dict[str, Any]) -> Location:
    dtype, shape, offsets = str(entry["dtype"]), entry["shape"], entry["data_offsets"]
    if dtype not in _BYTES:
        raise ValueError(f"a tensor of dtype {dtype}")
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(shape) > _MOST_AXES:
        raise ValueError(f"shape {shape} and offsets {offsets}"[:200])
    start, stop = offsets
    if stop - start != prod(shape) * _BYTES[dtype]:
        raise ValueError(f"offsets {start}..{stop} for shape {list(shape)} of {dtype}")
    if data + stop > size:
        raise ValueError(f"{size} bytes where {data + stop} are needed: it was cut short")
    return Location(path, data + start, dtype, tuple(shape))


def _are_sizes(numbers: object) -> TypeGuard[list[int]]:
    return isinstance(numbers, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in numbers)


def _check_lie_apart(places: dict[str, Location]) -> None:
    """Insist that no two tensors share bytes, as the format has it."""
    end, before = 0, ""
    for name, place in sorted(places.items(), key=lambda each: each[1].start):
        if (size := prod(place.shape) * _BYTES[place.dtype]) and place.start < end:
            raise ValueError(f"{name} and {before} share bytes")
        end, before = max(end, place.start + size), name


def _pieces(values: Stored) -> Iterator[Stored]:
    """A flat array bit by bit, so that what is computed of it takes little memory."""
    for start in range(0, len(values), _PIECE):
        yield values[start : start + _PIECE]
