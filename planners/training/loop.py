"""The training loop: one function for target and drafter, resumable to the bit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planners.training.checkpoints import load_state, save_state
from planners.training.schedule import Average, Schedule, adamw, put_back

LossOfStep = Callable[[int], tuple[Tensor, dict[str, float]]]
Evaluate = Callable[[], dict[str, float]]


def train(
    module: nn.Module,
    loss_of_step: LossOfStep,
    schedule: Schedule,
    folder: Path,
    *,
    seed: int,
    settings: dict[str, Any],
    evaluate: Evaluate | None = None,
    every: int = 500,
    until: int | None = None,
    bf16: bool = True,
) -> dict[str, float]:
    """Train `module` in place; it ends with its averaged weights.

    A step's batch and its randomness depend on the seed and the step's number alone, so a run that
    was interrupted and continued equals one that was not.

    Args:
        loss_of_step: makes the step's batch and returns its loss and figures to log.
        folder: gets `log.jsonl` and `state/`; a run found there is continued.
        settings: everything the result depends on besides the data; a run found in `folder` with
            other settings is refused.
        evaluate: figures of the averaged weights, logged every `every` steps and at the end.
        until: stop before this step (the schedule is unchanged); None runs to the end.
        bf16: autocast matrix products; weights, moments and norms stay fp32.

    Returns:
        The last evaluation's figures.
    """
    optimizer, average = adamw(module, schedule), Average(module, schedule.average)
    state = folder / "state"
    folder.mkdir(parents=True, exist_ok=True)
    first = load_state(state, module, optimizer, average, settings) if state.exists() else 0
    last = schedule.steps if until is None else min(until, schedule.steps)
    figures: dict[str, float] = {}
    started, window = time.monotonic(), []
    for step in range(first, last):
        torch.manual_seed((seed << 24) + step)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss, logged = loss_of_step(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(module.parameters(), schedule.clip)
        optimizer.step()
        average.update(module, step)
        window.append({**logged, "gradient": float(norm)})
        if (step + 1) % every == 0 or step + 1 == last:
            if evaluate is not None:
                figures = _evaluate_average(module, average, evaluate)
            mean = {key: sum(w[key] for w in window) / len(window) for key in window[0]}
            line = {"step": step + 1, "seconds": round(time.monotonic() - started, 1)}
            _log(folder / "log.jsonl", {**line, **mean, **figures})
            window.clear()
            save_state(state, module, optimizer, average, step + 1, settings)
    average.copy_to(module)
    return figures


def _evaluate_average(module: nn.Module, average: Average, evaluate: Evaluate) -> dict[str, float]:
    before = average.copy_to(module)
    module.eval()
    with torch.no_grad():
        figures = evaluate()
    module.train()
    put_back(module, before)
    return figures


def _log(path: Path, line: dict[str, float]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({key: round(value, 5) for key, value in line.items()}) + "\n")
    print("  ".join(f"{key} {value:.4g}" for key, value in line.items()), flush=True)
