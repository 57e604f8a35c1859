"""`slipstream train`: read and check the config, then train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from runtime.errors import SlipstreamError
from slipstream.commands.screen import Screen

Network = Literal["target", "drafter"]


def run_train(
    what: Network, config: Path, resume: bool, until: int | None, device: str, threads: int
) -> None:
    """Train a network from its config and say where the checkpoint is.

    Raises:
        SlipstreamError: no torch, a bad config, drive, checkpoint or device, or another run in the
            output folder.
    """
    _check(until)
    need_torch()
    from slipstream.training.drafter import run_drafter
    from slipstream.training.reading import read_drafter_config, read_target_config
    from slipstream.training.request import Request
    from slipstream.training.target import run_target

    console = Screen()
    command = f"slipstream train {what} {config}"
    request = Request(command, resume, until, device, threads)
    with enough_memory():
        if what == "target":
            target = read_target_config(config)
            out, finished = target.out, run_target(target, request, console)
        else:
            drafter = read_drafter_config(config)
            out, finished = drafter.out, run_drafter(drafter, request, console)
    if finished:
        console.print(f"{what}: {out}")
    else:
        console.print(f"stopped before step {until}; {command} --resume goes on")


def _check(until: int | None) -> None:
    if until is not None and until < 1:
        raise SlipstreamError(
            "--until is not valid",
            expected="a step of at least 1",
            found=str(until),
            fix="leave --until out to train to the end",
        )


@contextmanager
def enough_memory() -> Iterator[None]:
    """torch's word for memory that it did not get, as a SlipstreamError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        text = str(error) or "no more memory to be had"
        signs = ("allocate memory", "out of memory", "overflowed")
        if isinstance(error, RuntimeError) and not any(sign in text for sign in signs):
            raise
        raise SlipstreamError(
            "the memory does not suffice for this training",
            expected="sizes, a batch and a number of responses that fit this machine",
            found=text.splitlines()[0][:200],
            fix="make them smaller in the config, or train on a larger machine",
        ) from error


def need_torch() -> None:
    """Insist on the extra `train`; raises SlipstreamError without it."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise SlipstreamError(
            "training needs torch and transformers",
            expected="the extra `train`",
            found=str(error),
            fix="pip install 'slipstream[train]'",
        ) from error
