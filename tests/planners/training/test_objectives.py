"""Losses and schedules against values worked out by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from planners.training.objectives import distance_loss, token_loss, weighted_mean
from planners.training.schedule import Average, Schedule, adamw


def test_weighted_mean() -> None:
    values, weights = torch.tensor([1.0, 5.0, 100.0]), torch.tensor([3.0, 1.0, 0.0])
    assert weighted_mean(values, weights).item() == pytest.approx(2.0)
    assert weighted_mean(values, torch.zeros(3)).item() == 0.0


def test_token_loss_counts_only_weighted_positions() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]]))
    tokens = torch.tensor([[0, 2]])
    both = token_loss(logits, tokens, torch.ones(1, 2)).item()
    assert both == pytest.approx((math.log(2) + math.log(10)) / 2, rel=1e-5)
    first = token_loss(logits, tokens, torch.tensor([[1.0, 0.0]])).item()
    assert first == pytest.approx(math.log(2), rel=1e-5)


def test_distance_loss_is_the_mean_distance() -> None:
    points = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    assert distance_loss(points, torch.zeros(2, 2)).item() == pytest.approx(2.5, abs=1e-3)


def test_schedule_rises_then_follows_half_a_cosine() -> None:
    schedule = Schedule(steps=100, peak=2.0, warmup=0.1, floor=0.1)
    assert schedule.rate(0) == pytest.approx(0.2)
    assert schedule.rate(9) == pytest.approx(2.0)
    assert schedule.rate(55) == pytest.approx(1.1)
    assert schedule.rate(100) == pytest.approx(0.2)


def test_only_matrices_decay() -> None:
    optimizer = adamw(nn.Linear(3, 2), Schedule(steps=1, peak=1.0, decay=0.3))
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.3, 0.0]
    assert [[p.dim() for p in g["params"]] for g in optimizer.param_groups] == [[2], [1]]


def test_average_of_two_steps() -> None:
    module = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(module.weight)
    average = Average(module, 0.5)
    for step, value in enumerate((1.0, 2.0)):
        nn.init.constant_(module.weight, value)
        average.update(module, step + 1000)
    before = average.copy_to(module)
    assert module.weight.item() == pytest.approx(0.5 * (0.5 * 1.0) + 0.5 * 2.0)
    assert before["weight"].item() == 2.0
