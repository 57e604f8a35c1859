"""Drafts behind the rows that a pass verifies: what they see, what is left of them, what comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from runtime.accept import Accepted
from runtime.ahead import Outlook, Split
from runtime.costs import measure
from runtime.decode import Decoder
from runtime.draws import Draws
from runtime.errors import CacheFullError
from runtime.graphs import Graphs
from runtime.judge import Judge
from runtime.proof.controls import blunted
from runtime.scaffold import Padding
from runtime.schema import block_ends
from runtime.script import Rollouts, Script
from runtime.self_drafter import SelfDrafter
from runtime.settings import FOLLOWING, RULES, DecodeSettings, Sampling
from runtime.telemetry import FrameStats
from runtime.tree import causal, looking_ahead
from runtime.trial import ARMS
from runtime.window import (
    FRESH,
    LEFT,
    MISLED,
    NOWHERE,
    Drafts,
    decided,
)
from tests.runtime.drafted import (
    PROMPT,
    by_hand,
    gated_window,
    rollouts_of,
    window_at,
)
from tests.runtime.filling import VOCAB, FillingEngine, filling_graphs, scaffold_in


def judge_of(graphs: Graphs, script: Script) -> Judge:
    return Judge(graphs, script, Draws(0, 0), FrameStats())


def test_masks_see_what_is_verified_and_each_other_and_are_seen_by_nothing_else() -> None:
    ahead = np.zeros((2, 5), np.bool_)
    ahead[0, 2:5] = True  # an anchor, a draft, three masks
    ahead[1, 1:3] = True  # an anchor, two masks, padding
    seen = looking_ahead(ahead) == 0.0
    assert seen[0].astype(int).tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1],
    ]
    assert seen[1, :3].astype(int).tolist() == [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0]]
    assert (looking_ahead(np.zeros((1, 4), np.bool_)) == causal(4)).all()


@pytest.mark.parametrize("value_rows", [False, True])
def test_a_draft_is_read_from_the_row_before_over_all_rows_verified(
    tmp_path: Path, value_rows: bool
) -> None:
    """By the tabular model's definition: a row's state is the sum of the rows that it sees."""
    graphs = filling_graphs(tmp_path, value_rows=value_rows)
    engine, head = graphs.engine("target"), graphs.engine("head")
    assert isinstance(engine, FillingEngine)
    assert isinstance(head, FillingEngine)
    script = Script.of(PROMPT, scaffold_in("?2?", "4?1???"))
    outlook = Outlook(script, graphs.manifest.draft, block_ends(script.scaffold, 4))  # type: ignore[arg-type]
    limits = graphs.manifest.limits
    cache = graphs.cache(graphs.manifest.target, limits.trunk, limits.branch)
    graphs.target(graphs.embed(PROMPT[None, :4]), np.arange(4)[None], causal(4), cache)
    cache.commit(np.ones((1, 4), np.bool_))
    rollouts = rollouts_of(script, 4)
    drafter = SelfDrafter(graphs, cache)
    drafter.windows = [window_at(5, 7)]
    # places 5..13 are ?2?4?1???: two drafts and a fixed token stand, and 8 is fixed, so 9 is next
    block = drafter.ahead(
        rollouts, outlook, Split(np.asarray([3]), np.asarray([9])), len(script), 64
    )
    assert (block.tokens[0, :4] == [4, 1, 2, 1]).all()
    assert block.drafted[0].nonzero()[0].tolist() == [1, 3]
    masked = [9, 10, 11, 12] if not value_rows else [8, 10, 11, 12]
    if not value_rows:
        masked = [8, *masked]
    values = [9, 11, 12, 13]
    assert block.positions[0, 4:].tolist() == [p - 1 for p in values] if value_rows else masked
    block.tokens[0, [1, 3]] = [3, 5]
    bias = looking_ahead(block.ahead)  # type: ignore[arg-type]
    hidden, _ = graphs.target(graphs.embed(block.tokens), block.positions, bias, cache)
    accepted = Accepted(block.real, np.asarray([4]))
    rollouts.tokens[0, 5:9], rollouts.start = [3, 2, 5, 4], np.asarray([8])
    drafter.look(judge_of(graphs, script).read(block, hidden), block, accepted, rollouts, script)
    (window,) = drafter.windows
    assert window.places.tolist() == values
    assert (window.rests == FRESH).all()
    mask = graphs.manifest.draft.mask_token  # type: ignore[union-attr]
    shown = [4, mask, 1, mask, mask] if not value_rows else [4, 1, mask, mask]
    at = [8, 9, 10, 11, 12] if not value_rows else [8, 10, 11, 12]
    rows = [*zip([*PROMPT, 3, 2, 5], range(8), strict=True), *zip(shown, at, strict=True)]
    seen = np.asarray([engine.code[t] * engine.turn[i] for t, i in rows], np.float32).sum(axis=0)
    state = np.stack([seen + engine.turn[place - 1] for place in values])
    wanted = head.run({"hidden": state[None]}, {})["top_logits"][0]
    np.testing.assert_allclose(window.said.logits, wanted, atol=1e-5)
    assert cache.trunk.used == 4, "masks are never committed"


def test_drafts_are_chosen_again_for_another_sampling_and_at_the_fork(tmp_path: Path) -> None:
    graphs = filling_graphs(tmp_path, markov="gated")
    assert graphs.markov is not None
    script, limits = Script.of(PROMPT, scaffold_in("??????")), graphs.manifest.limits
    cache = graphs.cache(graphs.manifest.target, limits.trunk, limits.branch)
    drafter = SelfDrafter(graphs, cache)
    stem = gated_window(graphs.markov, 5, 6, 7, 8)
    drafter.windows = [stem]

    def drafts(rollouts: Rollouts, sampling: Sampling, draws: Draws | None) -> list[Drafts | None]:
        drafter.offer(rollouts, script, len(script), sampling, draws)
        return [window.drafts for window in drafter.windows]

    def wanted(rollouts: Rollouts, sampling: Sampling, draws: Draws | None) -> list[list[int]]:
        windows = decided([stem] * len(rollouts), rollouts, sampling, draws)
        return [window.drafts.tokens.tolist() for window in windows if window.drafts]

    greedy, hot, draws = Sampling(), Sampling(2.0), Draws(1, 0)
    one, three = rollouts_of(script, 4), rollouts_of(script, 4, 4, 4)
    (first,) = drafts(one, greedy, None)
    assert drafts(one, greedy, None)[0] is first, "they are chosen once"
    (other,) = drafts(one, hot, draws)
    assert other is not None
    assert [other.tokens.tolist()] == wanted(one, hot, draws)
    drafter.fork(3)
    forked = drafts(three, hot, draws)
    found = [each.tokens.tolist() for each in forked if each]
    assert found == wanted(three, hot, draws)
    assert len({tuple(tokens) for tokens in found}) > 1, "every rollout has a race of its own"
    again = drafts(three, hot, draws)
    assert all(new is old for new, old in zip(again, forked, strict=True))
    drafter.fork(2)  # another batch begins with the same windows
    two = replace(rollouts_of(script, 4, 4), ids=np.asarray([1, 2]))
    assert [each.tokens.tolist() for each in drafts(two, hot, draws) if each] == found[1:]


def test_what_a_refused_chains_pass_said_goes_on_behind_what_is_left(tmp_path: Path) -> None:
    """The chain's last row says the place behind it, the masks what follows; old drafts end."""
    graphs = filling_graphs(tmp_path, markov="gated")
    script = Script.of(PROMPT, scaffold_in("?????2?????"))
    outlook = Outlook(script, graphs.manifest.draft, block_ends(script.scaffold, 64))  # type: ignore[arg-type]
    limits = graphs.manifest.limits
    cache = graphs.cache(graphs.manifest.target, limits.trunk, limits.branch)
    graphs.target(graphs.embed(PROMPT[None, :4]), np.arange(4)[None], causal(4), cache)
    cache.commit(np.ones((1, 4), np.bool_))
    for chain, last in ((3, True), (5, False)):  # what follows 7 is a value; what follows 9 is not
        drafter = SelfDrafter(graphs, cache)
        assert graphs.markov is not None
        old = gated_window(graphs.markov, 5, 6, 7, 8, 9, 11)
        drafter.windows = [old]
        rollouts = rollouts_of(script, 4)
        drafter.offer(rollouts, script, len(script), Sampling(), None)
        split = Split(np.asarray([chain]), np.asarray([3]))
        block = drafter.ahead(rollouts, outlook, split, len(script), 64)
        assert block.ahead is not None
        bias = looking_ahead(block.ahead)
        hidden, _ = graphs.target(graphs.embed(block.tokens), block.positions, bias, cache)
        stands = block.real & (np.arange(block.width) < 2)  # 5 does, 6 does not
        refused = int(block.tokens[0, 2])
        rollouts.tokens[0, 5:7] = block.tokens[0, 1], (refused + 1) % VOCAB
        rollouts.start = np.asarray([6])
        reading = judge_of(graphs, script).read(block, hidden)
        drafter.look(reading, block, Accepted(stands, np.asarray([0])), rollouts, script)
        (window,) = drafter.windows
        places = [7, 8, 9, 11, 12] if last else [7, 8, 9, 11, 12, 13]
        since = 8 if last else 11
        assert window.places.tolist() == places
        assert window.rests.tolist() == [MISLED if p >= since else LEFT for p in places]
        assert window.drafts is None
        # each slot is read from the row before its own
        row = [np.flatnonzero(block.positions[0] == p - 1)[-1] for p in places if p >= since]
        if last:
            row[0] = chain
        at = np.zeros(len(row), np.int64), np.asarray(row)
        left = places.index(since)
        np.testing.assert_allclose(window.said.logits[left:], graphs.head_at(hidden, at))
        gates = graphs.markov.gates(graphs.rows_at(hidden, at)[0])
        assert window.said.gates is not None
        assert old.said.gates is not None
        np.testing.assert_allclose(window.said.gates[left:], gates)
        kept = slice(2, 2 + left)
        assert (window.said.logits[:left] == old.said.logits[kept]).all()
        assert (window.said.gates[:left] == old.said.gates[kept]).all()
        offer = drafter.offer(rollouts, script, len(script), Sampling(), None)
        (window,) = drafter.windows
        assert window.drafts is not None
        assert window.drafts.tokens.tolist() == by_hand(window, rollouts, 0)[0]
        wanted = [*window.rests[:3], FRESH, *window.rests[3:]]
        assert offer.rests[0, : offer.reach[0]].tolist() == wanted[: offer.reach[0]]
        assert offer.reach[0] == len(wanted)


