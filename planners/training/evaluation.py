"""How good a planner is while it trains: its greedy path against the driven one."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.language import ParseError
from planners.training.data import Recorded
from planners.training.examples import Examples
from planners.training.responses import respond

Floats = NDArray[np.float64]


def greedy_paths(
    target: Qwen3ForCausalLM, windows: Recorded, examples: Examples, batch: int = 256
) -> tuple[Floats, Tensor]:
    """Greedy trajectories [M, 20, 2] and the outputs [M, L] that they were read from."""
    outputs = torch.cat(
        [
            respond(target, prompts.to(target.device), examples.scaffold)
            for prompts in torch.split(examples.prompts(windows), batch)
        ]
    )
    return paths_of(outputs, windows, examples), outputs


def paths_of(outputs: Tensor, windows: Recorded, examples: Examples) -> Floats:
    """Trajectories [M, 20, 2] of outputs [M, L]; NaN where an output does not parse."""
    paths = np.full(windows.futures.shape, np.nan)
    for row, output in enumerate(outputs.tolist()):
        with suppress(ParseError):
            parsed = examples.language.parse(output, examples.tokenizer)
            now = float(windows.speeds[row, -1]), float(windows.accelerations[row, -1])
            paths[row] = examples.language.trajectory(parsed, *now)
    return paths


def ade(paths: Floats, windows: Recorded) -> float:
    """ADE@5s, m, over all windows."""
    return float(np.linalg.norm(paths - windows.futures, axis=-1).mean())
