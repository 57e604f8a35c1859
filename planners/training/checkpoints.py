"""A training run on disk: weights, averages and moments as safetensors, the step as JSON."""

from __future__ import annotations

import json
from collections.abc import Collection
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
    log: dict[str, Any],
) -> None:
    """Write everything that the next step depends on; the folder is replaced as a whole.

    Args:
        log: what the log holds, JSON-ready.
    """
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
        about = {"step": step, "settings": settings, "log": log}
        write_atomic(work / "state.json", json.dumps(about, indent=1))


def load_state(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.AdamW,
    average: Average,
    settings: dict[str, Any],
) -> tuple[int, dict[str, Any]]:
    """Continue a run that `save_state` wrote; returns the next step, and what the log held.

    Raises:
        SlipstreamError: the folder is damaged, or was written under other settings.
    """
    try:
        state = json.loads((folder / "state.json").read_text("utf-8"))
        step, log, before = int(state["step"]), state["log"], state["settings"]
        if step < 0:
            raise ValueError(f"step {step}")
        tensors = load_file(folder / "state.safetensors")
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise SlipstreamError(
            f"{folder} can't be continued",
            expected="state.json and state.safetensors of a training run",
            found=str(error),
            fix=f"remove {folder} and train from the start",
        ) from error
    if before != json.loads(json.dumps(settings)):  # tuples come back as lists
        raise SlipstreamError(
            f"{folder} was trained with other settings",
            expected=json.dumps(settings, sort_keys=True),
            found=json.dumps(before, sort_keys=True),
            fix=f"remove {folder}, or train with its settings",
        )
    weights = _part(tensors, "weights")
    averages, first, second = (_part(tensors, part) for part in ("average", *_MOMENTS))
    for needed in (weights, averages):
        _check_fit(folder, module, needed)
    for moments, other in ((first, second), (second, first)):  # a weight may have had no gradient
        _check_fit(folder, module, moments, other.keys())
    put_back(module, weights)
    for name, parameter in module.named_parameters():
        average.values[name] = averages[name].to(parameter.device)
        if name in first:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(step)),
                "exp_avg": first[name].to(parameter.device),
                "exp_avg_sq": second[name].to(parameter.device),
            }
    return step, log


def _check_fit(
    folder: Path,
    module: nn.Module,
    tensors: dict[str, Tensor],
    names: Collection[str] | None = None,
) -> None:
    """Insist on a tensor for each of these parameters, all if None, of its shape."""
    for name, parameter in module.named_parameters():
        if names is not None and name not in names:
            continue
        found = tensors.get(name)
        if found is None or found.shape != parameter.shape:
            raise SlipstreamError(
                f"{folder} is the state of another network",
                expected=f"{name} {list(parameter.shape)}",
                found="no such tensor" if found is None else str(list(found.shape)),
                fix=f"remove {folder} and train from the start, or train with its sizes",
            )


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    cut = len(prefix) + 1
    return {name[cut:]: t for name, t in tensors.items() if name.startswith(prefix + ".")}