def test_an_outlook_ends_with_the_block(tmp_path: Path) -> None:
    draft = filling_graphs(tmp_path).manifest.draft
    assert draft is not None
    script = Script.of(PROMPT, scaffold_in("??1??", "2?"))
    outlook = Outlook(script, draft, block_ends(script.scaffold, 2))
    assert outlook.places(4, 64).tolist() == [6]  # 5 is the target's own word
    assert outlook.places(5, 64).tolist() == [8, 9]
    assert outlook.places(5, 1).tolist() == [8]
    assert outlook.places(8, 64).tolist() == [11]
    for last in (9, 10, 11, 12):
        wanted = [11] if last == 9 else []
        assert outlook.places(last, 64).tolist() == wanted
    assert outlook.rows(NOWHERE, 3).tolist() == []
    assert outlook.shown(np.asarray([7, 8])).tolist() == [1, draft.mask_token]


@pytest.mark.parametrize("markov", [None, "gated"])
def test_padding_is_not_drafted_twice(tmp_path: Path, markov: Literal["gated"] | None) -> None:
    """Where NULL was said, the rest of its slot is offered without a mask, and verified."""
    graphs = filling_graphs(tmp_path, markov=markov)
    bare = scaffold_in("1??????", "2??")
    ends = np.full(len(bare), -1)
    ends[1:7] = 6
    plain = DecodeSettings("ar")
    seen = set()
    for token in range(VOCAB):
        scaffold = replace(bare, padding=Padding(token, ends))
        decoder = Decoder(graphs, None)
        wanted = decoder.decode(PROMPT, scaffold, plain, "s1").tokens
        how = replace(plain, method="scaffold-spec", block=2)
        found = decoder.decode(PROMPT, scaffold, how, "s1")
        assert (found.tokens == wanted).all()
        if token not in wanted[0, 1:6]:
            continue
        seen.add(found.stats.proposed)
        hot = replace(how, rollouts=3, sampling=Sampling(2.0))
        for rule in RULES["scaffold-spec"]:  # some rollouts pad, and others do not
            some = decoder.decode(PROMPT, scaffold, replace(hot, accept=rule), "s0").tokens
            if rule in FOLLOWING:
                plain_hot = replace(hot, method="ar")
                assert (some == decoder.decode(PROMPT, scaffold, plain_hot, "s0").tokens).all()
    assert seen, "the target says a token that pads"
    script = Script.of(PROMPT, replace(bare, padding=Padding(3, ends)))
    limits = graphs.manifest.limits
    drafter = SelfDrafter(graphs, graphs.cache(graphs.manifest.target, limits.trunk, limits.branch))
    drafter.windows = [window_at(7), window_at(7)]
    rollouts = rollouts_of(script, 8, 8)
    rollouts.tokens[0, 8], rollouts.tokens[1, 8] = 3, 2
    drafter._pad(rollouts, script, Padding(3, ends))
    assert [each.places.tolist() for each in drafter.windows] == [[9, 10, 11], [7]]
    padded = drafter.windows[0].drafts
    assert padded is not None
    assert (padded.tokens == 3).all()


