"""Left-to-right losses: by hand, by finite differences, and by enumeration."""

from __future__ import annotations

import itertools
import math

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from planners.training.chains import (
    block_reward,
    chain_reward,
    first_error_loss,
    pace_loss,
    pace_weights,
    row_weights,
)

ALL = torch.ones(1, 3, dtype=torch.bool)


def closed_form(log_p: Tensor) -> Tensor:
    """dR/dlog p_k = 1/K sum_{j>=k} prod_{m<=j} p_m of one block [K] (arXiv 2606.11552)."""
    p, count = log_p.exp().tolist(), len(log_p)
    reach = [math.prod(p[: j + 1]) for j in range(count)]
    return torch.tensor([sum(reach[k:]) / count for k in range(count)], dtype=torch.float64)


def test_row_weights_fall_by_e_over_gamma_rows() -> None:
    weights = row_weights(torch.tensor([1, 2, 8]), 7.0)
    assert weights.tolist() == pytest.approx([1.0, math.exp(-1 / 7), math.exp(-1)])
    assert row_weights(torch.tensor([1, 2, 8]), None).tolist() == [1.0, 1.0, 1.0]


def test_the_reward_of_a_block_by_hand() -> None:
    p = torch.tensor([[0.5, 0.8, 0.5]])
    assert chain_reward(p.log(), ALL).item() == pytest.approx((0.5 + 0.4 + 0.2) / 3)


def test_known_rows_are_accepted_and_rows_outside_do_not_count() -> None:
    p = torch.tensor([[1.0, 0.5, 1.0], [0.5, 1.0, 1.0]])  # 1 where known or outside
    inside = torch.tensor([[True, True, True], [True, True, False]])
    wanted = (1.0 + 0.5 + 0.5 + 0.5 + 0.5) / 5
    assert chain_reward(p.log(), inside).item() == pytest.approx(wanted)


def test_the_reward_gradient_is_exact() -> None:
    torch.manual_seed(0)
    log_p = torch.rand(7, dtype=torch.float64).clamp_min(0.05).log().requires_grad_()
    inside = torch.ones(1, 7, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(chain_reward(log_p[None], inside), log_p)
    torch.testing.assert_close(gradient, closed_form(log_p.detach()), rtol=1e-12, atol=0)
    step = 1e-6
    for k in range(7):
        shift = torch.zeros(7, dtype=torch.float64)
        shift[k] = step
        with torch.no_grad():
            up, down = (chain_reward((log_p + s)[None], inside) for s in (shift, -shift))
        assert gradient[k].item() == pytest.approx((up - down).item() / (2 * step), rel=1e-8)


def test_the_reward_gradient_through_logits_of_cut_blocks_with_known_rows() -> None:
    torch.manual_seed(1)
    drafted = torch.tensor([[True, False, True, True], [True, True, False, False]])
    inside = torch.tensor([[True, True, True, True], [True, True, True, False]])
    logits = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 1, 2, 3, 4])

    def reward(x: Tensor) -> Tensor:
        said = x.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        return chain_reward(x.new_zeros(2, 4).masked_scatter(drafted, said), inside)

    assert torch.autograd.gradcheck(reward, (logits,))


def test_hopeless_rows_have_finite_gradients() -> None:
    log_p = torch.full((1, 3), -300.0, requires_grad=True)
    (gradient,) = torch.autograd.grad(chain_reward(log_p, ALL), log_p)
    assert gradient.tolist() == [[0.0, 0.0, 0.0]]


def test_the_first_error_by_hand() -> None:
    losses = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0], [64.0, 64.0, 64.0]])
    wrong = torch.tensor([[False, True, True], [True, False, True], [False, False, False]])
    weights = torch.tensor([1.0, 0.5, 0.25]).expand(3, 3)
    # block 0 errs first in row 1 (weight 0.5), block 1 in row 0 (weight 1), block 2 never
    wanted = (0.5 * 2.0 + 1.0 * 8.0) / 1.5
    assert first_error_loss(losses, wrong, weights).item() == pytest.approx(wanted)
    assert first_error_loss(losses, torch.zeros_like(wrong), weights).item() == 0.0


def test_only_first_errors_have_a_gradient() -> None:
    losses = torch.rand(2, 3, requires_grad=True)
    wrong = torch.tensor([[False, True, True], [False, False, False]])
    (gradient,) = torch.autograd.grad(first_error_loss(losses, wrong, torch.ones(2, 3)), losses)
    assert gradient.tolist() == [[0.0, pytest.approx(1.0), 0.0], [0.0, 0.0, 0.0]]


def test_pace_weights_by_hand() -> None:
    p = torch.tensor([[0.5, 0.2, 1.0]])  # the last row is known
    s = [0.75, 0.6, 1.0]
    reach = [s[0], s[0] * s[1], s[0] * s[1] * s[2]]
    wanted = [sum(reach), sum(reach[1:]), reach[2]]
    assert pace_weights(p.log(), ALL)[0].tolist() == pytest.approx(wanted)
    loss = (wanted[0] * math.log(2) + wanted[1] * math.log(5)) / 3
    assert pace_loss(p.log(), ALL).item() == pytest.approx(loss)


def test_pace_without_smoothing_has_the_reward_gradient() -> None:
    torch.manual_seed(2)
    inside = torch.tensor([[True, True, True, False], [True, True, True, True]])
    log_p = torch.rand(2, 4, dtype=torch.float64).log() * inside
    log_p.requires_grad_()
    (pace,) = torch.autograd.grad(pace_loss(log_p, inside, smoothing=0.0), log_p)
    (reward,) = torch.autograd.grad(chain_reward(log_p, inside), log_p)
    torch.testing.assert_close(pace, -reward, rtol=1e-12, atol=0)


def test_rewards_of_sampling_are_the_expected_lengths_of_both_rules() -> None:
    """Over every response: the mean under the target is what drawn drafts get accepted."""
    torch.manual_seed(3)
    vocab, rows = 3, 3
    draft = torch.rand(rows, vocab, dtype=torch.float64).softmax(-1)  # independent rows
    target = {
        prefix: (2 * torch.randn(vocab, dtype=torch.float64)).softmax(-1)
        for k in range(rows)
        for prefix in itertools.product(range(vocab), repeat=k)
    }
    inside = torch.ones(1, rows, dtype=torch.bool)
    token_mean, block_mean = 0.0, 0.0
    token, block = 0.0, 0.0
    for x in itertools.product(range(vocab), repeat=rows):
        p = [target[x[:k]][x[k]].item() for k in range(rows)]
        q = [draft[k, x[k]].item() for k in range(rows)]
        ratio = torch.tensor([math.log(b / a) for a, b in zip(p, q, strict=True)])[None]
        token_mean += math.prod(p) * chain_reward(ratio.clamp_max(0.0), inside).item()
        block_mean += math.prod(p) * block_reward(ratio, inside).item()
        # from the draft's side: token verification keeps row k with min(1, p/q); block
        # verification keeps h rows with probability w_h = min(1, w_{h-1} p/q) (arXiv 2403.10444)
        kept, share, reach = 1.0, 1.0, []
        for a, b in zip(p, q, strict=True):
            kept *= min(1.0, a / b)
            share = min(1.0, share * a / b)
            reach.append((kept, share))
        token += math.prod(q) * sum(each[0] for each in reach) / rows
        block += math.prod(q) * sum(each[1] for each in reach) / rows
    assert token_mean == pytest.approx(token, rel=1e-6)
    assert block_mean == pytest.approx(block, rel=1e-6)
    assert block > token + 1e-3
