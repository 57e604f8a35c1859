"""Batched decoding in torch against decoding one token at a time with transformers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.training.data import Augmentation, Recorded
from planners.training.evaluation import ade, greedy_paths, paths_of
from planners.training.examples import Examples
from planners.training.responses import ResponseSettings, draw_responses, respond


def one_by_one(target: Qwen3ForCausalLM, prompt: Tensor, examples: Examples) -> list[int]:
    """Greedy, without a cache: the plain definition."""
    scaffold = examples.scaffold
    bias = torch.tensor(scaffold.bias_at(np.arange(len(scaffold))))
    tokens = prompt.tolist()
    for position in range(len(scaffold)):
        with torch.no_grad():
            logits = target(torch.tensor([tokens])).logits[0, -1]
        tokens.append(int((logits + bias[position]).argmax()))
    return tokens[len(prompt) :]


def test_greedy_equals_the_plain_definition(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    prompts = examples.prompts(straight)[[2, 7]]
    outputs = respond(target, prompts, examples.scaffold)
    for row in range(2):
        assert outputs[row].tolist() == one_by_one(target, prompts[row], examples)


def test_sampled_outputs_keep_to_the_scaffold(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    scaffold = examples.scaffold
    heat = {"trajectory": torch.full((12,), 1.0), "motion": torch.full((12,), 1.0)}
    outputs = respond(target, examples.prompts(straight), scaffold, heat, seed=1).numpy()
    allowed = scaffold.allowed_sets[scaffold.allowed_id]
    for row in outputs:
        assert (row == scaffold.tokens)[~scaffold.is_value].all()
        assert allowed[np.arange(len(row)), row].all()
    again = respond(target, examples.prompts(straight), scaffold, heat, seed=1).numpy()
    assert np.array_equal(outputs, again)
    other = respond(target, examples.prompts(straight), scaffold, heat, seed=2).numpy()
    assert not np.array_equal(outputs, other)


def test_temperature_zero_rows_stay_greedy(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    prompts = examples.prompts(straight)
    heat = {"trajectory": torch.tensor([0.0, 2.0] * 6)}
    mixed = respond(target, prompts, examples.scaffold, heat)
    greedy = respond(target, prompts, examples.scaffold)
    assert torch.equal(mixed[::2], greedy[::2])
    assert not torch.equal(mixed[1::2], greedy[1::2])
    fork = examples.scaffold.section("trajectory").start
    assert torch.equal(mixed[:, :fork], greedy[:, :fork])


def test_the_share_of_greedy_outputs(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    still = Augmentation(scale=(1.0, 1.0), mirror=0.0, command=0.0)
    settings = ResponseSettings(
        count=40, fork_heats=((0.0, 0.5), (1.0, 0.5)), free_prefix=0.0, augmentation=still
    )
    prompts, outputs = draw_responses(target, straight, examples, settings, batch=16)
    assert prompts.shape[0] == outputs.shape[0] == 40
    greedy = respond(target, prompts, examples.scaffold)
    share = (outputs == greedy).all(1).float().mean().item()
    assert 0.25 < share < 0.75


def test_the_true_outputs_give_the_driven_path(examples: Examples, straight: Recorded) -> None:
    paths = paths_of(examples.outputs(straight), straight, examples)
    assert ade(paths, straight) < 0.05  # what rounding to decimetres costs


def test_outputs_that_do_not_parse_are_nan(examples: Examples, straight: Recorded) -> None:
    outputs = examples.outputs(straight)
    outputs[3, 0] = examples.tokenizer.mask
    paths = paths_of(outputs, straight, examples)
    assert np.isnan(paths[3]).all()
    assert np.isfinite(np.delete(paths, 3, 0)).all()


def test_greedy_paths_come_in_batches(
    target: Qwen3ForCausalLM, examples: Examples, straight: Recorded
) -> None:
    whole, outputs = greedy_paths(target, straight, examples)
    parts, same = greedy_paths(target, straight, examples, batch=5)
    assert torch.equal(outputs, same)
    np.testing.assert_array_equal(whole, parts)
