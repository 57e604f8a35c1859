"""Drafts behind the rows that a pass verifies: what they see, what is left of them, what comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.accept import Accepted
from runtime.ahead import NOWHERE, Offer, Outlook, Split, Window, windows_of
from runtime.costs import measure
from runtime.decode import Decoder
from runtime.errors import CacheFullError
from runtime.proof.controls import blunted
from runtime.scaffold import Padding
from runtime.schema import block_ends
from runtime.script import Rollouts, Script
from runtime.self_drafter import SelfDrafter
from runtime.settings import RULES, DecodeSettings, Sampling
from runtime.telemetry import FrameStats
from runtime.tree import causal, looking_ahead
from runtime.trial import ARMS
from tests.runtime.filling import VOCAB, FillingEngine, filling_graphs, scaffold_in

PROMPT = np.asarray([1, 3, 0, 2, 4])


def logits_of(*tokens: int) -> np.ndarray:
    return np.log(np.full((len(tokens), VOCAB), 0.02) + 0.88 * np.eye(VOCAB)[list(tokens)])


def window_at(*places: int) -> Window:
    return Window(np.asarray(places), logits_of(*[1] * len(places)), np.full(len(places), 0.9))


def rollouts_of(script: Script, *starts: int) -> Rollouts:
    n = len(starts)
    return Rollouts(np.arange(n), np.tile(script.tokens, (n, 1)), np.asarray(starts))


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
    drafter, stats = SelfDrafter(graphs, cache), FrameStats()
    drafter.windows = [window_at(5, 7)]
    # places 5..13 are ?2?4?1???: two drafts and a fixed token stand, and 8 is fixed, so 9 is next
    found = drafter.ahead(
        rollouts, outlook, Split(np.asarray([3]), np.asarray([9])), len(script), 64
    )
    block = found.block
    assert (block.tokens[0, :4] == [4, -1, 2, -1]).all()
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
    drafter.look(hidden, block, accepted, rollouts, script, stats)
    (window,) = drafter.windows
    assert window.places.tolist() == values
    assert window.fresh
    mask = graphs.manifest.draft.mask_token  # type: ignore[union-attr]
    shown = [4, mask, 1, mask, mask] if not value_rows else [4, 1, mask, mask]
    at = [8, 9, 10, 11, 12] if not value_rows else [8, 10, 11, 12]
    rows = [*zip([*PROMPT, 3, 2, 5], range(8), strict=True), *zip(shown, at, strict=True)]
    seen = np.asarray([engine.code[t] * engine.turn[i] for t, i in rows], np.float32).sum(axis=0)
    state = np.stack([seen + engine.turn[place - 1] for place in values])
    wanted = head.run({"hidden": state[None]}, {})["top_logits"][0]
    np.testing.assert_allclose(window.logits, wanted, atol=1e-5)
    assert cache.trunk.used == 4, "masks are never committed"


def test_what_is_left_of_a_refused_draft_is_offered_again() -> None:
    script = Script.of(PROMPT, scaffold_in("????2???"))
    window = window_at(6, 7, 8, 10, 11)
    rollouts = rollouts_of(script, 5)
    offer = Offer.of([window], rollouts, script, len(script), 65)
    assert offer.reach.tolist() == [6]
    assert offer.drafted.tolist() == [[True, True, True, False, True, True]]
    assert offer.fresh.tolist() == [True]
    rest = window.behind(7)  # the token at 7 came otherwise
    offer = Offer.of([rest], rollouts_of(script, 7), script, len(script), 64)
    assert (rest.places.tolist(), rest.fresh) == ([8, 10, 11], False)
    assert (offer.reach.tolist(), offer.fresh.tolist()) == ([4], [False])
    gap = Offer.of([window_at(7, 8)], rollouts_of(script, 5), script, len(script), 64)
    assert gap.reach.tolist() == [0], "nothing is known of the next token"
    short = Offer.of([window], rollouts, script, len(script), 3)
    assert (short.reach.tolist(), short.drafted.shape) == ([2], (1, 2))
    ends = Offer.of([window], rollouts, script, 9, 64)
    assert ends.reach.tolist() == [2], "what ends a stretch is the target's own word"


def test_windows_of_several_rollouts() -> None:
    windows = windows_of(np.asarray([4, 5, 9]), np.asarray([2, 1]), logits_of(1, 2, 3))
    assert [each.places.tolist() for each in windows] == [[4, 5], [9]]
    assert windows[1].logits.argmax() == 3
    np.testing.assert_allclose(windows[0].confidence, 0.9)


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


def test_padding_is_not_drafted_twice(tmp_path: Path) -> None:
    """Where NULL was said, the rest of its slot is offered without a mask, and verified."""
    graphs = filling_graphs(tmp_path)
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
        if token in wanted[0, 1:6]:
            seen.add(found.stats.proposed)
    assert seen, "the target says a token that pads"
    script = Script.of(PROMPT, replace(bare, padding=Padding(3, ends)))
    limits = graphs.manifest.limits
    drafter = SelfDrafter(graphs, graphs.cache(graphs.manifest.target, limits.trunk, limits.branch))
    drafter.windows = [window_at(7), window_at(7)]
    rollouts = rollouts_of(script, 8, 8)
    rollouts.tokens[0, 8], rollouts.tokens[1, 8] = 3, 2
    drafter._pad(rollouts, script, Padding(3, ends))
    assert [each.places.tolist() for each in drafter.windows] == [[9, 10, 11], [7]]
    assert (drafter.windows[0].logits.argmax(axis=1) == 3).all()


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
