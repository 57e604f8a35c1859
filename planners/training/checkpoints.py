"""A training run on disk: weights, averages and moments as safetensors, the step as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from planners.training.schedule import Average, put_back
from runtime.errors import SlipstreamError
from runtime.files import new_folder, write_atomic

_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_state(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.AdamW,
    average: Average,
    step: int,
    settings: dict[str, Any],
) -> None:
    """Write everything that the next step depends on; the folder is replaced as a whole."""
    names = {id(p): name for name, p in module.named_parameters()}
    tensors: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        tensors[f"weights.{name}"] = parameter.detach()
        tensors[f"average.{name}"] = average.values[name]
    for key, state in optimizer.state.items():
        for moment in _MOMENTS:
            tensors[f"{moment}.{names[id(key)]}"] = state[moment]
    # Tied weights share memory, which safetensors refuses.
    tensors = {name: value.clone().contiguous() for name, value in tensors.items()}
    with new_folder(folder) as work:
        save_file(tensors, work / "state.safetensors")
        write_atomic(
            work / "state.json", json.dumps({"step": step, "settings": settings}, indent=1)
        )


def load_state(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.AdamW,
    average: Average,
    settings: dict[str, Any],
) -> int:
    """Continue a run that `save_state` wrote; returns the next step.

    Raises:
        SlipstreamError: the folder is damaged, or was written under other settings.
    """
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        tensors = load_file(folder / "state.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be continued",
            expected="state.json and state.safetensors of a training run",
            found=str(error),
            fix=f"remove {folder} and train from the start",
        ) from error
    if state["settings"] != json.loads(json.dumps(settings)):  # tuples come back as lists
        raise SlipstreamError(
            f"{folder} was trained with other settings",
            expected=json.dumps(settings, sort_keys=True),
            found=json.dumps(state["settings"], sort_keys=True),
            fix=f"remove {folder}, or train with its settings",
        )
    step: int = state["step"]
    put_back(module, _part(tensors, "weights"))
    average.values = _part(tensors, "average")
    first, second = (_part(tensors, moment) for moment in _MOMENTS)
    for name, parameter in module.named_parameters():
        if name in first:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(step)),
                "exp_avg": first[name],
                "exp_avg_sq": second[name],
            }
    return step


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    cut = len(prefix) + 1
    return {name[cut:]: t for name, t in tensors.items() if name.startswith(prefix + ".")}
