"""The training loop: one function for every network, resumable to the bit."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from planners.training.checkpoints import load_state, save_state
from planners.training.log import Log
from planners.training.schedule import Average, Schedule, adamw, put_back
from planners.training.watch import Printed, Watch
from runtime.errors import SlipstreamError

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
    save_every: int | None = None,
    until: int | None = None,
    bf16: bool = True,
    watch: Watch | None = None,
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
        save_every: steps between two states on disk, which is what a kill can cost; None is as
            often as `every`. A state is written with every evaluation too.
        until: stop before this step (the schedule is unchanged); None runs to the end.
        bf16: autocast matrix products; weights, moments and norms stay fp32.
        watch: looks on; None prints the lines of the log.

    Returns:
        The last evaluation's figures.

    Raises:
        SlipstreamError: another run is in the folder, or this one diverged.
    """
    watch = watch or Printed()
    optimizer, average = adamw(module, schedule), Average(module, schedule.average)
    state, first = folder / "state", 0
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "log.jsonl")
    if state.exists():
        first, logged = load_state(state, module, optimizer, average, settings)
        log.go_on(first, logged)
    watch.begin(first, schedule.steps)
    last = schedule.steps if until is None else min(until, schedule.steps)
    figures: dict[str, float] = {}
    device = next(module.parameters()).device.type
    for step in range(first, last):
        torch.manual_seed((seed << 24) + step)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(step)
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss, of_step = loss_of_step(step)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = float(nn.utils.clip_grad_norm_(module.parameters(), schedule.clip))
        if not isfinite(norm):
            raise _diverged(folder, step, norm)
        optimizer.step()
        average.update(module, step)
        of_step["gradient"] = norm
        log.add(of_step)
        done = step + 1
        watch.step(done, of_step)
        pause = done % every == 0 or done == last
        if pause:
            if evaluate is not None:
                figures = _evaluate_average(module, average, evaluate)
            watch.line(done, log.write(done, figures))
        if pause or (save_every is not None and done % save_every == 0):
            save_state(state, module, optimizer, average, done, settings, log.state())
    average.copy_to(module)
    return figures


def _diverged(folder: Path, step: int, norm: float) -> SlipstreamError:
    return SlipstreamError(
        f"the training in {folder} diverged",
        expected="finite gradients",
        found=f"a norm of {norm} at step {step}",
        fix="give schedule.peak a smaller value and train from the start, in another folder",
    )


def _evaluate_average(module: nn.Module, average: Average, evaluate: Evaluate) -> dict[str, float]:
    before = average.copy_to(module)
    module.eval()
    with torch.no_grad():
        figures = evaluate()
    module.train()
    put_back(module, before)
    return figures
