"""Training-time test: what an EAGLE-3 drafter is fed, what it may see, and that it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from transformers import Qwen3ForCausalLM

from planners.nets.eagle3 import Eagle3, Eagle3Config, frequent_tokens, new_eagle3
from planners.nets.qwen3 import forward
from planners.training.data import Recorded
from planners.training.eagle import EagleSettings, acceptance_length, drafts, train_eagle
from planners.training.eagle_units import next_drafted, unroll
from planners.training.examples import Examples
from planners.training.responses import respond
from planners.training.schedule import Schedule

CONFIG = Eagle3Config(
    hidden_size=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=16,
    intermediate_size=48,
    vocab_size=512,
    draft_vocab_size=512,
    target_layer_ids=(0, 1, 3),
    depth=4,
    scaffold_runs=True,
)


def test_units_are_a_token_and_the_fixed_ones_behind_it() -> None:
    #                        0      1      2     3      4      5     6     7
    is_value = torch.tensor([False, False, True, False, False, True, True, False])
    runs, single = (next_drafted(is_value, 2, each) for each in (True, False))
    assert runs.tolist() == [2, 2, 5, 5, 5, 6, 8, 8]
    assert single.tolist() == [2, 2, 3, 4, 5, 6, 7, 8]
    first, second, third = unroll(torch.tensor([[1, 2, 5]]), runs, 3)
    assert first.positions[first.real].tolist() == [1, 2, 3, 4, 5]
    assert first.owner[first.real].tolist() == [0, 1, 1, 1, 2]
    assert first.predicted.tolist() == [[2, 5, 6]]
    assert first.positions.gather(1, first.last).tolist() == [[1, 4, 5]]
    assert second.positions[second.real].tolist() == [2, 3, 4, 5, 6, 7]
    assert second.predicted.tolist() == [[5, 6, 8]]
    assert third.owner[third.real].tolist() == [0, 1, 1]  # the last anchor is behind the end
    assert third.predicted.tolist() == [[6, 8, 8]]


def shaken(config: Eagle3Config) -> Eagle3:
    drafter = new_eagle3(0, config)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1))
    return drafter.eval()


@torch.no_grad()
@pytest.mark.parametrize("runs", [True, False])
def test_many_anchors_at_once_draft_as_one_by_one(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded, runs: bool
) -> None:
    """Against the drafter passed step by step over one anchor's own rows, without any mask."""
    drafter = shaken(replace(CONFIG, scaffold_runs=runs))
    prompts = examples.prompts(straight)[:2]
    tokens = torch.cat([prompts, respond(target, prompts, examples.scaffold)], 1)
    first, length = prompts.shape[1], tokens.shape[1]
    values = torch.tensor(examples.scaffold.is_value)
    is_value = torch.cat([torch.zeros(first, dtype=torch.bool), values])
    taps = forward(target, tokens, taps=CONFIG.target_layer_ids).taps
    assert taps is not None
    anchors = torch.tensor(
        [[first - 1, first + 8, length - 12], [first + 1, first + 30, length - 3]]
    )
    found = list(drafts(drafter, target, tokens, taps, anchors, is_value, first))
    assert len(found) == CONFIG.depth
    embeddings, following = target.model.embed_tokens(tokens), next_drafted(is_value, first, runs)
    for n, a in np.ndindex(*anchors.shape):
        anchor = int(anchors[n, a])
        features = drafter.fuse(taps[n : n + 1])
        rows = torch.arange(1, anchor)
        past = drafter.keys_values(
            embeddings[n : n + 1, 1:anchor], features[:, : anchor - 1], rows[None]
        )
        feature, start = features[:, anchor - 1 : anchor], anchor
        for drafted in found:
            stop = int(following[start]) if start < length else length
            for position in range(start, stop):
                at = torch.tensor([[position]])
                hidden, past = drafter(
                    embeddings[n : n + 1, position : position + 1], feature, at, None, past
                )
            feature, start = hidden, stop
            assert bool(drafted.inside[n, a]) == (stop < length)
            if stop >= length:
                break
            assert int(drafted.positions[n, a]) == stop
            torch.testing.assert_close(drafted.hidden[n, a], hidden[0, 0], atol=1e-4, rtol=1e-3)


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("objective", ["ce", "kl", "ce+kl"])
def test_the_drafter_learns_and_resumes(
    target: Qwen3ForCausalLM,
    examples: Examples,
    straight: Recorded,
    tmp_path: Path,
    objective: str,
) -> None:
    prompts = examples.prompts(straight)
    outputs = respond(target, prompts, examples.scaffold)
    tokens = frequent_tokens(outputs, 512, 64)
    config = replace(CONFIG, draft_vocab_size=64)
    steps = 60 if objective == "ce+kl" else 12
    how = EagleSettings(
        Schedule(steps=steps, peak=1e-2, average=0.8), batch=4, anchors=4, objective=objective
    )

    def train(folder: str, until: int | None = None) -> Eagle3:
        drafter = new_eagle3(1, config, tokens=tokens)
        out = tmp_path / folder
        train_eagle(
            drafter, target, prompts, outputs, examples.scaffold, how, out, every=4, until=until
        )
        return drafter

    def reached(drafter: Eagle3) -> float:
        return acceptance_length(drafter, target, prompts, outputs, examples.scaffold)

    whole = train("whole")
    lines = [json.loads(x) for x in (tmp_path / "whole" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < lines[0]["loss"]
    train("part", until=5)
    assert same(train("part"), whole)
    assert not any(p.grad is not None for p in target.parameters())
    if objective == "ce+kl":
        assert reached(whole) > reached(new_eagle3(1, config, tokens=tokens)) + 0.5


def test_a_perfect_drafter_commits_depth_and_scaffold(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    """Outputs that are all the drafter's constant choice: the count of rounds is plain."""
    scaffold, prompts = examples.scaffold, examples.prompts(straight)[:2]
    drafter = new_eagle3(0, CONFIG)
    with torch.no_grad():
        drafter.lm_head.weight.zero_()  # all logits equal: the lowest allowed token wins
    lowest = torch.tensor(scaffold.allowed_sets[scaffold.allowed_id]).int().argmax(1)
    fixed = torch.tensor(scaffold.tokens)
    outputs = torch.where(fixed < 0, lowest, fixed).repeat(2, 1)
    values = int(scaffold.is_value.sum())
    rounds = -(-values // (CONFIG.depth + 1))  # depth drafts and the target's own
    found = acceptance_length(drafter, target, prompts, outputs, scaffold)
    assert found == pytest.approx(len(scaffold) / rounds, rel=0.05)