def test_a_full_trunk_is_drafted_for_as_far_as_it_goes(tmp_path: Path) -> None:
    """Masks stand behind what a stretch may commit, but never behind the cache's end."""
    graphs = filling_graphs(tmp_path)
    manifest = graphs.manifest
    scaffold = scaffold_in("1??????", "2??*??")
    for trunk in (12, 13, 16):
        tight = manifest.limits.model_copy(update={"trunk": trunk})
        graphs.manifest = manifest.model_copy(update={"limits": tight})
        decoder = Decoder(graphs, None)
        how = DecodeSettings("ar", rollouts=3, sampling=Sampling(1.0))
        wanted = decoder.decode(PROMPT, scaffold, how, "s1").tokens
        for rule in RULES["scaffold-spec"]:
            how = replace(how, method="scaffold-spec", accept=rule)
            found = decoder.decode(PROMPT, scaffold, how, "s1").tokens
            assert (found == wanted).all() or rule in ("token", "block")
            decoder.cache.check_integrity()


def test_blunted_drafts_are_those_of_masks_too(tmp_path: Path) -> None:
    graphs = filling_graphs(tmp_path)
    scaffold = scaffold_in("1?????", "2????????")

    def accepted() -> float:
        decoder, frames = Decoder(graphs, None), range(12)
        how = DecodeSettings("scaffold-spec", "token", rollouts=4, sampling=Sampling(1.0), block=8)
        stats = [
            decoder.decode(PROMPT, scaffold, replace(how, frame=frame), "s1").stats
            for frame in frames
        ]
        return sum(s.accepted for s in stats) / sum(s.proposed for s in stats)

    sharp = accepted()
    with blunted():
        assert accepted() != sharp
    assert accepted() == sharp


