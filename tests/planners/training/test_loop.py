"""An interrupted run that goes on equals one that was never interrupted."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn

from planners.training.loop import train
from planners.training.schedule import Schedule
from runtime.errors import SlipstreamError

SCHEDULE = Schedule(steps=7, peak=0.05, warmup=0.2, average=0.8)


class Tied(nn.Module):
    """Two layers and a weight used twice, as embeddings are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.tanh(self.first(x)))
        return out


def run(folder: Path, until: int | None = None, schedule: Schedule = SCHEDULE) -> Tied:
    module = Tied()

    def loss_of_step(step: int) -> tuple[Tensor, dict[str, float]]:
        x = torch.randn(8, 4)  # from the step's own seed
        loss = (module(x) - x.flip(-1)).square().mean()
        return loss, {"loss": loss.item()}

    train(
        module,
        loss_of_step,
        schedule,
        folder,
        seed=3,
        settings=asdict(schedule),
        every=3,
        until=until,
        bf16=False,
    )
    return module


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    part = run(tmp_path / "part", until=4)
    assert not same(whole, part)
    resumed = run(tmp_path / "part")
    assert same(whole, resumed)


def test_the_log_has_means_of_the_steps_between(tmp_path: Path) -> None:
    run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 7]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == [
        "state.json",
        "state.safetensors",
    ]


def test_the_result_is_the_average(tmp_path: Path) -> None:
    sharp = Schedule(steps=7, peak=0.05, warmup=0.2, average=0.0)
    assert not same(run(tmp_path / "a"), run(tmp_path / "b", schedule=sharp))


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    with pytest.raises(SlipstreamError, match="other settings"):
        run(tmp_path, schedule=Schedule(steps=9, peak=0.05))


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    run(tmp_path, until=3)
    (tmp_path / "state" / "state.safetensors").write_bytes(b"\0" * 40)
    with pytest.raises(SlipstreamError, match="can't be continued"):
        run(tmp_path)
