"""The objective's config, and its loss put together from terms."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from pydantic import ValidationError
from torch import Tensor

from planners.training.drafter_objective import Drafted, DrafterObjective, drafter_loss

NONE = {"ce": 0.0, "kl": 0.0}
DRAFT = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
TARGET = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
TOKENS = torch.tensor([0, 1])  # the first is right, the second is not
# one block: drafted, known, drafted, and a row beyond the end of the sequence
DRAFTED = torch.tensor([[True, False, True, False]])
INSIDE = torch.tensor([[True, True, True, False]])
ALPHA = (0.7, 0.8)
DECAY = math.exp(-2 / 7)


def loss_of(objective: DrafterObjective, progress: float = 0.0) -> tuple[float, dict[str, float]]:
    rows = Drafted(DRAFT.log(), TOKENS, TARGET.log().clamp_min(-1e4), DRAFTED, INSIDE)
    loss, terms = drafter_loss(rows, objective, progress)
    return loss.item(), terms


def mean(first: float, second: float, decay: float = DECAY) -> float:
    return (first + decay * second) / (1 + decay)


KLS = (
    0.5 * math.log(0.5 / 0.7) + 0.5 * math.log(0.5 / 0.2),
    0.5 * math.log(0.5 / 0.3) + 0.5 * math.log(0.5 / 0.6),
)


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("ce", mean(-math.log(0.7), -math.log(0.3))),
        ("kl", mean(*KLS)),
        ("tv", mean(0.3, 0.2)),
        ("log_alpha", mean(-math.log(0.7), -math.log(0.8))),
        ("first_error", -math.log(0.3)),
        ("chain", (0.7 + 0.7 + 0.7 * 0.3) / 3),
        ("chain_alpha", (0.7 + 0.7 + 0.7 * 0.8) / 3),
        ("chain_token", (1.0 + 1.0 + 0.6) / 3),
        ("chain_block", (1.0 + 1.0 + 1.4 * 0.6) / 3),
        # row 0: 1 / (1 + 1 + .1/.7) + 1 / (.7/.2 + 1 + .1/.2)
        # row 2: 1 / (.1/.3 + 1 + .6/.3) + 1 / (.1/.6 + 1 + 1)
        ("chain_coupled", (2 / 3 + 2 / 3 + 2 / 3 * (3 / 10 + 6 / 13)) / 3),
    ],
)
def test_each_term_by_hand(term: str, value: float) -> None:
    loss, terms = loss_of(DrafterObjective(**(NONE | {term: 2.0})))
    assert terms == {term: pytest.approx(value, rel=1e-5)}
    sign = -1.0 if term.startswith("chain") else 1.0
    assert loss == pytest.approx(sign * 2.0 * value, rel=1e-5)


def test_pace_by_hand() -> None:
    s = (0.85, 1.0, 0.65)
    reach = (s[0], s[0], s[0] * s[2])
    wanted = -(sum(reach) * math.log(0.7) + reach[2] * math.log(0.3)) / 3
    assert loss_of(DrafterObjective(ce=0, kl=0, dpace=1))[0] == pytest.approx(wanted, rel=1e-5)


def test_the_terms_add_up() -> None:
    names = ("ce", "kl", "reverse_kl", "tv", "log_alpha", "blend", "first_error", "chain", "dpace")
    weights = {name: 0.1 * (i + 1) for i, name in enumerate(names)}
    loss, terms = loss_of(DrafterObjective(**weights))
    signed = {name: -w if name == "chain" else w for name, w in weights.items()}
    assert loss == pytest.approx(sum(signed[name] * terms[name] for name in names), rel=1e-5)


def test_the_default_is_the_mean_of_both_under_gamma_7() -> None:
    loss, _ = loss_of(DrafterObjective())
    ce = mean(-math.log(0.7), -math.log(0.3))
    assert loss == pytest.approx((ce + mean(*KLS)) / 2, rel=1e-5)


def test_uniform_weights_and_growing_gamma() -> None:
    uniform, _ = loss_of(DrafterObjective(ce=1, kl=0, gamma=None))
    assert uniform == pytest.approx(-(math.log(0.7) + math.log(0.3)) / 2, rel=1e-5)
    growing = DrafterObjective(ce=1, kl=0, gamma=4.0, gamma_max=8.0)
    assert [growing.gamma_at(x) for x in (0.0, 0.5, 1.0)] == [4.0, 6.0, 8.0]
    late, _ = loss_of(growing, progress=0.5)
    wanted = mean(-math.log(0.7), -math.log(0.3), math.exp(-2 / 6))
    assert late == pytest.approx(wanted, rel=1e-5)


def test_temperature_is_that_of_both_distributions() -> None:
    half = DrafterObjective(ce=0, kl=0, tv=1, gamma=None, temperature=0.5)
    p, q = (x**2 / (x**2).sum(-1, keepdim=True) for x in (TARGET, DRAFT))
    wanted = 1 - torch.minimum(p, q).sum(-1).mean().item()
    assert loss_of(half)[0] == pytest.approx(wanted, rel=1e-5)


def test_the_whole_gradient_against_finite_differences() -> None:
    torch.manual_seed(0)
    drafted = torch.tensor([[True, False, True], [True, True, False]])
    inside = torch.tensor([[True, True, True], [True, True, False]])
    target = torch.randn(4, 5, dtype=torch.float64)
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([0, 3, 1, 4])
    # without those whose weights have no gradient by definition: dpace, blend
    objective = DrafterObjective(
        ce=1, kl=1, reverse_kl=1, tv=1, log_alpha=1, first_error=1, chain=4, chain_alpha=4,
        chain_token=4, chain_block=4, chain_coupled=4,
    )  # fmt: skip

    def of(x: Tensor) -> Tensor:
        return drafter_loss(Drafted(x, tokens, target, drafted, inside), objective)[0]

    assert torch.autograd.gradcheck(of, (logits,))


def test_no_drafted_row_is_no_loss() -> None:
    objective = DrafterObjective(first_error=1, chain=1, dpace=1, tv=1, chain_block=1)
    empty = torch.zeros(0, 3, requires_grad=True)
    nothing = torch.zeros(2, 4, dtype=torch.bool)
    rows = Drafted(empty, torch.zeros(0, dtype=torch.long), empty.detach(), nothing, nothing)
    loss, _ = drafter_loss(rows, objective)
    assert loss.item() == 0.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"ce": 0, "kl": 0}, "at least one of ce"),
        ({"ce": -1}, "greater than or equal to 0"),
        ({"chain": math.inf}, "finite"),
        ({"gamma": 0}, "greater than 0"),
        ({"gamma": None, "gamma_max": 9}, "a gamma to start from"),
        ({"gamma": 7, "gamma_max": 5}, "at least gamma"),
        ({"temperature": 0}, "greater than 0"),
        ({"focal": 1}, "not permitted"),
    ],
)
def test_bad_objectives_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        DrafterObjective(**fields)


def test_an_objective_in_words() -> None:
    assert DrafterObjective().in_words() == "0.5 ce + 0.5 kl, gamma 7"
    full = DrafterObjective(ce=1, kl=0, chain=40, gamma=4.5, gamma_max=10)
    assert full.in_words() == "1 ce + 40 chain, gamma 4.5 to 10"
    assert DrafterObjective(kl=0, gamma=None).in_words() == "0.5 ce, equal weights"
