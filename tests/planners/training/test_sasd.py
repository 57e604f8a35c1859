"""SASD against a reference written out here: blocks, masks, noise and loss (2605.23163)."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.qwen3 import forward
from planners.training.blocks import Packing
from planners.training.drafter_objective import DrafterObjective
from planners.training.schedule import Schedule
from planners.training.self_drafting import SelfDraftSettings, SelfLessons, two_streams
from runtime.scaffold import Scaffold, Span

FIRST, MASK, VALUES = 7, 2, 3
FIXED = "1?0??1?" + "0000" + "?1??????0"  # a head of 4 values, a section of none, a tail of 7
SPANS = (("head", 0, 7), ("pause", 7, 11), ("tail", 11, 20))
# written out by hand: values three at a time; a fixed token goes with the nearest value, at equal
# distance with the following one
NUMBERS = [0, 0, 0, 0, 0, 1, 1] + [-1] * 4 + [2, 2, 2, 2, 3, 3, 3, 4, 4]
WEIGHTS = {"head": 1.5, "tail": 3.0}
SHAPES = {"head": (1.0, 2.0), "tail": (2.0, 1.0)}


@pytest.fixture
def scaffold() -> Scaffold:
    cells = [-1 if cell == "?" else 40 + int(cell) for cell in FIXED]
    return Scaffold(
        tokens=np.asarray(cells, np.int64),
        allowed_id=np.zeros(len(cells), np.int64),
        allowed_sets=np.ones((1, 512), np.bool_),
        sections=tuple(Span(*span) for span in SPANS),
    )


def words(scaffold: Scaffold, count: int = 3) -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    fixed = torch.from_numpy(scaffold.tokens).repeat(count, 1)
    drawn = torch.randint(3, 500, fixed.shape)
    return torch.randint(3, 500, (count, FIRST)), torch.where(fixed < 0, drawn, fixed)


def lessons_of(target: Qwen3ForCausalLM, scaffold: Scaffold, **changes: object) -> SelfLessons:
    settings = SelfDraftSettings(
        Schedule(steps=1, peak=5e-3),
        batch=3,
        objective=DrafterObjective(ce=1, kl=0, gamma=None),
        hidden=0.0,
        keep=0.0,
        causal=1.0,
        noise=SHAPES,
        weights=WEIGHTS,
        blocks="schema",
        normalise="sasd",
    )
    settings = replace(settings, **changes)  # type: ignore[arg-type]
    before = copy.deepcopy(target)
    return SelfLessons(target, before, *words(scaffold), scaffold, VALUES, MASK, settings)


def reference_blocks() -> Iterator[list[int]]:
    """Places of the output, block by block."""
    for number in range(5):
        yield [place for place, own in enumerate(NUMBERS) if own == number]


def test_blocks_are_the_schemas(target: Qwen3ForCausalLM, scaffold: Scaffold) -> None:
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1)
    blocks = lessons.noisy_blocks(tokens, np.random.default_rng(0))
    rows = blocks.positions.view(3, 10, lessons.block)
    inside = blocks.inside.view(3, 10, lessons.block)
    for n in range(3):
        for number, places in enumerate(reference_blocks()):
            for twin in (number, number + 5):
                found = (rows[n, twin][inside[n, twin]] - FIRST).tolist()
                assert found == [places[0] - 1, *places]


def test_twins_hide_every_value_once_and_no_fixed_token(
    target: Qwen3ForCausalLM, scaffold: Scaffold
) -> None:
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1)
    values = [place for place, cell in enumerate(FIXED) if cell == "?"]
    for seed in range(10):
        blocks = lessons.noisy_blocks(tokens, np.random.default_rng(seed))
        for n in range(3):
            hidden = (blocks.positions[n][blocks.drafted[n]] - FIRST).tolist()
            assert sorted(hidden) == values
            assert (blocks.tokens[n][blocks.drafted[n]] == MASK).all()
            shown = blocks.inside[n] & ~blocks.drafted[n]
            assert torch.equal(blocks.tokens[n][shown], tokens[n, blocks.positions[n][shown]])


def test_a_restart_begins_inside_and_hides_the_rest(
    target: Qwen3ForCausalLM, scaffold: Scaffold
) -> None:
    lessons = lessons_of(target, scaffold, hidden=0.5, restarts=1.0)
    tokens = torch.cat(words(scaffold), 1)
    begun = set()
    for seed in range(20):
        blocks = lessons.noisy_blocks(tokens, np.random.default_rng(seed))
        grids = (x.view(3, 10, lessons.block) for x in (blocks.positions, blocks.inside))
        rows, inside = (x.numpy() for x in grids)
        hides = blocks.drafted.view(rows.shape).numpy()
        for number, places in enumerate(reference_blocks()):
            whole = (rows[0, number] - FIRST)[inside[0, number]]
            again = (rows[0, number + 5] - FIRST)[inside[0, number + 5]]
            assert np.array_equal(whole, [places[0] - 1, *places])
            assert again[-1] == places[-1]
            assert (inside == inside[0]).all()  # rows of no block are left out for all at once
            if len(again) < len(whole):  # a pair that hides everything
                values = [place for place in again[1:] if FIXED[place] == "?"]
                assert np.array_equal((rows[0] - FIRST)[number + 5][hides[0, number + 5]], values)
                begun.add((number, int(again[0])))
    assert len({number for number, _ in begun}) >= 4
    assert len(begun) > 10
    loss, _ = lessons.loss_of_step(0)
    assert torch.isfinite(loss)


def test_a_section_hides_as_its_beta_distribution_says(
    target: Qwen3ForCausalLM, scaffold: Scaffold
) -> None:
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1).repeat(200, 1)
    blocks = lessons.noisy_blocks(tokens, np.random.default_rng(0))
    drafted = blocks.drafted.view(600, 10, -1)
    counts = [sum(FIXED[place] == "?" for place in places) for places in reference_blocks()]
    shares = [float(drafted[:, b].sum(-1).float().mean()) / counts[b] for b in range(5)]
    assert shares[:2] == pytest.approx([1 / 3, 1 / 3], abs=0.05)  # the mean of Beta(1, 2)
    assert shares[2:] == pytest.approx([2 / 3] * 3, abs=0.05)  # of Beta(2, 1)
    # t is one number for a block: its values go together more than chance has it
    third = drafted[:, 2].sum(-1).float()
    assert float(third.var()) > 1.3 * 3 * (2 / 3) * (1 / 3)


@torch.no_grad()
def test_rows_see_earlier_clean_rows_and_their_own_block(
    target: Qwen3ForCausalLM, scaffold: Scaffold
) -> None:
    """Each block in a pass of its own, behind nothing but the clean tokens before it."""
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1)
    blocks = lessons.noisy_blocks(tokens, np.random.default_rng(1))
    clean, noisy = two_streams(target, tokens, blocks, Packing.of(blocks))
    torch.testing.assert_close(clean, forward(target, tokens).hidden, rtol=1e-4, atol=2e-5)
    for n in range(3):
        for a in range(10):
            rows = slice(a * lessons.block, (a + 1) * lessons.block)
            own = blocks.tokens[n, rows][blocks.inside[n, rows]]
            anchor = FIRST + next(p for i, p in enumerate(reference_blocks()) if i == a % 5)[0] - 1
            mask = torch.ones(anchor + len(own), anchor + len(own), dtype=torch.bool).tril()
            mask[anchor:, anchor:] = True
            alone = torch.cat([tokens[n, :anchor], own])[None]
            wanted = forward(target, alone, mask=mask[None]).hidden[0, anchor:]
            found = noisy[n, rows][: len(own)]
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
            assert not noisy[n, rows][len(own) :].any()


@torch.no_grad()
def test_packed_rows_are_those_of_the_padded_pass(
    target: Qwen3ForCausalLM, scaffold: Scaffold
) -> None:
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1)
    blocks = lessons.noisy_blocks(tokens, np.random.default_rng(2))
    packed = two_streams(target, tokens, blocks, Packing.of(blocks))
    padded = two_streams(target, tokens, blocks)
    torch.testing.assert_close(packed[0], padded[0], rtol=1e-4, atol=2e-5)
    inside = blocks.inside
    torch.testing.assert_close(packed[1][inside], padded[1][inside], rtol=1e-4, atol=2e-5)


def test_the_loss_is_the_published_sum(target: Qwen3ForCausalLM, scaffold: Scaffold) -> None:
    """sum w CE(noisy) / Z + sum CE(clean) / Z, Z = 2 x response tokens, from passes of their own.

    Which values are hidden is read off; everything else is computed here, block by block.
    """
    lessons = lessons_of(target, scaffold)
    found, figures = lessons.loss_of_step(0)
    # the same batch and noise: loss_of_step draws both from the seed and the step
    seen: list[Tensor] = []
    lessons.draft_loss = lambda tokens, blocks, *_: (seen.append((tokens, blocks)), 1 / 0)  # type: ignore
    with pytest.raises(ZeroDivisionError):
        lessons.loss_of_step(0)
    tokens, blocks = seen[0]
    length = len(FIXED)
    z, total = 2 * 3 * length, 0.0
    starts = [places[0] for places in reference_blocks()]
    with torch.no_grad():
        for n in range(3):
            for a in range(10):
                rows = slice(a * lessons.block, (a + 1) * lessons.block)
                own = blocks.tokens[n, rows][blocks.inside[n, rows]]
                anchor = FIRST + starts[a % 5] - 1
                size = anchor + len(own)
                mask = torch.ones(size, size, dtype=torch.bool).tril()
                mask[anchor:, anchor:] = True
                alone = torch.cat([tokens[n, :anchor], own])[None]
                q = target.lm_head(forward(target, alone, mask=mask[None]).hidden[0]).softmax(-1)
                for place in range(anchor + 1, size):
                    if alone[0, place] == MASK:
                        weight = 1.5 if place - FIRST < 7 else 3.0
                        total -= weight * math.log(float(q[place - 1, tokens[n, place]]))
            q = target.lm_head(forward(target, tokens[n : n + 1]).hidden[0]).softmax(-1)
            for place in range(FIRST, FIRST + length):
                total -= math.log(float(q[place - 1, tokens[n, place]]))
    assert float(found.detach()) == pytest.approx(total / z, rel=1e-4)
    assert figures["loss"] == pytest.approx(total / z, rel=1e-4)


def test_the_means_of_before_are_untouched(target: Qwen3ForCausalLM, scaffold: Scaffold) -> None:
    """`normalise: mean` over the schema's blocks: the same sums, over their own weights."""
    lessons = lessons_of(target, scaffold)
    tokens = torch.cat(words(scaffold), 1)
    blocks = lessons.noisy_blocks(tokens, np.random.default_rng(4))
    streams = two_streams(target, tokens, blocks, Packing.of(blocks))
    published, _ = lessons.draft_loss(tokens, blocks, *streams)
    other = lessons_of(target, scaffold, normalise="mean")
    mean, _ = other.draft_loss(tokens, blocks, *streams)
    weight = 3 * (4 * 1.5 + 7 * 3.0)
    assert float(published.detach()) == pytest.approx(
        float(mean.detach()) * weight / (2 * 3 * 20), rel=1e-5
    )
