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

from planners.nets.block_drafter import BlockDrafter
from planners.nets.drafters import new_drafter
from planners.nets.qwen3 import forward
from planners.observation import Intent
from planners.training.acceptance import acceptance_length
from planners.training.batches import batch_rows
from planners.training.data import Augmentation, Recorded, constant_velocity
from planners.training.drafter import DrafterSettings, Lessons, draw_blocks, train_drafter
from planners.training.drafter_objective import DrafterObjective
from planners.training.evaluation import ade
from planners.training.examples import Examples
from planners.training.features import Online
from planners.training.responses import respond
from planners.training.schedule import Schedule
from planners.training.target import TargetSettings, seeded_target, train_target
from planners.training.teacher import TeacherSettings, train_teacher
from runtime.errors import SlipstreamError
from runtime.scaffold import free_scaffold
from tests.planners.training.configs import drafter_config
from tests.planners.training.conftest import SIZES
from tests.planners.training.test_data import circle

STILL = Augmentation(scale=(1.0, 1.0), mirror=0.0)


def settings(steps: int) -> TargetSettings:
    schedule = Schedule(steps=steps, peak=1e-2, average=0.8)
    return TargetSettings(schedule, batch=4, teacher_from=0.5, augmentation=STILL)


def drafter_for(examples: Examples, **changes: int) -> BlockDrafter:
    return new_drafter(1, drafter_config(examples.tokenizer.mask, **changes))


