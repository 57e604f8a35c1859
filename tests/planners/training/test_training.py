"""Target and drafter learn, repeat themselves, and go on where they stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import nn
from transformers import Qwen3ForCausalLM

from planners.nets.dflash import DFlash, DFlashConfig, new_drafter
from planners.observation import Intent
from planners.training.data import Augmentation, Recorded, constant_velocity
from planners.training.drafter import (
    DrafterSettings,
    acceptance_length,
    draw_blocks,
    train_drafter,
)
from planners.training.evaluation import ade
from planners.training.examples import Examples
from planners.training.responses import respond
from planners.training.schedule import Schedule
from planners.training.target import TargetSettings, seeded_target, train_target
from planners.training.teacher import TeacherSettings, train_teacher
from tests.planners.training.conftest import SIZES
from tests.planners.training.test_data import circle

STILL = Augmentation(scale=(1.0, 1.0), mirror=0.0)


def settings(steps: int) -> TargetSettings:
    schedule = Schedule(steps=steps, peak=1e-2, average=0.8)
    return TargetSettings(schedule, batch=4, teacher_from=0.5, augmentation=STILL)


def drafter_for(examples: Examples) -> DFlash:
    return new_drafter(
        1,
        DFlashConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=48,
            vocab_size=512,
            block_size=16,
            mask_token_id=examples.tokenizer.mask,
            target_layer_ids=(1, 2, 3),
        ),
    )


def first_losses(folder: Path, name: str) -> tuple[float, float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return lines[0][name], lines[-1][name]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_the_target_learns_and_resumes(
    examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    teacher = train_teacher(straight, STILL, TeacherSettings(Schedule(1, peak=0.01), width=8))

    def train(folder: str, until: int | None = None) -> Qwen3ForCausalLM:
        target = seeded_target(0, examples.tokenizer, examples.language, **SIZES)
        how, out = settings(12), tmp_path / folder
        train_target(target, straight, examples, teacher, how, out, every=4, until=until)
        return target

    whole = train("whole")
    first, last = first_losses(tmp_path / "whole", "nats")
    assert last < 0.8 * first
    first, last = first_losses(tmp_path / "whole", "aid m")
    assert last < first
    train("part", until=5)
    assert same(train("part"), whole)


def test_the_teacher_finds_the_circle_and_heeds_the_command() -> None:
    circles = Recorded.join([circle(8.0, rate) for rate in (0.3, -0.3, 0.1, -0.1, 0.02)])
    how = TeacherSettings(Schedule(300, peak=5e-3, average=0.9), batch=20, width=32, dropout=0.0)
    teacher = train_teacher(circles, Augmentation(scale=(1.0, 1.0)), how)
    assert ade(constant_velocity(circles), circles) > 5.0
    assert ade(teacher.paths(circles), circles) < 1.0
    left = replace(circles, intents=np.full(5, int(Intent.LEFT)))
    assert teacher.paths(left)[4, -1, 1] > teacher.paths(circles)[4, -1, 1]


def test_digits_start_out_ordered(examples: Examples) -> None:
    target = seeded_target(0, examples.tokenizer, examples.language, **SIZES)
    table = target.model.embed_tokens.weight[list(examples.tokenizer.digits)].detach()
    apart = torch.cdist(table, table)
    assert apart[0, 9] > apart[0, 4]
    assert torch.diagonal(apart, 1).mean() < torch.diagonal(apart, 6).mean()


def test_the_drafter_learns_its_target(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    prompts = examples.prompts(straight)
    outputs = respond(target, prompts, examples.scaffold)
    drafter = drafter_for(examples)
    before = acceptance_length(drafter, target, prompts, outputs, examples.scaffold, 16)
    how = DrafterSettings(Schedule(steps=60, peak=1e-2, average=0.8), batch=4, anchors=4)
    train_drafter(drafter, target, prompts, outputs, examples.scaffold, how, tmp_path, every=30)
    after = acceptance_length(drafter, target, prompts, outputs, examples.scaffold, 16)
    assert after > before + 0.5
    assert not any(p.grad is not None for p in target.parameters())


def test_a_perfect_drafter_commits_whole_blocks(
    target: Qwen3ForCausalLM,
    examples: Examples,
    straight: Recorded,
) -> None:
    """Outputs that are all the drafter's constant choice: the count of rounds is plain."""
    scaffold = examples.scaffold
    prompts = examples.prompts(straight)[:2]
    drafter = drafter_for(examples)
    with torch.no_grad():
        drafter.norm.weight.zero_()  # hidden 0, all logits equal: the lowest allowed id wins
    allowed = torch.tensor(scaffold.allowed_sets[scaffold.allowed_id])
    lowest = allowed.int().argmax(1)
    fixed = torch.tensor(scaffold.tokens)
    outputs = torch.where(fixed < 0, lowest, fixed).repeat(2, 1)
    length = len(scaffold)
    for width in (16, 8):
        rounds = -(-length // width)
        found = acceptance_length(drafter, target, prompts, outputs, scaffold, width)
        assert found == pytest.approx(length / rounds)
    wrong = outputs.clone()
    values = torch.nonzero(torch.tensor(scaffold.is_value))[:, 0]
    for at in values.tolist():  # nothing right: each round brings the scaffold before it and one
        others = torch.nonzero(allowed[at])[:, 0]
        wrong[:, at] = others[others != lowest[at]][0]
    found = acceptance_length(drafter, target, prompts, wrong, scaffold, 16)
    tail = length - 1 - int(values[-1])
    rounds = len(values) + (tail > 0)
    assert found == pytest.approx(length / rounds, rel=0.05)


def test_blocks_are_drawn_within_the_output(examples: Examples) -> None:
    how = DrafterSettings(Schedule(steps=1, peak=1.0), anchors=500, full_width=0.6)
    tokens = torch.zeros(4, 50, dtype=torch.long)
    anchors, widths = draw_blocks(how, 16, 20, tokens, np.random.default_rng(0))
    assert anchors.min() == 19  # the last prompt token
    assert anchors.max() == 48
    assert widths.min() >= 4
    assert widths.max() == 16
    assert (widths == 16).float().mean().item() == pytest.approx(0.6 + 0.2 / 13, abs=0.04)
    assert (widths == 8).float().mean().item() == pytest.approx(0.2 + 0.2 / 13, abs=0.04)
