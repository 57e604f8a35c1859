"""A target that learns to draft for itself: what its rows see, what it pays for, what it keeps."""

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
from planners.nets.qwen3 import Cache, forward
from planners.training.acceptance import self_acceptance_length
from planners.training.allowed import Allowed
from planners.training.blocks import Blocks
from planners.training.data import Recorded
from planners.training.drafter_objective import DrafterObjective
from planners.training.examples import Examples
from planners.training.noise import Noise
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
from runtime.scaffold import Scaffold, Span

BLOCK, FIRST, MASK = 6, 9, 2
CE = DrafterObjective(ce=1, kl=0, gamma=None)


def scaffold_of(fixed: str = "10??1??0????0??1????") -> Scaffold:
    """Digits are fixed tokens, `?` any token; two sections of equal length."""
    cells, half = [-1 if c == "?" else 40 + int(c) for c in fixed], len(fixed) // 2
    return Scaffold(
        tokens=np.asarray(cells, np.int64),
        allowed_id=np.zeros(len(cells), np.int64),
        allowed_sets=np.ones((1, 512), np.bool_),
        sections=(Span("head", 0, half), Span("tail", half, len(cells))),
    )


def words(scaffold: Scaffold, count: int = 3) -> tuple[Tensor, Tensor]:
    """Prompts [N, FIRST] and outputs [N, L]."""
    torch.manual_seed(7)
    fixed = torch.from_numpy(scaffold.tokens).repeat(count, 1)
    drawn = torch.randint(3, 500, fixed.shape)
    return torch.randint(3, 500, (count, FIRST)), torch.where(fixed < 0, drawn, fixed)


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


def noise_of(scaffold: Scaffold, hidden: float = 0.0, **shapes: tuple[float, float]) -> Noise:
    return Noise.of(scaffold, Allowed(scaffold, FIRST, torch.device("cpu")), shapes, hidden, MASK)


def noisy_blocks(scaffold: Scaffold, tokens: Tensor, hidden: float = 0.0, seed: int = 0) -> Blocks:
    anchors = torch.tensor([FIRST - 1, 12, 20, 24, 14, 10])
    each = anchors.expand(len(tokens), -1)
    rng = np.random.default_rng(seed)
    widths = torch.tensor([6, 6, 4, 6, 6, 6]).expand(len(tokens), -1)
    return noise_of(scaffold, hidden).blocks(tokens, each, widths, BLOCK, rng)


@torch.no_grad()
def test_clean_rows_are_a_plain_causal_pass(target: Qwen3ForCausalLM) -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    clean, _ = two_streams(target, tokens, noisy_blocks(scaffold, tokens))
    torch.testing.assert_close(clean, forward(target, tokens).hidden, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_noisy_rows_are_a_pass_over_what_stands_before_their_anchor(
    target: Qwen3ForCausalLM,
) -> None:
    """As in decoding: [tokens before the anchor, block], the block's rows seeing all of it."""
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens)
    _, noisy = two_streams(target, tokens, blocks)
    for n in range(len(tokens)):
        for a in range(6):
            rows = slice(a * BLOCK, (a + 1) * BLOCK)
            inside = blocks.inside[n, rows]
            own = blocks.tokens[n, rows][inside]
            anchor, width = int(blocks.positions[n, a * BLOCK]), len(own)
            alone = torch.cat([tokens[n, :anchor], own])[None]
            mask = torch.ones(anchor + width, anchor + width, dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            wanted = forward(target, alone, mask=mask[None]).hidden[0, anchor:]
            torch.testing.assert_close(noisy[n, rows][inside], wanted, rtol=1e-4, atol=2e-5)


def test_a_row_sees_exactly_what_it_may(target: Qwen3ForCausalLM) -> None:
    """The gradient of one row's hidden state to every input row, by perturbing what is embedded."""
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold, 1), 1)
    blocks = noisy_blocks(scaffold, tokens)
    length, seen = tokens.shape[1], []
    embedded: list[Tensor] = []

    def keep(_: object, __: object, out: Tensor) -> Tensor:
        embedded.append(out.detach().requires_grad_(True))
        return embedded[-1]

    hook = target.model.embed_tokens.register_forward_hook(keep)
    clean, noisy = two_streams(target, tokens, blocks)
    hook.remove()
    for row in (0, 5, 13, 23, 35):
        (found,) = torch.autograd.grad(noisy[0, row].sum(), embedded[-1], retain_graph=True)
        seen.append(found[0].abs().sum(-1) > 0)
        assert torch.equal(seen[-1], blocks.mask[0, row])
    (found,) = torch.autograd.grad(clean[0, 15].sum(), embedded[-1])
    assert torch.equal(found[0].abs().sum(-1) > 0, torch.arange(length + 36) <= 15)
    assert seen[1][length:].sum() == BLOCK  # its own block, in both directions