def test_the_gate_of_a_target_that_drafts_ahead_tries_no_whole_blocks(tmp_path: Path) -> None:
    graphs = filling_graphs(tmp_path)
    decoder = Decoder(graphs, measure(graphs))
    gates = [decoder.gate(DecodeSettings(method)) for method in ("scaffold-spec", "dflash")]
    assert [gate.arms for gate in gates if gate] == [("chain", "plain"), ARMS["dflash"]]


def test_a_trunk_that_is_too_small_says_so(tmp_path: Path) -> None:
    graphs = filling_graphs(tmp_path)
    scaffold = scaffold_in("1??????", "2??*??")
    for trunk in (7, 9, 11):
        tight = graphs.manifest.limits.model_copy(update={"trunk": trunk})
        graphs.manifest = graphs.manifest.model_copy(update={"limits": tight})
        how = DecodeSettings("scaffold-spec", rollouts=3, sampling=Sampling(1.0))
        with pytest.raises(CacheFullError, match="the cache's trunk is full"):
            Decoder(graphs, None).decode(PROMPT, scaffold, how, "s1")


def test_batches_of_rollouts_begin_with_the_same_drafts(tmp_path: Path) -> None:
    graphs = filling_graphs(tmp_path)
    decoder = Decoder(graphs, measure(graphs))
    scaffold = scaffold_in("1?????", "2??*??")
    how = DecodeSettings("ar", rollouts=5, sampling=Sampling(1.0))
    wanted = decoder.decode(PROMPT, scaffold, how, "s1").tokens
    for batch in (1, 2, 5):
        for _ in range(6):
            some = replace(how, method="scaffold-spec", accept="coupled", batch=batch)
            assert (decoder.decode(PROMPT, scaffold, some, "s1").tokens == wanted).all()