def first_losses(folder: Path, name: str) -> tuple[float, float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return lines[0][name], lines[-1][name]


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_sections_of_the_target_weigh_what_the_config_says(
    examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    """A section without weight leaves no trace in the loss; an unknown one is refused."""
    names = [span.name for span in examples.scaffold.sections]
    teacher = train_teacher(straight, STILL, TeacherSettings(Schedule(1, peak=0.01), width=8))

    def nats(name: str, weights: dict[str, float]) -> float:
        target = seeded_target(0, examples.tokenizer, examples.language, **SIZES)
        how = replace(settings(1), weights=weights)
        train_target(target, straight, examples, teacher, how, tmp_path / name, every=1)
        return first_losses(tmp_path / name, "nats")[0]

    plain = nats("plain", {})
    parts = [nats(one, {other: float(other == one) for other in names}) for one in names]
    assert min(parts) < plain < max(parts)
    assert nats("twice", dict.fromkeys(names, 2.0)) == pytest.approx(plain)
    with pytest.raises(SlipstreamError, match=r"training\.weights"):
        nats("unknown", {"weather": 1.0})


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


def test_pieces_of_a_large_vocabulary_are_the_whole(
    target: Qwen3ForCausalLM,
    examples: Examples,
    straight: Recorded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loss and gradients do not depend on how many rows go through the head at once."""
    prompts = examples.prompts(straight)
    outputs = respond(target, prompts, examples.scaffold)
    objective = DrafterObjective(chain=1, first_error=1, tv=1, chain_block=1)
    how = DrafterSettings(Schedule(steps=2, peak=1e-3), batch=2, anchors=3, objective=objective)
    found = []
    for logits in (1 << 26, 5 * 512):
        monkeypatch.setattr("planners.training.drafter.LOGITS", logits)
        drafter = drafter_for(examples, markov_rank=4)
        out = tmp_path / str(logits)
        train_drafter(drafter, target, prompts, outputs, examples.scaffold, how, out, every=1)
        found.append((drafter, (out / "log.jsonl").read_text()))
    (whole, _), (pieces, _) = found
    for one, other in zip(whole.parameters(), pieces.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    losses = [[json.loads(x)["loss"] for x in text.splitlines()] for _, text in found]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_dependence_head_learns_what_independent_slots_cannot(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    """Outputs whose tokens repeat their predecessor: only the head sees the one before."""
    prompts = examples.prompts(straight)
    generator = torch.Generator().manual_seed(0)
    length = len(examples.scaffold)
    draws = torch.randint(10, 500, (12, length), generator=generator)
    fresh = torch.rand(12, length, generator=generator) < 0.3
    fresh[:, 0] = True
    last = torch.where(fresh, torch.arange(length), 0).cummax(1).values
    outputs = draws.gather(1, last)
    scaffold = free_scaffold(length, 512)
    taus = []
    for rank in (0, 64):
        drafter = drafter_for(examples, markov_rank=rank)
        how = DrafterSettings(
            Schedule(steps=150, peak=2e-2, average=0.8),
            batch=4,
            anchors=4,
            objective=DrafterObjective(ce=1, kl=0, gamma=None),
        )
        out = tmp_path / str(rank)
        train_drafter(drafter, target, prompts, outputs, scaffold, how, out, every=150)
        taus.append(acceptance_length(drafter, target, prompts, outputs, scaffold, 16))
    assert taus[1] > taus[0] + 0.5


def test_the_acceptance_of_drawn_drafts(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    """An untrained drafter with equal logits: each value stands with the mean of min(1, q/p)."""
    scaffold = examples.scaffold
    prompts = examples.prompts(straight)[:6]
    fork = scaffold.section("trajectory")
    heats = torch.zeros(len(scaffold))
    heats[fork.start : fork.stop] = 1.0
    outputs = respond(target, prompts, scaffold, {"trajectory": torch.ones(6)}, seed=2)
    drafter = drafter_for(examples)
    with torch.no_grad():
        drafter.norm.weight.zero_()
    args = (drafter, target, prompts, outputs, scaffold, 16)
    greedy = acceptance_length(*args)
    drawn = [acceptance_length(*args, heats=heats, seed=seed) for seed in range(3)]
    assert min(drawn) > greedy + 0.1  # equal logits overlap with p, and seldom are its draw
    assert acceptance_length(*args, heats=heats, seed=1) == drawn[1]
    assert acceptance_length(*args, heats=torch.zeros(len(scaffold))) == greedy


def test_drawn_drafts_from_the_target_itself_always_stand(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    """A target without memory of its tokens, and a drafter that says the same."""
    scaffold = free_scaffold(30, 512)
    prompts = examples.prompts(straight)[:4]
    with torch.no_grad():
        target.model.norm.weight.zero_()
    drafter = drafter_for(examples)
    with torch.no_grad():
        drafter.norm.weight.zero_()
    outputs = torch.randint(512, (4, 30), generator=torch.Generator().manual_seed(0))
    found = acceptance_length(drafter, target, prompts, outputs, scaffold, 16, heats=torch.ones(30))
    assert found == pytest.approx(30 / 2)  # 16 and 14 tokens


@torch.no_grad()
def test_a_step_is_what_decoding_each_of_its_blocks_gives(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    """Packed and masked, against one block at a time with nothing but its own context."""
    scaffold = examples.scaffold
    prompts = examples.prompts(straight)[:4]
    outputs = respond(target, prompts, scaffold, {"trajectory": torch.ones(4)}, seed=1)
    drafter = drafter_for(examples, markov_rank=4)
    torch.nn.init.normal_(drafter.markov.markov_w2.weight)  # type: ignore[union-attr]
    objective = DrafterObjective(ce=0, kl=0, chain=1, chain_alpha=1, first_error=1, gamma=5)
    how = DrafterSettings(Schedule(1, peak=1.0), seed=5, batch=2, anchors=3, objective=objective)
    features = Online(target, drafter.config.target_layer_ids)
    lessons = Lessons(drafter, target, prompts, outputs, scaffold, how, features)
    _, found = lessons.loss_of_step(0)

    rng = np.random.default_rng((5, 0))
    tokens = torch.cat([prompts, outputs], 1)[batch_rows(4, 2, 5, 0)]
    first, length = prompts.shape[1], tokens.shape[1]
    anchors, widths = draw_blocks(how, 16, first, tokens, rng)
    taps = forward(target, tokens, taps=(1, 2, 3)).taps
    law = target(tokens).logits.log_softmax(-1)
    bias = torch.tensor(scaffold.bias_at(np.arange(len(scaffold))))
    assert taps is not None
    rows, chain, chain_alpha, errors, weights = 0, 0.0, 0.0, 0.0, 0.0
    for n in range(2):
        for a in range(3):
            start = int(anchors[n, a])
            stop = min(start + int(widths[n, a]), length)
            shown = tokens[n, start:stop].clone()
            value = [p > start and p >= first and bool(scaffold.is_value[p - first])
                     for p in range(start, stop)]  # fmt: skip
            shown[torch.tensor(value)] = examples.tokenizer.mask
            hidden = drafter(
                target.model.embed_tokens(shown[None]),
                torch.arange(start, stop)[None],
                taps[n : n + 1, :start],
                torch.arange(start)[None],
            )[0]
            reach = reach_alpha = 1.0
            wrong = False
            for k in range(1, stop - start):
                at = start + k
                if value[k]:
                    logits = target.lm_head(hidden[k]) + drafter.markov(tokens[n, at - 1])  # type: ignore[misc]
                    q = logits.log_softmax(-1)
                    p = (law[n, at - 1] + bias[at - first]).softmax(-1)
                    reach *= q[tokens[n, at]].exp().item()
                    reach_alpha *= torch.minimum(p, q.exp()).sum().item()
                    if not wrong and q.argmax() != tokens[n, at]:
                        wrong = True
                        errors -= np.exp(-(k - 1) / 5) * q[tokens[n, at]].item()
                        weights += np.exp(-(k - 1) / 5)
                rows += 1
                chain, chain_alpha = chain + reach, chain_alpha + reach_alpha
    assert found["chain"] == pytest.approx(chain / rows, rel=1e-4)
    assert found["chain_alpha"] == pytest.approx(chain_alpha / rows, rel=1e-4)
    assert found["first_error"] == pytest.approx(errors / weights, rel=1e-4)