def test_a_pair_hides_every_value_exactly_once() -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    for seed in range(20):
        blocks = noisy_blocks(scaffold, tokens, seed=seed)
        one, other = blocks.drafted.view(3, 2, 3, BLOCK).unbind(1)
        places = blocks.positions.view(3, 2, 3, BLOCK)
        assert torch.equal(places[:, 0], places[:, 1])
        is_value = torch.tensor(scaffold.is_value)[(places[:, 0] - FIRST).clamp_min(0)]
        inside = blocks.inside.view(3, 2, 3, BLOCK)[:, 0]
        value = is_value & inside & (torch.arange(BLOCK) > 0)
        assert torch.equal(one ^ other, value)
        assert not (one & other).any()
        true = tokens.gather(1, blocks.positions)
        assert torch.equal(blocks.tokens, torch.where(blocks.drafted, MASK, true))


def test_whole_pairs_hide_all_and_need_not_share_a_place() -> None:
    scaffold = scaffold_of()
    tokens = torch.cat(words(scaffold), 1)
    blocks = noisy_blocks(scaffold, tokens, hidden=1.0)
    assert blocks.positions.view(3, 6, BLOCK)[0, :, 0].tolist() == [8, 12, 20, 24, 14, 10]
    is_value = torch.tensor(scaffold.is_value)[(blocks.positions - FIRST).clamp_min(0)]
    assert torch.equal(blocks.drafted, is_value & blocks.inside & (blocks.rows > 0))


def test_each_section_has_noise_of_its_own() -> None:
    scaffold = scaffold_of("?" * 40)
    tokens = torch.cat(words(scaffold, 200), 1)
    noise = noise_of(scaffold, head=(0.1, 0.9), tail=(0.9, 0.1))
    anchors = torch.full((200, 2), FIRST + 15)  # four values in the head, four in the tail
    widths = torch.full_like(anchors, 9)
    blocks = noise.blocks(tokens, anchors, widths, 9, np.random.default_rng(0))
    first = blocks.drafted.view(200, 2, 9)[:, 0].float()
    assert first[:, 1:5].mean() == pytest.approx(0.1, abs=0.05)
    assert first[:, 5:].mean() == pytest.approx(0.9, abs=0.05)
    # one rate for a section of a block: rows of a section go together more than chance has it
    shares = first[:, 5:].mean(1)
    assert shares.var() > 2 * float(shares.mean() * (1 - shares.mean()) / 4)


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


@torch.no_grad()
def test_rows_that_no_value_is_read_from_may_be_left_out(target: Qwen3ForCausalLM) -> None:
    """A block of the other rows alone says the same."""
    scaffold = scaffold_of()
    prompts, outputs = words(scaffold)
    tokens = torch.cat([prompts, outputs], 1)
    blocks = noisy_blocks(scaffold, tokens, hidden=1.0)
    is_value = Allowed(scaffold, FIRST, tokens.device).is_value
    fewer = blocks.of_value_rows(is_value)
    kept = fewer.inside
    following = torch.cat([is_value[1:], is_value.new_zeros(1)])[blocks.positions]
    assert torch.equal(kept, blocks.inside & ((blocks.rows == 0) | following))
    assert 0 < kept.sum() < blocks.inside.sum()
    assert torch.equal(fewer.drafted, blocks.drafted)
    noisy = two_streams(target, tokens, fewer)[1]
    for n in range(len(tokens)):
        rows = torch.nonzero(kept[n])[:, 0]
        for block in (rows // BLOCK).unique():
            own = rows[rows // BLOCK == block]
            anchor = int(blocks.positions[n, own[0]])
            shown = torch.cat([tokens[n, :anchor], blocks.tokens[n, own]])
            at = torch.cat([torch.arange(anchor), blocks.positions[n, own]])
            mask = torch.ones(len(shown), len(shown), dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            alone = forward(target, shown[None], positions=at[None], mask=mask[None]).hidden
            torch.testing.assert_close(noisy[n, own], alone[0, anchor:], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_pass_that_is_taken_back_leaves_nothing(target: Qwen3ForCausalLM) -> None:
    tokens = torch.randint(3, 500, (2, 12))
    cache = Cache(target.config, 2, 20)
    forward(target, tokens[:, :8], cache=cache)
    before = cache.length
    forward(target, tokens[:, 2:6], cache=cache, mask=torch.ones(2, 4, 12, dtype=torch.bool))
    cache.length = before
    found = forward(target, tokens[:, 8:], cache=cache).hidden
    wanted = forward(target, tokens).hidden[:, 8:]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


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
