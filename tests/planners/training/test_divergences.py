"""Divergences of distributions small enough to work out by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from planners.training.divergences import (
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


def test_common_draws_by_hand() -> None:
    # P: [0, .5) is token 0, [.5, 1) token 1; Q: [0, .7), [.7, .9), [.9, 1): .5 and .2 in common
    assert log_common_draw(P, Q).exp().item() == pytest.approx(0.7)
    # the same masses in another token order: alpha stays, the common draws are fewer
    turned = torch.tensor([0.1, 0.2, 0.7]).log()
    other = torch.tensor([0.0, 0.5, 0.5]).log()
    assert log_acceptance(other, turned).exp().item() == pytest.approx(0.7)
    # other: [0, .5) is 1, [.5, 1) is 2; turned: [0, .1) 0, [.1, .3) 1, [.3, 1) 2
    assert log_common_draw(other, turned).exp().item() == pytest.approx(0.2 + 0.5)
    far = torch.tensor([0.5, 0.0, 0.5]).log()
    # [0, .5) is 0, [.5, 1) is 2: .1 and .5
    assert log_common_draw(far, turned).exp().item() == pytest.approx(0.1 + 0.5)


def test_common_draws_against_drawing() -> None:
    torch.manual_seed(0)
    p, q = torch.rand(2, 9, dtype=torch.float64).softmax(-1)
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
    same = torch.searchsorted(p.cumsum(-1), u) == torch.searchsorted(q.cumsum(-1), u)
    found = log_common_draw(p.log(), q.log()).exp().item()
    assert found == pytest.approx(same.double().mean().item(), abs=1e-4)
    assert found < log_acceptance(p.log(), q.log()).exp().item()


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
