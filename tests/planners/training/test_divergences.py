"""Divergences of distributions small enough to work out by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from planners.training.divergences import (
    LIKELY,
    blended,
    forward_kl,
    log_acceptance,
    log_common_draw,
    negative_log_acceptance,
    reverse_kl,
    total_variation,
)

P = torch.tensor([0.5, 0.5, 0.0]).log()
Q = torch.tensor([0.7, 0.2, 0.1]).log()
KL = 0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.2)
ALPHA = 0.7  # 0.5 + 0.2


def test_values_by_hand() -> None:
    assert forward_kl(P, Q).item() == pytest.approx(KL, rel=1e-5)
    assert log_acceptance(P, Q).exp().item() == pytest.approx(ALPHA)
    assert total_variation(P, Q).item() == pytest.approx(1 - ALPHA)
    assert negative_log_acceptance(P, Q).item() == pytest.approx(-math.log(ALPHA), rel=1e-5)
    share = math.exp(-3 * ALPHA)
    mixed = share * KL + (1 - share) * (1 - ALPHA)
    assert blended(P, Q).item() == pytest.approx(mixed, rel=1e-5)
    full = torch.tensor([0.5, 0.3, 0.2]).log()
    back = 0.7 * math.log(0.7 / 0.5) + 0.2 * math.log(0.2 / 0.3) + 0.1 * math.log(0.1 / 0.2)
    assert reverse_kl(full, Q).item() == pytest.approx(back, rel=1e-5)


def test_the_reverse_kl_shuns_what_the_target_cannot_say() -> None:
    assert reverse_kl(P, Q).item() > 100  # a tenth of Q stands where P has nothing
    assert math.isfinite(reverse_kl(P, Q).item())


def agreement(p: Tensor, q: Tensor) -> Tensor:
    """[...] the definition: sum_i 1 / sum_j max(q_j / q_i, p_j / p_i)."""
    ratios = (x[..., None, :] / x[..., None] for x in (p, q))
    return (1.0 / torch.maximum(*(r.nan_to_num(0.0, torch.inf) for r in ratios)).sum(-1)).sum(-1)


def test_common_draws_by_hand() -> None:
    # 1 / (1 + 1 + .1/.7) + 1 / (.7/.2 + 1 + .1/.2); token 2 never wins P's race
    assert log_common_draw(P, Q).exp().item() == pytest.approx(7 / 15 + 1 / 5)
    # the order of tokens is of no account
    turned = torch.tensor([2, 0, 1])
    assert log_common_draw(P[turned], Q[turned]).exp().item() == pytest.approx(2 / 3)
    assert log_common_draw(Q, P).exp().item() == pytest.approx(2 / 3)
    apart = torch.tensor([0.0, 0.0, 1.0]).log()
    assert log_common_draw(P, apart).exp().item() == pytest.approx(0.0)


def test_common_draws_against_drawing() -> None:
    torch.manual_seed(0)
    p, q = torch.randn(2, 9, dtype=torch.float64).softmax(-1)
    noise = -torch.rand(400_000, 9, dtype=torch.float64).log()
    same = (noise / p).argmin(-1) == (noise / q).argmin(-1)
    found = log_common_draw(p.log(), q.log()).exp().item()
    assert found == pytest.approx(same.double().mean().item(), abs=3e-3)
    alpha = log_acceptance(p.log(), q.log()).exp().item()
    assert alpha / (2 - alpha) < found < alpha


@pytest.mark.parametrize("kept", [5, LIKELY, 60])
def test_common_draws_of_many_tokens(kept: int) -> None:
    """Exact where p keeps to few tokens, else a lower bound that is close."""
    torch.manual_seed(kept)
    logits, error = torch.randn(2, 50, 60, dtype=torch.float64)
    log_q = (3 * logits + error).log_softmax(-1)
    log_p = (3 * logits).masked_fill(torch.arange(60) >= kept, -torch.inf).log_softmax(-1)
    found, exact = log_common_draw(log_p, log_q).exp(), agreement(log_p.exp(), log_q.exp())
    if kept <= LIKELY:
        assert found.numpy() == pytest.approx(exact.numpy())
    else:
        assert (found < exact).all()
        assert (found > 0.8 * exact).all()


@pytest.mark.parametrize(
    "divergence", [forward_kl, reverse_kl, total_variation, negative_log_acceptance, blended]
)
def test_zero_only_for_the_target_itself(divergence: object) -> None:
    assert callable(divergence)
    torch.manual_seed(1)
    p, q = torch.randn(2, 5, 7, dtype=torch.float64).log_softmax(-1)
    assert divergence(p, p).abs().max().item() < 1e-9
    assert divergence(p, q).min().item() > 1e-3


@pytest.mark.parametrize(
    "divergence",
    [forward_kl, reverse_kl, total_variation, negative_log_acceptance, log_common_draw],
)
def test_gradients_against_finite_differences(divergence: object) -> None:
    assert callable(divergence)
    torch.manual_seed(2)
    p = torch.randn(3, 6, dtype=torch.float64).log_softmax(-1)
    logits = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)

    def of(x: Tensor) -> Tensor:
        value: Tensor = divergence(p, x.log_softmax(-1))
        return value

    assert torch.autograd.gradcheck(of, (logits,))


def test_forbidden_tokens_leave_finite_gradients() -> None:
    logits = torch.randn(4, 6, requires_grad=True)
    p = torch.randn(4, 6).masked_fill(torch.arange(6) > 2, -torch.inf).log_softmax(-1)
    q = logits.log_softmax(-1)
    for divergence in (forward_kl, reverse_kl, total_variation, log_acceptance, log_common_draw):
        (gradient,) = torch.autograd.grad(divergence(p, q).sum(), logits, retain_graph=True)
        assert gradient.isfinite().all(), divergence.__name__
