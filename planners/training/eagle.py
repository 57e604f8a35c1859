"""Train an EAGLE-3 drafter by training-time test (arXiv 2503.01840, section 3.2).

From each anchor the drafter goes several passes on its own hidden states, as it will when decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import ConfigDict
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from planners.nets.eagle3 import Eagle3
from planners.nets.qwen3 import forward
from planners.training.eagle_units import Unit, next_drafted, unroll
from planners.training.loop import Evaluate, train
from planners.training.schedule import Schedule
from planners.training.settings import CHECKED, Positive, Seed, Spread
from planners.training.watch import Watch
from runtime.scaffold import Scaffold

FORBIDDEN = -1e4  # added to the logits of tokens outside an allowed set; finite, for the KL


@dataclass(frozen=True)
class EagleSettings:
    """How an EAGLE-3 drafter is trained.

    Attributes:
        batch: sequences a step; anchors: of each.
        step_decay: loss weight of a pass against the one before (SpecForge has 0.8; 1 is uniform).
        objective: cross-entropy to the response's token, KL(target || draft), or half of each.
    """

    __pydantic_config__: ClassVar[ConfigDict] = CHECKED

    schedule: Schedule
    seed: Seed = 0
    batch: Positive = 8
    anchors: Positive = 16
    step_decay: Spread = 0.8
    objective: Literal["ce", "kl", "ce+kl"] = "ce+kl"


@dataclass(frozen=True, eq=False)
class Drafted:
    """What one pass drafted, from each anchor.

    Attributes:
        hidden: [N, A, d], what `Eagle3.logits` reads.
        positions: [N, A] of the drafted tokens; inside: [N, A] bool, False behind the end.
    """

    hidden: Tensor
    positions: Tensor
    inside: Tensor


def train_eagle(
    drafter: Eagle3,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
    settings: EagleSettings,
    folder: Path,
    *,
    evaluate: Evaluate | None = None,
    every: int = 500,
    save_every: int | None = None,
    until: int | None = None,
    watch: Watch | None = None,
) -> dict[str, float]:
    """Train in place; the drafter ends with averaged weights. Returns the last evaluation.

    Args:
        prompts: [M, Lp] and outputs: [M, L], the target's own, sampled or greedy.
    """
    drafter.train()
    target.requires_grad_(False)
    sequences = torch.cat([prompts, outputs], 1)
    first = prompts.shape[1]
    is_value, bias = _scaffold(scaffold, first)
    bias = bias.clamp_min(FORBIDDEN)

    def loss_of_step(step: int) -> tuple[Tensor, dict[str, float]]:
        rng = np.random.default_rng((settings.seed, step))
        tokens = sequences[torch.from_numpy(rng.integers(len(sequences), size=settings.batch))]
        shape = (len(tokens), settings.anchors)
        anchors = torch.from_numpy(rng.integers(first - 1, tokens.shape[1] - 1, shape))
        with torch.no_grad():
            run = forward(target, tokens, taps=drafter.config.target_layer_ids)
            truth = target.lm_head(run.hidden[:, first - 1 : -1]).float() + bias
        assert run.taps is not None
        losses, weights, hits = [], [], []
        passes = drafts(drafter, target, tokens, run.taps, anchors, is_value, first)
        for i, drafted in enumerate(passes):
            sequence, anchor = (drafted.inside & is_value[drafted.positions]).nonzero(as_tuple=True)
            at = drafted.positions[sequence, anchor]
            wanted = tokens[sequence, at]
            known = drafter.t2d[wanted]
            sequence, anchor, at, wanted = (x[known] for x in (sequence, anchor, at, wanted))
            logits = drafter.logits(drafted.hidden[sequence, anchor])
            wanted = drafter.t2d.cumsum(0)[wanted] - 1  # in the drafter's vocabulary
            law = truth[sequence, at - first][:, drafter.tokens]
            losses.append(_losses(logits, wanted, law, settings.objective))
            weights.append(torch.full_like(losses[-1], settings.step_decay**i))
            hits.append(logits.argmax(-1) == wanted)
        weight = torch.cat(weights)
        loss = (torch.cat(losses) * weight).sum() / weight.sum().clamp_min(1e-9)
        hit = torch.cat(hits).float().mean()
        return loss, {"loss": loss.item(), "hit": hit.item()}

    return train(
        drafter,
        loss_of_step,
        settings.schedule,
        folder,
        seed=settings.seed,
        settings=asdict(settings),
        evaluate=evaluate,
        every=every,
        save_every=save_every,
        until=until,
        watch=watch,
    )


def drafts(
    drafter: Eagle3,
    target: Qwen3ForCausalLM,
    tokens: Tensor,
    taps: Tensor,
    anchors: Tensor,
    is_value: Tensor,
    first: int,
) -> Iterator[Drafted]:
    """Draft `depth` tokens from each anchor, each pass fed with what `tokens` have there.

    As long as the drafts are right this is decoding: verified rows before the anchor have the
    target's features, those behind it the drafter's hidden states.

    Args:
        tokens: [N, S] prompt and output; taps: [N, S, K*d] of them.
        anchors: [N, A] positions of the last committed token, at least 1.
        is_value: [S] bool; first: where the output begins.
    """
    config, length = drafter.config, tokens.shape[1]
    embeddings, features = target.model.embed_tokens(tokens), drafter.fuse(taps)
    # row j has the feature of j - 1, so there is no row 0
    positions = torch.arange(1, length).expand(len(tokens), -1)
    past = drafter.keys_values(embeddings[:, 1:], features[:, :-1], positions)
    feature = _rows(features, anchors - 1)
    units: list[Unit] = []
    following = next_drafted(is_value, first, config.scaffold_runs)
    for unit in unroll(anchors, following, config.depth):
        units.append(unit)
        embedded = _rows(embeddings, unit.positions.clamp_max(length - 1))
        shared = _rows(feature, unit.owner)
        mask = _visible(units, anchors, length)
        hidden, past = drafter(embedded, shared, unit.positions, mask, past)
        feature = _rows(hidden, unit.last)
        inside = unit.predicted < length
        yield Drafted(feature, unit.predicted.clamp_max(length - 1), inside)


@torch.no_grad()
def acceptance_length(
    drafter: Eagle3,
    target: Qwen3ForCausalLM,
    prompts: Tensor,
    outputs: Tensor,
    scaffold: Scaffold,
) -> float:
    """Tokens committed per verification of greedy chains, bonus and scaffold counted.

    The target's greedy outputs are known, so a draft is accepted as far as it agrees with them;
    up to its first error it was fed with what they have.

    Args:
        prompts: [N, Lp]; outputs: [N, L], the target's greedy ones.
    """
    tokens = torch.cat([prompts, outputs], 1)
    first, length = prompts.shape[1], tokens.shape[1]
    is_value, bias = _scaffold(scaffold, first)
    following = next_drafted(is_value, first, runs=True)
    taps = forward(target, tokens, taps=drafter.config.target_layer_ids).taps
    assert taps is not None
    anchors = torch.full((len(tokens), 1), first - 1)
    rounds = 0
    while len(active := torch.nonzero(anchors[:, 0] < length - 1)[:, 0]):
        own, at = tokens[active], anchors[active]
        end, stands = following[at], torch.ones_like(at, dtype=torch.bool)
        for drafted in drafts(drafter, target, own, taps[active], at, is_value, first):
            logits = drafter.logits(drafted.hidden)
            allowed = bias[(drafted.positions - first).clamp_min(0)][..., drafter.tokens]
            best = drafter.tokens[(logits + allowed).argmax(-1)]
            right = ~is_value[drafted.positions] | (best == own.gather(1, drafted.positions))
            stands &= drafted.inside & right
            end = torch.where(stands, following[drafted.positions], end)
        rounds += len(active)
        anchors[active] = end.clamp_max(length - 1)
    return outputs.numel() / rounds


def _scaffold(scaffold: Scaffold, first: int) -> tuple[Tensor, Tensor]:
    """[first + L] whether a position is a value; [L, V] bias of the allowed sets."""
    is_value = torch.cat([torch.zeros(first, dtype=torch.bool), torch.tensor(scaffold.is_value)])
    return is_value, torch.tensor(scaffold.bias_at(np.arange(len(scaffold))))


def _rows(x: Tensor, at: Tensor) -> Tensor:
    """Rows [N, M, d] of x [N, S, d] at [N, M]."""
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))


def _visible(units: list[Unit], anchors: Tensor, length: int) -> Tensor:
    """[N, M, S-1 + all rows so far] what the newest unit's rows see.

    Verified rows before the anchor, then the anchor's own rows up to the row itself.
    """
    new = units[-1]
    verified = torch.arange(1, length) < anchors.gather(1, new.owner)[..., None]
    owner, positions, real = (
        torch.cat([getattr(unit, name) for unit in units], 1)[:, None]
        for name in ("owner", "positions", "real")
    )
    own = real & (owner == new.owner[..., None]) & (positions <= new.positions[..., None])
    # padding sees itself, so that its softmax is not empty
    own[:, :, -new.owner.shape[1] :] |= torch.eye(new.owner.shape[1], dtype=torch.bool)
    return torch.cat([verified, own], 2)


def _losses(logits: Tensor, tokens: Tensor, law: Tensor, objective: str) -> Tensor:
    """[M] nats of M drafts.

    Args:
        logits: [M, Vd]; tokens: [M] in the drafter's vocabulary.
        law: [M, Vd] the target's logits at the drafter's tokens, renormalised over them.
    """
    parts, loss = objective.split("+"), torch.zeros(len(logits))
    draft = functional.log_softmax(logits.float(), -1)
    if "ce" in parts:
        loss = loss + functional.nll_loss(draft, tokens, reduction="none") / len(parts)
    if "kl" in parts:
        truth = functional.log_softmax(law, -1)
        loss = loss + (truth.exp() * (truth - draft)).sum(-1) / len(parts)
    return loss
