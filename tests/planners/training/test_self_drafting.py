"""A target that learns to draft for itself: what it pays for, what it keeps, how much it drafts."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from planners.nets.markov import GatedMarkovHead
from planners.nets.qwen3 import forward
from planners.training.acceptance import self_acceptance_length
from planners.training.data import Recorded
from planners.training.drafter_objective import DrafterObjective
from planners.training.examples import Examples
from planners.training.responses import respond
from planners.training.schedule import Schedule
from planners.training.self_drafting import (
    SelfDraftSettings,
    SelfLessons,
    divergence,
    train_self_drafting,
    two_streams,
)
from runtime.errors import SlipstreamError
from runtime.scaffold import Scaffold
from tests.planners.training.noisy_blocks import (
    BLOCK,
    FIRST,
    MASK,
    noisy_blocks,
    scaffold_of,
    words,
)

CE = DrafterObjective(ce=1, kl=0, gamma=None)


def how(steps: int = 1, **changes: object) -> SelfDraftSettings:
    base = SelfDraftSettings(Schedule(steps=steps, peak=5e-3, average=0.8), batch=4, anchors=4)
    return replace(base, **changes)  # type: ignore[arg-type]


def head_of(target: Qwen3ForCausalLM) -> GatedMarkovHead:
    torch.manual_seed(5)
    head = GatedMarkovHead(target.config.vocab_size, 3, target.config.hidden_size)
    nn.init.normal_(head.markov_w2.weight)
    return head


def by_formula(head: GatedMarkovHead, token: Tensor, hidden: Tensor) -> Tensor:
    """[V] W2 ((1 + G h) * W1[x])."""
    gate = 1.0 + head.markov_gate.weight @ hidden
    return (head.markov_w2.weight @ (gate * head.markov_w1.weight[token])).detach()


def lessons_for(
    target: Qwen3ForCausalLM, scaffold: Scaffold, settings: SelfDraftSettings
) -> SelfLessons:
    before = copy.deepcopy(target)
    return SelfLessons(target, before, *words(scaffold), scaffold, BLOCK, MASK, settings)


@pytest.mark.parametrize("gated", [False, True])
def test_the_loss_of_one_case_by_hand(target: Qwen3ForCausalLM, gated: bool) -> None:
    """Every hidden value's cross-entropy at the row before it, weighted by its section."""
    scaffold = scaffold_of()
    lessons = lessons_for(target, scaffold, how(objective=CE, weights={"tail": 3.0}))
    lessons.markov = head_of(target) if gated else None
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens)
    clean, noisy = two_streams(target, tokens, blocks)
    found, _ = lessons.draft_loss(tokens, blocks, clean, noisy)
    total = weight = 0.0
    for n, row in blocks.drafted.nonzero().tolist():
        place = int(blocks.positions[n, row])
        logits = target.lm_head(noisy[n, row - 1]).float().detach()
        if lessons.markov is not None:
            logits = logits + by_formula(lessons.markov, tokens[n, place - 1], noisy[n, row - 1])
        q = torch.softmax(logits, -1)
        mine = 3.0 if place - FIRST >= 10 else 1.0
        total -= mine * math.log(float(q[tokens[n, place]]))
        weight += mine
    assert found.item() == pytest.approx(total / weight, rel=1e-5)
    (grad,) = torch.autograd.grad(found, clean, retain_graph=True, allow_unused=True)
    assert grad is None  # what the clean rows say is a goal, not a loss


def test_the_drafts_goal_is_what_the_clean_rows_say(target: Qwen3ForCausalLM) -> None:
    scaffold = scaffold_of()
    only_kl = DrafterObjective(ce=0, kl=1, gamma=None)
    lessons = lessons_for(target, scaffold, how(objective=only_kl))
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens)
    clean, noisy = two_streams(target, tokens, blocks)
    found, _ = lessons.draft_loss(tokens, blocks, clean, noisy)
    wanted = []
    for n, row in blocks.drafted.nonzero().tolist():
        place = int(blocks.positions[n, row])
        rows = clean[n, place - 1], noisy[n, row - 1]
        wanted.append(divergence(*(target.lm_head(x).float() for x in rows)).item())
    assert found.item() == pytest.approx(float(np.mean(wanted)), rel=1e-4)


def test_the_causal_loss_is_kl_to_the_old_target_and_cross_entropy(
    target: Qwen3ForCausalLM,
) -> None:
    scaffold = scaffold_of()
    lessons = lessons_for(target, scaffold, how(keep=1.0, causal=0.5))
    tokens = torch.cat(words(scaffold), 1)
    loss, terms = lessons.causal_loss(tokens, forward(target, tokens).hidden)
    assert terms["kept"] == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        target.lm_head.weight.add_(0.05 * torch.randn_like(target.lm_head.weight))
    hidden = forward(target, tokens).hidden
    loss, terms = lessons.causal_loss(tokens, hidden)
    values = FIRST + np.flatnonzero(scaffold.is_value)
    was = lessons.before.lm_head(forward(lessons.before, tokens).hidden[:, values - 1])
    now = target.lm_head(hidden[:, values - 1])
    p, q = was.log_softmax(-1), now.log_softmax(-1)
    kl = float((p.exp() * (p - q)).sum(-1).mean().detach())
    nats = -float(q.gather(-1, tokens[:, values][..., None]).mean().detach())
    assert terms == pytest.approx({"kept": kl, "nats": nats}, rel=1e-4)
    assert float(loss) == pytest.approx(kl + 0.5 * nats, rel=1e-4)


