"""Stored features are those of the target, and are made again when anything changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

from planners.training import features
from planners.training.features import Online, Stored

TAPS = (1, 2)


@pytest.fixture
def sequences() -> torch.Tensor:
    return torch.randint(3, 500, (5, 12), generator=torch.Generator().manual_seed(1))


def test_stored_equals_online_to_bf16(
    target: Qwen3ForCausalLM, sequences: torch.Tensor, tmp_path: Path
) -> None:
    rows = torch.tensor([4, 0, 4])
    stored = Stored(tmp_path / "features", target, sequences, TAPS).of(rows, sequences[rows])
    online = Online(target, TAPS).of(rows, sequences[rows])
    for kept, fresh in zip(stored, online, strict=True):
        assert kept.shape == fresh.shape
        torch.testing.assert_close(kept, fresh, atol=0.05, rtol=0.05)


def test_kept_until_target_sequences_or_taps_change(
    target: Qwen3ForCausalLM,
    sequences: torch.Tensor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    write = features._write

    def counted(*args: object) -> None:
        made.append(args)
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(features, "_write", counted)
    folder = tmp_path / "features"
    for _ in range(2):
        Stored(folder, target, sequences, TAPS)
    assert len(made) == 1
    Stored(folder, target, sequences, (1,))
    Stored(folder, target, sequences.flip(0), (1,))
    with torch.no_grad():
        target.model.norm.weight.add_(0.5)
    Stored(folder, target, sequences.flip(0), (1,))
    assert len(made) == 4
    assert np.fromfile(folder / "taps.bin", np.int16).size == 5 * 12 * 32
