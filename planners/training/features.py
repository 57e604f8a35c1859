"""What the target makes of its own outputs: computed at every step, or once and kept on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.qwen3 import forward
from runtime.files import new_folder

_BATCH = 32  # sequences of a pass
_ITEM = 2  # bytes of a bf16 value


class Features(Protocol):
    """Taps [N, S, K*d] and final hidden states [N, S, d] of training sequences."""

    def of(self, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Of the sequences numbered `rows` [N], whose tokens are [N, S]."""


class Online:
    """Runs the target at every step: no disk, twice the arithmetic."""

    def __init__(self, target: Qwen3ForCausalLM, taps: Sequence[int]) -> None:
        self.target, self.taps = target, tuple(taps)

    @torch.no_grad()
    def of(self, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        run = forward(self.target, tokens, taps=self.taps)
        assert run.taps is not None
        return run.taps, run.hidden


class Stored:
    """Reads what one pass over all sequences left on disk, in bf16.

    Args:
        folder: `taps.bin`, `hidden.bin` and `features.json` of one target, one set of sequences and
            one choice of taps; made here when it is missing or of another.
    """

    def __init__(
        self, folder: Path, target: Qwen3ForCausalLM, sequences: Tensor, taps: Sequence[int]
    ) -> None:
        count, length = sequences.shape
        width = target.config.hidden_size
        shapes = {"taps": (count, length, len(taps) * width), "hidden": (count, length, width)}
        key = {"key": _key(target, sequences, taps)}
        if not _holds(folder, key, shapes):
            with new_folder(folder) as work:
                _write(work, shapes, target, sequences, taps)
                (work / "features.json").write_text(json.dumps(key) + "\n", "utf-8")
        self._arrays = {
            name: np.memmap(folder / f"{name}.bin", np.int16, "r", shape=shape)
            for name, shape in shapes.items()
        }

    def of(self, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        chosen = rows.cpu().numpy()
        taps, hidden = (
            torch.from_numpy(self._arrays[name][chosen])
            .view(torch.bfloat16)
            .to(tokens.device)
            .float()
            for name in ("taps", "hidden")
        )
        return taps, hidden


@torch.no_grad()
def _write(
    folder: Path,
    shapes: dict[str, tuple[int, int, int]],
    target: Qwen3ForCausalLM,
    sequences: Tensor,
    taps: Sequence[int],
) -> None:
    arrays = {
        name: np.memmap(folder / f"{name}.bin", np.int16, "w+", shape=shape)
        for name, shape in shapes.items()
    }
    online = Online(target, taps)
    for begin in range(0, len(sequences), _BATCH):
        part = slice(begin, begin + _BATCH)
        tokens = sequences[part]
        with torch.autocast(tokens.device.type, torch.bfloat16):
            found = online.of(torch.arange(len(sequences))[part], tokens)
        for array, values in zip(arrays.values(), found, strict=True):
            array[part] = values.to(torch.bfloat16).cpu().view(torch.int16).numpy()
    for array in arrays.values():
        array.flush()


def _holds(folder: Path, key: dict[str, str], shapes: dict[str, tuple[int, int, int]]) -> bool:
    try:
        found = json.loads((folder / "features.json").read_text("utf-8"))
        whole = all(
            (folder / f"{name}.bin").stat().st_size == _ITEM * prod(shape)
            for name, shape in shapes.items()
        )
    except (OSError, ValueError, RecursionError):
        return False
    return bool(found == key) and whole


def _key(target: Qwen3ForCausalLM, sequences: Tensor, taps: Sequence[int]) -> str:
    """SHA-256 over the weights, the sequences and the taps."""
    digest = sha256(repr(tuple(taps)).encode())
    digest.update(np.ascontiguousarray(sequences.cpu().numpy()).tobytes())
    for name, value in sorted(target.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
