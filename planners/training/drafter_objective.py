"""What a block drafter is trained to minimise: a sum of terms, weighted by a config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor
from torch.nn import functional

from planners.training import chains, divergences
from planners.training.objectives import weighted_mean

Divergence = Callable[[Tensor, Tensor], Tensor]

_DIVERGENCES: dict[str, Divergence] = {
    "kl": divergences.forward_kl,
    "reverse_kl": divergences.reverse_kl,
    "tv": divergences.total_variation,
    "log_alpha": divergences.negative_log_acceptance,
    "blend": divergences.blended,
}
_LOG_ACCEPTANCES: dict[str, Divergence] = {
    "chain_alpha": divergences.log_acceptance,
    "chain_coupled": divergences.log_common_draw,
}
MEANS = ("ce", *_DIVERGENCES)  # terms that are a weighted mean over values
_SAMPLED_CHAINS = (*_LOG_ACCEPTANCES, "chain_token", "chain_block")
_TERMS = (*MEANS, "first_error", "chain", *_SAMPLED_CHAINS, "dpace")


class DrafterObjective(BaseModel):
    """Weights of the loss's terms; terms of weight 0 are not computed.

    Rows of the terms from `ce` to `blend` are weighted by exp(-(k-1)/gamma); of `first_error` too.
    The chain terms are rewards: they are subtracted. p is the target's distribution, q the draft's.

    Attributes:
        ce: cross-entropy to the response's token.
        kl, reverse_kl, tv, log_alpha: KL(p||q), KL(q||p), 1 - alpha, -log alpha.
        blend: exp(-3 alpha) KL(p||q) + (1 - exp(-3 alpha)) TV.
        first_error: cross-entropy at each block's first wrong row.
        chain: expected share of rows accepted if row k is accepted with q(token).
        chain_alpha: the same with alpha_k, the acceptance of speculative sampling.
        chain_token: that of token verification along the response, exact for a drawn response.
        chain_block: that of block verification, exact for a drawn response.
        chain_coupled: with how often p and q give the same token in a race with the same noise.
        dpace: cross-entropy under D-PACE's weights; dpace_smoothing is its a.
        gamma: rows over which a row's weight falls by e; null for equal weights.
        gamma_max: gamma grows linearly over the run and ends here; null keeps it.
        temperature: of p and q in everything that compares them.
        allowed_only: q keeps to the tokens that a position allows, as it does in decoding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    ce: float = Field(default=0.5, ge=0)
    kl: float = Field(default=0.5, ge=0)
    reverse_kl: float = Field(default=0.0, ge=0)
    tv: float = Field(default=0.0, ge=0)
    log_alpha: float = Field(default=0.0, ge=0)
    blend: float = Field(default=0.0, ge=0)
    first_error: float = Field(default=0.0, ge=0)
    chain: float = Field(default=0.0, ge=0)
    chain_alpha: float = Field(default=0.0, ge=0)
    chain_token: float = Field(default=0.0, ge=0)
    chain_block: float = Field(default=0.0, ge=0)
    chain_coupled: float = Field(default=0.0, ge=0)
    dpace: float = Field(default=0.0, ge=0)
    dpace_smoothing: float = Field(default=0.5, ge=0, le=1)
    gamma: float | None = Field(default=7.0, gt=0)
    gamma_max: float | None = Field(default=None, gt=0)
    temperature: float = Field(default=1.0, gt=0)
    allowed_only: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> DrafterObjective:
        if not self.terms():
            raise ValueError(f"at least one of {', '.join(_TERMS)} above 0")
        if self.gamma_max is not None and (self.gamma is None or self.gamma_max < self.gamma):
            raise ValueError("gamma_max of at least gamma, and a gamma to start from")
        return self

    def terms(self) -> dict[str, float]:
        """The weights that are not 0, by name, in a fixed order."""
        return {name: float(getattr(self, name)) for name in _TERMS if getattr(self, name)}

    def gamma_at(self, progress: float) -> float | None:
        """gamma when `progress` (0 to 1) of the steps are done (arXiv 2606.02091)."""
        if self.gamma is None or self.gamma_max is None:
            return self.gamma
        return self.gamma + progress * (self.gamma_max - self.gamma)

    def in_words(self) -> str:
        """The terms and their weights, such as `0.5 ce + 0.5 kl, gamma 7`."""
        terms = " + ".join(f"{w:g} {name}" for name, w in self.terms().items())
        decay = "equal weights" if self.gamma is None else f"gamma {self.gamma:g}"
        return terms + f", {decay}" + (f" to {self.gamma_max:g}" if self.gamma_max else "")