def test_unknown_sections_are_named(target: Qwen3ForCausalLM) -> None:
    for field in ("noise", "weights"):
        settings = how(**{field: {"body": (1.0, 1.0) if field == "noise" else 1.0}})
        with pytest.raises(SlipstreamError, match=rf"training\.{field}") as caught:
            lessons_for(target, scaffold_of(), settings)
        assert caught.value.found == "body"


@pytest.mark.parametrize(("value_rows", "gated"), [(False, False), (True, False), (True, True)])
@torch.no_grad()
def test_acceptance_is_that_of_a_loop_without_any_cache(
    target: Qwen3ForCausalLM, value_rows: bool, gated: bool
) -> None:
    scaffold = scaffold_of()
    target.lm_head.weight[50:].zero_()
    target.lm_head.weight[:50].mul_(3.0)
    prompts, outputs = words(scaffold, 4)
    outputs = respond(target, prompts, scaffold)
    words_and_width = prompts, outputs, scaffold, BLOCK, MASK
    markov = head_of(target) if gated else None
    found = self_acceptance_length(target, *words_and_width, value_rows=value_rows, markov=markov)
    rounds, length = 0, FIRST + outputs.shape[1]
    for n in range(4):
        tokens, anchor = torch.cat([prompts[n], outputs[n]]), FIRST - 1
        while anchor < length - 1:
            width = min(BLOCK, length - anchor)
            fixed = torch.from_numpy(scaffold.tokens)[anchor + 1 - FIRST : anchor + width - FIRST]
            own = torch.cat([tokens[anchor, None], torch.where(fixed < 0, MASK, fixed)])
            mask = torch.ones(anchor + width, anchor + width, dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            if value_rows:  # nobody sees a row behind the anchor that no value is read from
                unread = anchor + 1 + np.flatnonzero(np.append(fixed[1:].numpy() >= 0, True))
                mask[anchor:, unread] = False
                mask[unread, unread] = True
            run = forward(target, torch.cat([tokens[:anchor], own])[None], mask=mask[None])
            logits = target.lm_head(run.hidden[0, anchor:-1])
            if markov is not None:
                said = zip(tokens[anchor:], run.hidden[0, anchor:-1], strict=False)
                logits = logits + torch.stack([by_formula(markov, *each) for each in said])
            drafts = logits.argmax(-1)
            kept = 0
            for k in range(1, width):
                if fixed[k - 1] < 0 and drafts[k - 1] != tokens[anchor + k]:
                    break
                kept = k
            anchor, rounds = min(anchor + kept + 1, length - 1), rounds + 1
    assert found == pytest.approx(outputs.numel() / rounds)


def test_it_learns_to_draft_and_keeps_its_word(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    scaffold, mask = examples.scaffold, examples.tokenizer.mask
    prompts = examples.prompts(straight)
    before = copy.deepcopy(target)
    outputs = respond(target, prompts, scaffold)

    def tau() -> float:
        said = respond(target, prompts, scaffold)
        return self_acceptance_length(target, prompts, said, scaffold, 16, mask)

    first = tau()
    settings = how(60, keep=4.0)
    train_self_drafting(
        target, before, prompts, outputs, scaffold, 16, mask, settings, tmp_path, every=20
    )
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert tau() > first + 1.0
    assert lines[-1]["ce"] < 0.7 * lines[0]["ce"]
    assert lines[-1]["kept"] < 0.1
    assert not any(p.grad is not None for p in before.parameters())


def test_a_run_in_two_parts_equals_one(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded, tmp_path: Path
) -> None:
    scaffold, mask = examples.scaffold, examples.tokenizer.mask
    prompts = examples.prompts(straight)
    outputs = respond(target, prompts, scaffold)

    def run(folder: str, until: int | None = None) -> nn.Module:
        own, markov = copy.deepcopy(target), head_of(target)
        train_self_drafting(
            own,
            copy.deepcopy(target),
            prompts,
            outputs,
            scaffold,
            16,
            mask,
            how(6),
            tmp_path / folder,
            markov=markov,
            every=2,
            until=until,
        )
        return nn.ModuleList([own, markov])

    whole = run("whole")
    run("part", until=3)
    part = run("part")
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), part.parameters(), strict=True)
    )
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "part")]
    last = [json.loads(log[-1]) | {"seconds": None} for log in logs]
    assert last[0] == last[1]
