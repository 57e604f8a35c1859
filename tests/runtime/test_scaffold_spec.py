"""Fast-dDrive's scaffold speculation: whatever drafts and however wide, the output is `ar`'s."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import runtime.frame
from runtime.accept import Accepted, by_choice
from runtime.bundle import Bundle, Manifest
from runtime.costs import measure
from runtime.decode import Decoder
from runtime.errors import SlipstreamError
from runtime.graphs import Graphs
from runtime.propose import Block
from runtime.scaffold import Scaffold
from runtime.settings import DecodeSettings, Sampling
from tests.runtime.filling import VOCAB, blocks_by_hand, filling_graphs, scaffold_in
from tests.runtime.stepwise import step_graphs
from tests.runtime.tabular import tabular_graphs

PROMPT = np.asarray([1, 3, 0, 2, 4])
SIZES = (1, 2, 3, 5, 64)
# sections that end in the middle of a block, that hold no value, and that begin with one
PICTURES = (("10?2?1??", "3??1??*2?1"), ("?????", "11", "???????"), ("1", "12?", "3?4"))
MAKE: dict[str, Callable[[Path], Graphs]] = {
    "self": filling_graphs,
    "self-markov": lambda folder: filling_graphs(folder, markov="plain"),
    "self-gated": lambda folder: filling_graphs(folder, markov="gated"),
    "dflash": lambda folder: tabular_graphs(folder, VOCAB),
    "eagle3": lambda folder: step_graphs(folder, VOCAB),
}


@pytest.fixture(params=MAKE)
def graphs(request: pytest.FixtureRequest, tmp_path: Path) -> Graphs:
    return MAKE[request.param](tmp_path)


def outputs(decoder: Decoder, scaffold: Scaffold, how: DecodeSettings) -> list[list[int]]:
    fork = scaffold.sections[-1].name
    tokens = decoder.decode(PROMPT, scaffold, how, fork).tokens
    decoder.cache.check_integrity()
    return tokens.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("sections", PICTURES)
def test_greedy_output_is_that_of_plain_decoding(graphs: Graphs, sections: tuple[str, ...]) -> None:
    decoder, scaffold = Decoder(graphs, None), scaffold_in(*sections)
    for rollouts in (1, 3):
        plain = outputs(decoder, scaffold, DecodeSettings("ar", rollouts=rollouts))
        assert outputs(decoder, scaffold, DecodeSettings("ar-scaffold", rollouts=rollouts)) == plain
        for size in (None, *SIZES):
            how = DecodeSettings("scaffold-spec", block=size, rollouts=rollouts)
            assert outputs(decoder, scaffold, how) == plain


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text("?*10", min_size=1, max_size=10), min_size=1, max_size=4),
    st.integers(1, 64),
    st.sampled_from(["self", "self-gated", "dflash"]),
)
def test_any_schema(tmp_path: Path, sections: list[str], size: int, make: str) -> None:
    scaffold = scaffold_in(*sections, "?1")  # rollouts part at a value
    decoder = Decoder(MAKE[make](tmp_path), None)
    sampled = DecodeSettings("ar", rollouts=2, sampling=Sampling(1.0))
    for plain in (DecodeSettings("ar"), sampled):
        how = replace(plain, method="scaffold-spec", block=size)
        assert outputs(decoder, scaffold, how) == outputs(decoder, scaffold, plain)


def test_rules_that_follow_the_target_draw_what_it_draws(graphs: Graphs) -> None:
    decoder, scaffold = Decoder(graphs, None), scaffold_in(*PICTURES[0])
    plain = DecodeSettings("ar", rollouts=6, sampling=Sampling(2.5), seed=5)
    wanted = outputs(decoder, scaffold, plain)
    assert len({tuple(output) for output in wanted}) > 3
    assert len({tuple(output[:8]) for output in wanted}) == 1  # one greedy prefix
    for rule in (None, "match", "coupled"):
        how = replace(plain, method="scaffold-spec", accept=rule, block=3)  # type: ignore[arg-type]
        assert outputs(decoder, scaffold, how) == wanted
        alone = replace(how, rollouts=1)
        assert outputs(decoder, scaffold, alone) == wanted[:1]


@pytest.mark.parametrize("value_rows", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_masks_are_what_is_left_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, value_rows: bool
) -> None:
    """The target drafts all of it behind what it verifies, and nothing of another block."""
    scaffold, rounds = scaffold_in(*PICTURES[0]), list[Block]()
    blocks = blocks_by_hand(scaffold, size)

    def watched(block: Block, choices: np.ndarray) -> Accepted:
        rounds.append(block)
        return by_choice(block, choices)

    monkeypatch.setattr(runtime.frame, "by_choice", watched)
    how = DecodeSettings("scaffold-spec", block=size, rollouts=3, sampling=Sampling(1.0))
    graphs = filling_graphs(tmp_path, value_rows=value_rows)
    outputs(Decoder(graphs, None), scaffold, how)
    drafted = 0
    for block in rounds:
        assert block.ahead is not None
        places = block.positions - len(PROMPT)
        for n in range(len(places)):
            rows = places[n][block.ahead[n]].tolist()
            last = places[n][block.real[n]].max()
            values = [p for p in range(last + 2, len(scaffold)) if scaffold.is_value[p]]
            values = [p for p in values if blocks[p] == blocks[values[0]]]
            if value_rows:
                assert rows == [p - 1 for p in values]
            else:
                assert rows == (list(range(last + 1, values[-1])) if values else [])
            assert not (block.ahead[n] & (block.real[n] | block.drafted[n])).any()
            drafted += len(rows)
    assert drafted > 0


def test_the_gate_changes_only_the_time(graphs: Graphs) -> None:
    scaffold = scaffold_in(*PICTURES[0])
    decoder = Decoder(graphs, measure(graphs))
    plain = outputs(decoder, scaffold, DecodeSettings("ar", rollouts=3))
    for _ in range(10):  # the gate tries its ways
        assert outputs(decoder, scaffold, DecodeSettings("scaffold-spec", rollouts=3)) == plain
    assert decoder.gate(DecodeSettings("scaffold-spec")) is not None


def test_a_round_commits_a_whole_block_where_the_target_agrees_with_itself(tmp_path: Path) -> None:
    """A pass that begins, one for each block, which drafts the next, and nothing else."""
    graphs = filling_graphs(tmp_path)
    scaffold = scaffold_in("1????", "2*111*2")
    everything = replace(scaffold, allowed_sets=np.eye(VOCAB, dtype=np.bool_)[[3, 1]])
    stats = (
        Decoder(graphs, None)
        .decode(PROMPT, everything, DecodeSettings("scaffold-spec", block=4), "s0")
        .stats
    )
    assert stats.acceptance_rate == 1.0
    assert (stats.draft_passes, stats.target_passes, stats.rounds) == (0, 3, 3)
    assert stats.committed == len(scaffold) - 1  # all but the token in front of the values


def test_a_bundle_that_can_not_draft_is_told_what_is_missing(tmp_path: Path) -> None:
    base = tabular_graphs(tmp_path, VOCAB).manifest
    files = {name: file for name, file in base.graphs.items() if name != "draft"}
    bare = Manifest(**{**dict(base), "draft": None, "graphs": files})
    engines = tabular_graphs(tmp_path, VOCAB)
    graphs = Graphs(Bundle(tmp_path, bare), lambda path: engines.engine(path.name))  # type: ignore[arg-type]
    with pytest.raises(SlipstreamError, match="no drafter, and its target does not draft"):
        Decoder(graphs, None).decode(
            PROMPT, scaffold_in("?", "?"), DecodeSettings("scaffold-spec"), "s1"
        )


def test_a_block_holds_a_value() -> None:
    assert DecodeSettings("scaffold-spec", block=1).block == 1
    with pytest.raises(SlipstreamError, match="block is out of range"):
        DecodeSettings("scaffold-spec", block=0)
