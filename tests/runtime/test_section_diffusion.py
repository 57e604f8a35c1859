"""Section diffusion against the definition, written down without a cache or a batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.decode import Decoded, Decoder
from runtime.draws import Draws
from runtime.errors import SlipstreamError
from runtime.graphs import Graphs
from runtime.scaffold import Scaffold
from runtime.settings import DecodeSettings, Sampling
from tests.runtime.filling import VOCAB, blocks_by_hand, filled_by_hand, filling_graphs, scaffold_in
from tests.runtime.tabular import tabular_graphs

PROMPT = [1, 3, 0, 2, 4]
PICTURES = (("10?2?1??", "3??1??*2?1"), ("?????", "11", "*??????"), ("1", "12?", "3?4"))
COLD, HOT = Sampling(), Sampling(2.5, top_k=4)


@pytest.fixture
def graphs(tmp_path: Path) -> Graphs:
    return filling_graphs(tmp_path)


def decode(graphs: Graphs, scaffold: Scaffold, settings: DecodeSettings) -> Decoded:
    decoder = Decoder(graphs, None)
    fork = scaffold.sections[-1].name
    found = decoder.decode(np.asarray(PROMPT), scaffold, settings, fork)
    decoder.cache.check_integrity()
    return found


@pytest.mark.parametrize("sections", PICTURES)
@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.9, 1.0])
def test_it_fills_what_the_definition_fills(
    graphs: Graphs, sections: tuple[str, ...], size: int, threshold: float
) -> None:
    scaffold = scaffold_in(*sections)
    settings = DecodeSettings("section-diffusion", block=size, threshold=threshold)
    by_hand = filled_by_hand(
        graphs, PROMPT, scaffold, size, threshold, [COLD] * len(sections), Draws(0, 0)
    )
    found = decode(graphs, scaffold, settings)
    assert found.tokens.tolist() == [by_hand[0]]
    blocks = set(blocks_by_hand(scaffold, size)) - {-1}
    # a block is cached when the next one begins
    assert found.stats.target_passes == by_hand[1] + len(blocks) - 1
    assert found.stats.draft_passes == 0
    # with rollouts, all at temperature 0: the fork changes nothing
    many = decode(graphs, scaffold, replace(settings, rollouts=3))
    assert many.tokens.tolist() == [by_hand[0]] * 3


@pytest.mark.parametrize("sections", PICTURES)
@pytest.mark.parametrize("threshold", [0.4, 0.9])
def test_a_rollout_depends_on_its_seed_frame_and_number_alone(
    graphs: Graphs, sections: tuple[str, ...], threshold: float
) -> None:
    scaffold = scaffold_in(*sections)
    heats = [COLD] * (len(sections) - 1) + [HOT]
    different = set()
    for seed, frame in ((0, 0), (0, 7), (3, 7)):
        settings = DecodeSettings(
            "section-diffusion",
            block=3,
            threshold=threshold,
            rollouts=5,
            sampling=HOT,
            seed=seed,
            frame=frame,
        )
        by_hand = [
            filled_by_hand(graphs, PROMPT, scaffold, 3, threshold, heats, Draws(seed, frame), i)[0]
            for i in range(5)
        ]
        for rollouts in (5, 2, 1):
            found = decode(graphs, scaffold, replace(settings, rollouts=rollouts))
            assert found.tokens.tolist() == by_hand[:rollouts]
        different |= {tuple(output) for output in by_hand}
    assert len(different) > 1


def test_every_pass_is_counted(graphs: Graphs) -> None:
    scaffold = scaffold_in(*PICTURES[0])
    values = int(scaffold.is_value.sum())
    for rollouts in (1, 3):
        settings = DecodeSettings("section-diffusion", block=3, threshold=1.0, rollouts=rollouts)
        slow = decode(graphs, scaffold, settings).stats
        fast = decode(graphs, scaffold, replace(settings, threshold=0.0)).stats
        # each block is cached once, but the last; at the fork together with what precedes it
        assert slow.target_passes == values + 3 == 13
        assert fast.target_passes == 4 + 3  # blocks of 3 + 1 and 3 + 3 values
        for stats in (slow, fast):
            assert stats.rounds == sum(row[0] for row in stats.by_section.values())
            assert stats.committed == sum(row[1] for row in stats.by_section.values())
            # fixed tokens too, but those that need no pass: before the first value, at the fork
            assert stats.committed == (6 + 10 if rollouts == 1 else 6 + 3 * 9)
            assert (stats.proposed, stats.accepted) == (0, 0)
            assert 0.0 < stats.first_token <= stats.total
        if rollouts == 1:
            assert slow.rounds == slow.target_passes
            assert (slow.acceptance_length, fast.acceptance_length) == (16 / 13, 16 / 7)
    # another temperature behind the fork needs no branches
    alone = decode(graphs, scaffold, DecodeSettings("section-diffusion", block=3, sampling=HOT))
    assert alone.stats.committed == 6 + 9


def test_allowed_sets_are_kept(graphs: Graphs) -> None:
    scaffold = scaffold_in("*1*1**", "**2***")
    settings = DecodeSettings("section-diffusion", rollouts=8, sampling=Sampling(5.0))
    tokens = decode(graphs, scaffold, settings).tokens
    assert np.isin(tokens[:, scaffold.is_value], [1, 2]).all()
    fixed = scaffold.tokens[~scaffold.is_value]
    assert (tokens[:, ~scaffold.is_value] == fixed).all()
    assert len({tuple(output) for output in tokens.tolist()}) > 3


def test_it_is_not_what_the_target_says(graphs: Graphs) -> None:
    """Or else the reports need not warn of it."""
    scaffold = scaffold_in(*PICTURES[1])
    filled = decode(graphs, scaffold, DecodeSettings("section-diffusion", threshold=0.0))
    assert not np.array_equal(filled.tokens, decode(graphs, scaffold, DecodeSettings("ar")).tokens)


def test_what_it_needs_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="a target that fills masks itself") as caught:
        decode(
            tabular_graphs(tmp_path, VOCAB),
            scaffold_in("?", "?"),
            DecodeSettings("section-diffusion"),
        )
    assert caught.value.found == "a bundle with draft dflash"
    for wrong in ({"accept": "block"}, {"threshold": 1.1}, {"threshold": float("nan")}):
        with pytest.raises(SlipstreamError, match="out of range"):
            DecodeSettings("section-diffusion", **wrong)  # type: ignore[arg-type]
