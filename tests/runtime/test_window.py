"""What was said of the places behind an anchor, and the drafts chosen of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime.ahead import Offer
from runtime.draws import Draws
from runtime.marginals import Said
from runtime.markov import Markov
from runtime.propose import known_block
from runtime.race import WIDE
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.window import (
    FRESH,
    LEFT,
    Window,
    decided,
    marginals_of,
    windows_of,
)
from tests.runtime.drafted import (
    PROMPT,
    by_hand,
    gated_window,
    head_of,
    logits_of,
    rollouts_of,
    window_at,
)
from tests.runtime.filling import VOCAB, scaffold_in


def test_what_is_left_of_a_refused_draft_is_offered_again() -> None:
    script = Script.of(PROMPT, scaffold_in("????2???"))
    window = window_at(6, 7, 8, 10, 11)
    rollouts = rollouts_of(script, 5)
    offer = Offer.of([window], rollouts, script, len(script), 65)
    assert offer.reach.tolist() == [6]
    assert offer.drafted.tolist() == [[True, True, True, False, True, True]]
    assert offer.fresh.tolist() == [True]
    rest = window.behind(7, token=2)  # it came otherwise
    offer = Offer.of([rest], rollouts_of(script, 7), script, len(script), 64)
    assert rest.places.tolist() == [8, 10, 11]
    assert (offer.reach.tolist(), offer.fresh.tolist()) == ([4], [False])
    assert offer.rests.tolist() == [[LEFT, FRESH, LEFT, LEFT]], "9 is no draft"
    gap = Offer.of([window_at(7, 8)], rollouts_of(script, 5), script, len(script), 64)
    assert gap.reach.tolist() == [0], "nothing is known of the next token"
    short = Offer.of([window], rollouts, script, len(script), 3)
    assert (short.reach.tolist(), short.drafted.shape) == ([2], (1, 2))
    ends = Offer.of([window], rollouts, script, 9, 64)
    assert ends.reach.tolist() == [2], "what ends a stretch is the target's own word"


def test_windows_of_several_rollouts() -> None:
    script = Script.of(PROMPT, scaffold_in("?????"))
    windows = windows_of(np.asarray([5, 6, 8]), np.asarray([2, 1]), Said(logits_of(1, 2, 3)))
    assert [each.places.tolist() for each in windows] == [[5, 6], [8]]
    rollouts = rollouts_of(script, 4, 7)
    rollouts.tokens[1, 5:8] = 0
    first, second = decided(windows, rollouts, Sampling(), None)
    assert first.drafts is not None
    assert second.drafts is not None
    assert (first.drafts.tokens.tolist(), second.drafts.tokens.tolist()) == ([1, 2], [3])
    np.testing.assert_allclose(first.drafts.confidence, 0.9)


@pytest.mark.parametrize("gated", [False, True])
def test_drafts_are_chosen_again_where_the_token_before_came_otherwise(gated: bool) -> None:
    head = head_of(gated=gated)
    script = Script.of(PROMPT, scaffold_in("???3??"))
    rollouts = rollouts_of(script, 4)
    (window,) = decided([gated_window(head, 5, 6, 7, 9, 10)], rollouts, Sampling(), None)
    assert window.drafts is not None
    tokens, sure = by_hand(window, rollouts, 0)
    assert window.drafts.tokens.tolist() == tokens
    np.testing.assert_allclose(window.drafts.confidence, sure, rtol=1e-5)
    kept = window.behind(6, tokens[1])
    assert kept.drafts is not None
    assert kept.drafts.tokens.tolist() == tokens[2:]
    assert (kept.rests == LEFT).all()
    assert decided([kept], rollouts, Sampling(), None)[0] is kept
    changed = 0
    for token in set(range(VOCAB)) - {tokens[1]}:
        rest = window.behind(6, token)
        assert rest.drafts is None
        rollouts.tokens[0, 5:7], rollouts.start = [tokens[0], token], np.asarray([6])
        (again,) = decided([rest], rollouts, Sampling(), None)
        assert again.drafts is not None
        wanted, sure = by_hand(again, rollouts, 0)
        assert again.drafts.tokens.tolist() == wanted
        np.testing.assert_allclose(again.drafts.confidence, sure, rtol=1e-5)
        changed += wanted != tokens[2:]
    assert changed > 0
    # without a head nothing depends on it
    assert window_at(6, 7).behind(6, token=3).drafts is not None


def test_a_window_behind_an_open_place_waits_for_its_token() -> None:
    head = head_of()
    script = Script.of(PROMPT, scaffold_in("?????"))
    rollouts, window = rollouts_of(script, 4), gated_window(head, 6, 7)
    (same,) = decided([window], rollouts, Sampling(), None)
    assert same is window
    offer = Offer.of([same], rollouts, script, len(script), 64)
    assert offer.reach.tolist() == [0]
    rollouts.tokens[0, 5], rollouts.start = 2, np.asarray([5])
    (chosen,) = decided([window.behind(5, 2)], rollouts, Sampling(), None)
    assert chosen.drafts is not None
    assert chosen.drafts.tokens.tolist() == by_hand(window, rollouts, 0)[0]


@pytest.mark.parametrize("head", [None, head_of(gated=False), head_of()])
def test_coupled_drafts_win_the_targets_race(head: Markov | None) -> None:
    """And their confidence is how likely that winner is the target's, not how likely the token."""
    script, sampling = Script.of(PROMPT, scaffold_in("???3??")), Sampling(1.3, 4)
    window = gated_window(head or head_of(), 5, 6, 7, 9, 10)
    if head is None or head.gate is None:
        window = replace(window, said=Said(window.said.logits, head))
    rollouts, draws = rollouts_of(script, 4, 4), Draws(8, 2)
    for row, each in enumerate(decided([window, window], rollouts, sampling, draws)):
        assert each.drafts is not None
        tokens = rollouts.tokens[row].copy()
        for slot, place in enumerate(each.places):
            race = draws.at_position(np.asarray(row), np.asarray(place))
            options = window.said.under(sampling)(np.asarray([slot]), tokens[place - 1, None])
            q = np.zeros(VOCAB)
            q[np.arange(VOCAB) if options.tokens is None else options.tokens[0]] = options.q[0]
            tokens[place] = race.draw(q)
            assert each.drafts.tokens[slot] == tokens[place]
            assert each.drafts.confidence[slot] == pytest.approx(race.foreseen(q)[tokens[place]])