@dataclass(frozen=True, eq=False)
class Drafted:
    """The rows that a drafter filled, and where they stand in their blocks.

    Attributes:
        logits: [R, V] of the drafter, each at its own position.
        tokens: [R] what the response has there.
        target_logits: [R, V] of the target given all tokens before; finite or -inf.
        drafted: [M, K] bool, R true places in row-major order: block m's row k + 1 was drafted.
        inside: [M, K] bool: drafted, or a known token of the block.
    """

    logits: Tensor
    tokens: Tensor
    target_logits: Tensor
    drafted: Tensor
    inside: Tensor


def drafter_loss(
    rows: Drafted, objective: DrafterObjective, progress: float = 0.0
) -> tuple[Tensor, dict[str, float]]:
    """The objective's loss, and each of its terms before weighting.

    Args:
        progress: the part of the run's steps that are done.
    """
    figures = row_figures(rows.logits, rows.target_logits, rows.tokens, objective)
    return block_loss(figures, rows.drafted, rows.inside, objective, progress)


def row_figures(
    logits: Tensor, target_logits: Tensor, tokens: Tensor, objective: DrafterObjective
) -> dict[str, Tensor]:
    """What the objective needs of each drafted row, [R] each.

    Args:
        logits, target_logits, tokens: see `Drafted`.

    Returns:
        `said` log q(token), `right` argmax q is the token; and where the objective compares
        distributions, at its temperature: its divergences, its log-acceptances, and `log_ratio`
        log q - log p of the token.
    """
    said = tokens[:, None]
    log_q = functional.log_softmax(_at_least_fp32(logits), -1)
    figures = {"said": log_q.gather(-1, said)[:, 0], "right": logits.argmax(-1) == tokens}
    wanted = objective.terms()
    if wanted.keys().isdisjoint((*_DIVERGENCES, *_SAMPLED_CHAINS)):
        return figures
    log_p = functional.log_softmax(_at_least_fp32(target_logits) / objective.temperature, -1)
    log_q = functional.log_softmax(_at_least_fp32(logits) / objective.temperature, -1)
    for name, compare in (_DIVERGENCES | _LOG_ACCEPTANCES).items():
        if name in wanted:
            figures[name] = compare(log_p, log_q)
    figures["log_ratio"] = (log_q - log_p).gather(-1, said)[:, 0]
    return figures


def block_loss(
    figures: dict[str, Tensor],
    drafted: Tensor,
    inside: Tensor,
    objective: DrafterObjective,
    progress: float = 0.0,
    weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """`drafter_loss` from figures [R] of `row_figures`, which may come from several pieces.

    Args:
        weights: [M, K] of the rows, besides gamma's, in all terms that are a mean over rows.
    """

    def grid(values: Tensor) -> Tensor:
        return values.new_zeros(drafted.shape).masked_scatter(drafted, values)

    wanted = objective.terms()
    row = torch.arange(1, drafted.shape[1] + 1, device=drafted.device)
    decay = chains.row_weights(row, objective.gamma_at(progress)).expand(drafted.shape)
    if weights is not None:
        decay = decay * weights
    said, terms = figures["said"], dict[str, Tensor]()
    for name in wanted:
        if name == "ce":
            terms[name] = weighted_mean(-said, decay[drafted])
        elif name in _DIVERGENCES:
            terms[name] = weighted_mean(figures[name], decay[drafted])
        elif name == "first_error":
            terms[name] = chains.first_error_loss(-grid(said), grid(~figures["right"]), decay)
        elif name == "dpace":
            terms[name] = chains.pace_loss(grid(said), inside, objective.dpace_smoothing)
        elif name == "chain":
            terms[name] = chains.chain_reward(grid(said), inside)
        elif name in _LOG_ACCEPTANCES:
            terms[name] = chains.chain_reward(grid(figures[name]), inside)
        elif name == "chain_token":
            terms[name] = chains.chain_reward(grid(figures["log_ratio"]).clamp_max(0.0), inside)
        elif name == "chain_block":
            terms[name] = chains.block_reward(grid(figures["log_ratio"]), inside)
    signs = {name: -1.0 if name.startswith("chain") else 1.0 for name in terms}
    loss = torch.stack([signs[name] * wanted[name] * terms[name] for name in terms]).sum()
    return loss, {name: value.item() for name, value in terms.items()}


def _at_least_fp32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
