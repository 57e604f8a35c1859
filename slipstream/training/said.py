"""What the target said, for drafters to learn from: drawn once, kept on disk, read and checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.training.data import Recorded
from planners.training.examples import Examples
from planners.training.responses import ResponseSettings, draw_responses
from runtime.errors import SlipstreamError
from runtime.files import write_atomic

Said = tuple[Tensor, Tensor]
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

LABEL = "outputs of the target"


def draw_said(
    path: Path,
    target: Qwen3ForCausalLM,
    windows: Recorded,
    examples: Examples,
    settings: ResponseSettings,
    bar: Bar,
) -> None:
    """Let the target speak, and keep it at `path`."""
    with bar(LABEL, settings.count) as done:
        said = draw_responses(target, windows, examples, settings, progress=done)
    tensors = dict(zip(("prompts", "outputs"), said, strict=True))
    write_atomic(path, save({name: x.int().cpu().contiguous() for name, x in tensors.items()}))


def read_said(path: Path, target: Qwen3ForCausalLM, examples: Examples) -> Said:
    """Prompts [M, Lp] and the target's outputs [M, L], on its device.

    Raises:
        SlipstreamError: no such file, a damaged one, or one of another target.
    """
    try:
        found = load_file(path)
        prompts, outputs = (found[name].long() for name in ("prompts", "outputs"))
        _check(prompts, outputs, target.config.vocab_size, len(examples.scaffold))
    except (OSError, KeyError, ValueError, SafetensorError) as error:
        raise SlipstreamError(
            f"{path} can't be read",
            expected="the target's outputs, as this run wrote them",
            found=str(error),
            fix=f"remove {path}; the target then speaks again",
        ) from error
    return prompts.to(target.device), outputs.to(target.device)


def _check(prompts: Tensor, outputs: Tensor, vocab: int, length: int) -> None:
    if prompts.dim() != 2 or outputs.shape != (len(prompts), length):
        raise ValueError(f"prompts {list(prompts.shape)} and outputs {list(outputs.shape)}")
    for tokens in (prompts, outputs):
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab:
            raise ValueError(f"tokens outside of 0..{vocab - 1}")
