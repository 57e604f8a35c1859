"""The decode loop on a model whose every output probability is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from runtime.decode import Decoder, batches
from runtime.errors import CacheFullError, SlipstreamError
from runtime.fits import SLACK
from runtime.graphs import Graphs
from runtime.markov import Markov
from runtime.settings import DRAFTING, FOLLOWING, RULES, DecodeSettings, Sampling
from tests.runtime.symbolic import World, worlds
from tests.runtime.tabular import probabilities, scaffold_of, tabular_graphs

PROMPT = [1, 3, 2, 0, 1]
METHODS = ("ar", "ar-scaffold", "dflash", "ddtree", "spectr")
PICTURES = ("?|?????", "10?2?|34?1??2", "1?*|?*2*?0", "12|3?*?", "?|*1****1*")
DRAFTED = [(method, rule) for method in DRAFTING for rule in RULES[method]]


@pytest.fixture(params=["scaffold-in-block", "masks-only", "markov-head"])
def graphs(request, tmp_path: Path) -> Graphs:
    graphs = tabular_graphs(tmp_path, scaffold_in_block=request.param != "masks-only")
    if request.param == "markov-head":
        rng = np.random.default_rng(7)
        graphs.markov = Markov(*rng.normal(size=(2, 5, 3)).astype(np.float32))
    return graphs


def outputs(graphs, picture, settings, frames=1) -> list[tuple[int, ...]]:
    decoder = Decoder(graphs, None)
    scaffold = scaffold_of(picture)
    found: list[tuple[int, ...]] = []
    for frame in range(frames):
        decoded = decoder.decode(
            np.asarray(PROMPT), scaffold, replace(settings, frame=frame), "tail"
        )
        decoder.cache.check_integrity()
        found += [tuple(row) for row in decoded.tokens.tolist()]
    return found


def likeliest(graphs, picture) -> tuple[int, ...]:
    """Greedy decoding from the definition: the argmax of each conditional."""
    exact = probabilities(graphs, PROMPT, scaffold_of(picture))
    output: tuple[int, ...] = ()
    for i in range(len(next(iter(exact)))):
        mass: Counter[int] = Counter()
        for path, p in exact.items():
            if path[:i] == output:
                mass[path[i]] += p
        output = (*output, mass.most_common(1)[0][0])
    return output


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("block", [2, 3, 4])
def test_greedy_is_the_argmax_of_every_conditional(graphs, picture, method, block) -> None:
    expected = likeliest(graphs, picture)
    for rollouts in (1, 3):
        settings = DecodeSettings(method=method, block=block, nodes=6, rollouts=rollouts)
        assert outputs(graphs, picture, settings) == [expected] * rollouts


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("block", [2, 4])
def test_rules_that_follow_the_target_draw_what_it_draws(graphs, picture, block) -> None:
    settings = DecodeSettings("ar", block=block, rollouts=4, sampling=Sampling(1.0), seed=5)
    plain = outputs(graphs, picture, settings, frames=20)
    assert len(set(plain)) > 3
    for method, rules in RULES.items():
        for rule in set(rules) & set(FOLLOWING):
            again = replace(settings, method=method, accept=rule)
            assert outputs(graphs, picture, again, frames=20) == plain


def test_a_rollout_does_not_depend_on_its_batch(graphs) -> None:
    for method, accept in DRAFTED:
        settings = DecodeSettings(
            method=method, accept=accept, block=4, nodes=7, sampling=Sampling(1.0), rollouts=7
        )
        picture = "10?2?|34?1??2"
        many = outputs(graphs, picture, settings)
        for n in (2, 5):
            assert outputs(graphs, picture, replace(settings, rollouts=n)) == many[:n]


@pytest.mark.parametrize(("method", "accept"), [("ar", None), *DRAFTED])
def test_rollouts_one_after_another_are_those_at_once(graphs, method, accept) -> None:
    settings = DecodeSettings(
        method=method, accept=accept, block=4, nodes=7, sampling=Sampling(1.0), rollouts=7
    )
    picture = "10?2?|34?1??2"
    at_once = outputs(graphs, picture, settings, frames=3)
    for batch in (1, 2, 3, 7, 20):
        assert outputs(graphs, picture, replace(settings, batch=batch), frames=3) == at_once


def test_batches_are_even() -> None:
    assert [part.tolist() for part in batches(7, 3)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [part.tolist() for part in batches(3, None)] == [[0, 1, 2]]
    assert [part.tolist() for part in batches(2, 9)] == [[0, 1]]


def chi_square(found: list[tuple[int, ...]], exact: dict[tuple[int, ...], float]) -> float:
    """Standard score of a chi-square test; outputs expected fewer than 5 times are pooled."""
    counts, n = Counter(found), len(found)
    assert set(counts) <= set(exact)
    large = [o for o, p in exact.items() if n * p >= 5]
    expected = np.asarray([n * exact[o] for o in large])
    seen = np.asarray([counts[o] for o in large], np.float64)
    rest = n - expected.sum()
    if rest >= 5:
        expected, seen = np.append(expected, rest), np.append(seen, n - seen.sum())
    statistic, freedom = ((seen - expected) ** 2 / expected).sum(), len(expected) - 1
    return float((statistic - freedom) / np.sqrt(2 * freedom))


def enumerated(
    graphs, monkeypatch, prompt, picture, settings, forget_position=False
) -> dict[tuple[int, ...], float]:
    """Every batch of outputs (one after another) and its probability: all randomness integrated.

    The counters that the random numbers come from name symbolic uniforms, so a counter used twice
    is one number used twice. `forget_position` has all rounds use the same numbers. All
    places count as wide, so that the target's own draw is by one number as well.
    """
    decoder, scaffold = Decoder(graphs, None), scaffold_of(picture, vocab=3)

    def decode(world: World) -> tuple[int, ...]:
        def uniforms(seed, frame, rollouts, positions, offsets=0):
            counters = np.broadcast_arrays(rollouts, 0 if forget_position else positions, offsets)
            numbers = np.empty((*counters[0].shape, 4), object)
            for *index, word in np.ndindex(*numbers.shape):
                counter = tuple(int(c[tuple(index)]) for c in counters)
                numbers[(*index, word)] = world.named((*counter, word))
            return numbers

        monkeypatch.setattr("runtime.draws.uniforms", uniforms)
        monkeypatch.setattr("runtime.race.uniforms", uniforms)
        monkeypatch.setattr("runtime.race.WIDE", 0)
        tokens = decoder.decode(np.asarray(prompt), scaffold, settings, "tail").tokens
        return tuple(tokens.ravel().tolist())

    found: Counter[tuple[int, ...]] = Counter()
    for world, output in worlds(decode):
        found[output] += world.weight
    return found


@pytest.mark.parametrize(("method", "accept"), DRAFTED)
@pytest.mark.parametrize(("picture", "rollouts"), [("1|?*?", 1), ("12|*0?*", 1), ("1|*?", 2)])
def test_all_random_numbers_integrated_out(
    tmp_path, monkeypatch, method, accept, picture, rollouts
) -> None:
    """From the counters of the random numbers to the output: exact but for float32 logits."""
    graphs, prompt = tabular_graphs(tmp_path, vocab=3), [1, 2, 0, 1]
    settings = DecodeSettings(
        method=method,
        accept=accept,
        block=3,
        nodes=3,
        paths=2,
        rollouts=rollouts,
        sampling=Sampling(1.0),
    )
    found = enumerated(graphs, monkeypatch, prompt, picture, settings)
    single = probabilities(graphs, prompt, scaffold_of(picture, vocab=3))
    exact = {
        sum(batch, ()): float(np.prod([single[output] for output in batch]))
        for batch in product(single, repeat=rollouts)
    }
    assert set(found) == set(exact)
    error = max(abs(found[outputs] - p) for outputs, p in exact.items())
    print(f"\n{method} {accept}: largest error {error:.1e}")
    assert error < 1e-7


@pytest.mark.parametrize("accept", ["block", "token"])
def test_rounds_that_share_their_numbers_are_caught(tmp_path, monkeypatch, accept) -> None:
    graphs, prompt = tabular_graphs(tmp_path, vocab=3), [1, 2, 0, 1]
    settings = DecodeSettings(accept=accept, block=3, sampling=Sampling(1.0))
    found = enumerated(graphs, monkeypatch, prompt, "1|?*?", settings, forget_position=True)
    exact = probabilities(graphs, prompt, scaffold_of("1|?*?", vocab=3))
    assert max(abs(found[output] - p) for output, p in exact.items()) > 1e-3


@pytest.mark.parametrize(("method", "accept"), DRAFTED)
def test_sampled_outputs_have_the_exact_distribution(tmp_path, method, accept) -> None:
    """A whole batch that shares its passes, by its statistics."""
    picture = "*|?2*?"
    graphs = tabular_graphs(tmp_path, vocab=4)
    settings = DecodeSettings(
        method=method,
        accept=accept,
        block=4,
        nodes=6,
        paths=3,
        rollouts=16,
        sampling=Sampling(1.0),
        prefix_sampling=Sampling(0.0),
    )
    scaffold = scaffold_of(picture, vocab=4)
    exact = probabilities(graphs, PROMPT, scaffold)
    decoder = Decoder(graphs, None)
    found: list[tuple[int, ...]] = []
    for frame in range(120):
        tokens = decoder.decode(
            np.asarray(PROMPT), scaffold, replace(settings, frame=frame), "tail"
        ).tokens
        found += [tuple(row) for row in tokens.tolist()]
    greedy_head = found[0][: scaffold.section("head").stop]
    assert all(output[: len(greedy_head)] == greedy_head for output in found)
    tail = {o: p for o, p in exact.items() if o[: len(greedy_head)] == greedy_head}
    mass = sum(tail.values())
    assert chi_square(found, {o: p / mass for o, p in tail.items()}) < 4


def test_a_shifted_position_is_caught(tmp_path, monkeypatch) -> None:
    """The tests above can fail: one position off, and the greedy output is another."""
    graphs = tabular_graphs(tmp_path)
    whole = graphs.target
    monkeypatch.setattr(
        graphs,
        "target",
        lambda embeddings, positions, *rest: whole(embeddings, positions + 1, *rest),
    )
    wrong = sum(
        outputs(graphs, picture, DecodeSettings(block=4))[0] != likeliest(graphs, picture)
        for picture in PICTURES
    )
    assert wrong >= 2


def test_counters_add_up(graphs) -> None:
    scaffold = scaffold_of("10?2?|34?1??2")
    decoder = Decoder(graphs, None)
    for method in METHODS:
        settings = DecodeSettings(method=method, block=4, nodes=5)
        stats = decoder.decode(np.asarray(PROMPT), scaffold, settings, "tail").stats
        assert stats.target_passes == stats.rounds
        assert stats.committed <= len(scaffold)
        assert stats.accepted <= stats.proposed
        assert stats.by_position[0].sum() == stats.proposed
        assert stats.by_position[1].sum() == stats.accepted
        assert sum(row[1] for row in stats.by_section.values()) == stats.committed
        assert 0 < stats.first_token <= stats.total
        if method == "ar":
            assert stats.target_passes == len(scaffold)
        if method == "ar-scaffold":
            assert stats.target_passes == scaffold.is_value.sum()


def test_memory_is_one_trunk_and_n_branches(graphs) -> None:
    scaffold = scaffold_of("10?2?|34?1??2")
    decoder = Decoder(graphs, None)
    row = 2 * 4 * 8  # key and value, fp32, one layer of one head of 8
    limits = graphs.manifest.limits
    for method, caches in (("ar", 1), ("dflash", 2)):
        for n in (2, 4, 16):
            settings = DecodeSettings(method=method, block=None, rollouts=n, sampling=Sampling(1.0))
            stats = decoder.decode(np.asarray(PROMPT), scaffold, settings, "tail").stats
            assert stats.cache_bytes == caches * row * (limits.trunk + n * limits.branch)
            stats = decoder.decode(
                np.asarray(PROMPT), scaffold, replace(settings, batch=2), "tail"
            ).stats
            assert stats.rollouts == n
            assert stats.cache_bytes == caches * row * (limits.trunk + 2 * limits.branch)


def test_a_branch_is_no_longer_than_the_output_needs(tmp_path) -> None:
    graphs = tabular_graphs(tmp_path, branch=500)
    scaffold, row = scaffold_of("1?|??1??"), 2 * 4 * 8
    settings = DecodeSettings(method="ar", rollouts=3, sampling=Sampling(1.0))
    stats = Decoder(graphs, None).decode(np.asarray(PROMPT), scaffold, settings, "tail").stats
    trunk, branch = graphs.manifest.limits.trunk, 5 + SLACK
    assert stats.cache_bytes == row * (trunk + 3 * branch)


def test_a_full_branch_is_compacted_and_goes_on(tmp_path) -> None:
    graphs = tabular_graphs(tmp_path, branch=18)
    roomy = tabular_graphs(tmp_path, branch=64)
    picture = "1?|" + "?" * 14
    settings = DecodeSettings(accept="token", block=4, rollouts=6, sampling=Sampling(1.0))
    assert outputs(graphs, picture, settings, 10) == outputs(roomy, picture, settings, 10)


def test_a_cache_that_is_too_small_says_so(tmp_path) -> None:
    graphs = tabular_graphs(tmp_path, trunk=8)
    with pytest.raises(CacheFullError, match="trunk is full"):
        outputs(graphs, "10?2?|34?1??2", DecodeSettings(block=4))


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (DecodeSettings(block=5), "wider than the drafter"),
        (DecodeSettings(rollouts=17), "more rollouts"),
    ],
)
def test_settings_beyond_the_bundle(graphs, settings, what) -> None:
    with pytest.raises(SlipstreamError, match=what):
        outputs(graphs, "1?|?", settings)


def test_a_prompt_that_does_not_fit(graphs) -> None:
    decoder = Decoder(graphs, None)
    for prompt in ([1], [1] * 62):
        with pytest.raises(SlipstreamError, match="don't fit"):
            decoder.decode(np.asarray(prompt), scaffold_of("1?|?"), DecodeSettings(), "tail")


@pytest.mark.parametrize("method", ["dflash", "ddtree", "spectr"])
def test_a_prompt_that_no_branch_could_hold_is_shared(tmp_path, method) -> None:
    """Forked at the very start: the drafter's rows of the prompt go to its trunk."""
    decoder = Decoder(tabular_graphs(tmp_path, trunk=64, branch=24), None)
    prompt = np.random.default_rng(0).integers(0, 5, 40)
    settings = DecodeSettings(method, rollouts=3, nodes=6, paths=2, sampling=Sampling(1.0))
    decoded = decoder.decode(prompt, scaffold_of("?|?1??2"), settings, "head")
    assert decoded.tokens.shape == (3, 6)
    assert decoder.draft_cache is not None
    assert decoder.draft_cache.trunk.used >= 38
    assert decoder.draft_cache.branches.used <= 6