def test_a_wide_places_confidence_is_that_of_its_draft() -> None:
    """Where one number decides, a neighbour of the winner may be likelier than that."""
    vocab = 2 * WIDE
    q = np.where(np.arange(vocab) % 256, 0.2 / (vocab - 8), 0.1)
    script = Script.of(PROMPT, scaffold_in(*["?" * 50]))
    places, draws = np.arange(5, 55), Draws(3, 0)
    said = Said(np.tile(np.log(q).astype(np.float32), (50, 1)))
    window = Window(places, said, np.full(50, FRESH))
    (found,) = decided([window], rollouts_of(script, 4), Sampling(1.0), draws)
    assert found.drafts is not None
    race = draws.at_position(np.zeros(50, np.int64), places)
    foreseen = race.foreseen(said.under(Sampling(1.0))(slice(None), places).q)
    wanted = foreseen[np.arange(50), found.drafts.tokens]
    assert (wanted < foreseen.max(axis=1)).any()
    np.testing.assert_allclose(found.drafts.confidence, wanted)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)])
def test_padding_and_empty_windows_stand_beside_those_of_a_head(
    gated: bool, sampling: Sampling
) -> None:
    head, draws = head_of(gated=gated), Draws(4, 0)
    script = Script.of(PROMPT, scaffold_in("?????????"))
    padding = Window.padding(np.asarray([5, 6, 7]), 3, VOCAB, head)
    read = gated_window(head, 7, 8, 9)
    windows = [
        Window.empty(VOCAB, head),
        padding.undecided,
        gated_window(head, 5, 6),
        padding.and_then(read),
    ]
    rollouts = rollouts_of(script, 4, 4, 4, 4)
    noise = draws if sampling.temperature else None
    together = decided(windows, rollouts, sampling, noise)
    for row, window in enumerate(windows):
        one = Rollouts(rollouts.ids[[row]], rollouts.tokens[[row]], rollouts.start[[row]])
        (alone,) = decided([window], one, sampling, noise)
        found = together[row].drafts
        assert (found is None) == (alone.drafts is None) == (row == 0)
        if found is not None and alone.drafts is not None:
            assert found.tokens.tolist() == alone.drafts.tokens.tolist()
            np.testing.assert_allclose(found.confidence, alone.drafts.confidence, rtol=1e-5)
    for row, places in ((1, 3), (3, 2)):
        drafts = together[row].drafts
        assert drafts is not None
        assert (drafts.tokens[:places] == 3).all()
        np.testing.assert_allclose(drafts.confidence[:places], 1.0)
    block = known_block(rollouts, script, 4, len(script))
    block.drafted[0] = False
    block.drafted[2, 3] = False
    marginals = marginals_of(block, together)
    assert marginals.markov is head
    assert (marginals.gates is not None) == gated
    assert len(marginals.logits) == block.drafted.sum() == (3 + 2 + 3)
