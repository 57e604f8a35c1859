"""The output language: its scaffold, and strict parsing."""

from __future__ import annotations

import json
import re
import time
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.language import Language, Number, ParseError
from planners.manoeuvres import LATERAL, LONGITUDINAL
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError
from runtime.scaffold import VALUE

from .test_tokens import merging

TENTHS = {"x": 9999, "y": 999}


@st.composite
def values(draw: st.DrawFn) -> dict[str, dict[str, str | float]]:
    """Values of the tiny language, on the grid of its digits."""

    def tenths(largest: int, least: int | None = None) -> float:
        low = -largest if least is None else least
        return draw(st.integers(low, largest)) / 10

    text = draw(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20))
    return {
        "motion": {
            "speed": tenths(999, 0),
            "acceleration": tenths(99),
            "yaw_rate": draw(st.integers(-999, 999)) / 1000,
        },
        "explanation": {"text": text.translate({ord(mark): None for mark in '"\\{}'})},
        "meta": {
            "longitudinal": draw(st.sampled_from(LONGITUDINAL)),
            "lateral": draw(st.sampled_from(LATERAL)),
        },
        "trajectory": {f"{a}{k}": tenths(TENTHS[a]) for k in range(1, 6) for a in "xy"},
    }


@pytest.fixture
def example(language: Language, tokenizer: Tokenizer) -> list[int]:
    """One output's tokens."""
    return language.encode(
        {
            "motion": {"speed": 7.5, "acceleration": -0.4, "yaw_rate": 0.021},
            "explanation": {"text": "Cruising, braking for a left turn."},
            "meta": {"longitudinal": "slow down", "lateral": "left"},
            "trajectory": {f"{a}{k}": 1.5 * k for k in range(1, 6) for a in "xy"},
        },
        tokenizer,
    )


@given(said=values())
@settings(deadline=None)
def test_what_is_encoded_is_parsed(language: Language, tokenizer: Tokenizer, said: Any) -> None:
    tokens = language.encode(said, tokenizer)
    assert language.parse(tokens, tokenizer) == said
    assert language.parse(np.asarray(tokens), tokenizer) == said
    places = np.arange(len(tokens))
    bias = language.compile(tokenizer).bias_at(places)
    assert (bias[places, tokens] == 0.0).all(), "a true token is not allowed"


def test_the_text_reads_as_json(tokenizer: Tokenizer, example: list[int]) -> None:
    text = tokenizer.decode([t for t in example if t not in (tokenizer.null, tokenizer.eos)])
    assert text.startswith('{"motion": {"speed": 07.5, "acceleration": -0.4, "yaw_rate": +.021},')
    assert '"explanation": "Cruising, braking for a left turn.",' in text
    assert text.endswith('"5 s": [+007.5, +07.5]}}')
    # JSON has no plus signs, leading zeros or bare points; without those it is JSON
    plain = re.sub(r"\+|(?<![\d.])0+(?=\d)", "", text.replace("+.", "0."))
    assert json.loads(plain)["trajectory"]["2 s"] == [3.0, 3.0]


def test_scaffold_of_the_tiny_language(language: Language, tokenizer: Tokenizer) -> None:
    scaffold = language.compile(tokenizer)
    assert 170 <= len(scaffold) <= 210
    assert 0.45 <= (~scaffold.is_value).mean() <= 0.55
    assert [span.name for span in scaffold.sections] == [s.name for s in language.sections]
    assert all(a.stop == b.start for a, b in pairwise(scaffold.sections))
    assert scaffold.tokens[-1] == tokenizer.eos
    assert scaffold.allowed_sets[0].all()
    assert not scaffold.allowed_sets[:, tokenizer.mask][1:].any()
    assert language.fork_section == scaffold.sections[-1].name == "trajectory"
    assert language.compile(tokenizer) is scaffold  # made once


def test_allowed_sets(language: Language, tokenizer: Tokenizer) -> None:
    scaffold = language.compile(tokenizer)

    def allowed(position: int) -> set[str]:
        ids = np.flatnonzero(scaffold.allowed_sets[scaffold.allowed_id[position]])
        return {tokenizer.decode([int(token)]) for token in ids}

    places = {f"{s.section}.{s.name}": s for s in language.compiled(tokenizer).slots}
    x1 = places["trajectory.x1"]
    assert allowed(x1.start) == {"+", "-"}
    assert allowed(x1.start + 1) == set("0123456789")
    assert scaffold.tokens[x1.stop - 2] == tokenizer.single(".")
    meta = places["meta.longitudinal"].start
    assert allowed(meta) == {"wait", "start", "stop", "slow", "keep", "speed", "back"}
    assert allowed(meta + 1) == {" down", " speed", " up", "<|NULL|>"}
    text = allowed(places["explanation.text"].start)
    assert {"<|NULL|>", "Braking", "a", "'"} <= text
    assert not any(mark in piece for piece in text for mark in '"\\{}\n')
    assert not {"|<MASK>|", "<|endoftext|>"} & text


def test_first_tokens_tell_the_options_apart(tokenizer: Tokenizer) -> None:
    for options in (LONGITUDINAL, LATERAL):
        assert len({tokenizer.encode(option)[0] for option in options}) == len(options)


def corrupted(language: Language, tokenizer: Tokenizer, tokens: list[int], **to: int) -> list[int]:
    """The tokens with some replaced: `section__slot__offset=token`."""
    tokens = list(tokens)
    for where, token in to.items():
        section, name, offset = where.split("__")
        slots = language.compiled(tokenizer).slots
        slot = next(s for s in slots if (s.section, s.name) == (section, name))
        tokens[slot.start + int(offset)] = token
    return tokens


def test_every_kind_of_parse_error(
    language: Language, tokenizer: Tokenizer, example: list[int]
) -> None:
    one, letter, null = tokenizer.single("1"), tokenizer.single("a"), tokenizer.null

    def change(**to: int) -> list[int]:
        return corrupted(language, tokenizer, example, **to)

    trajectory = language.compile(tokenizer).section("trajectory")
    broken = list(example)
    broken[trajectory.start] = one
    unfinished = list(example)
    unfinished[-1] = null
    cases = [
        ("wrong_length", "", example[:-1]),
        ("wrong_length", "", [*example, tokenizer.eos]),
        ("wrong_length", "", []),
        ("mask_left", "explanation.text", change(explanation__text__3=tokenizer.mask)),
        ("mask_left", "trajectory.y5", change(trajectory__y5__0=tokenizer.mask)),
        ("wrong_scaffold", "trajectory", broken),
        ("wrong_scaffold", "trajectory", unfinished),
        ("wrong_scaffold", "motion.speed", change(motion__speed__2=one)),
        ("bad_choice", "meta.lateral", change(meta__lateral__0=letter)),
        ("bad_choice", "meta.longitudinal", change(meta__longitudinal__1=null)),
        ("bad_number", "trajectory.x1", change(trajectory__x1__0=one)),
        ("bad_number", "trajectory.x1", change(trajectory__x1__1=tokenizer.single("-"))),
        ("bad_number", "motion.yaw_rate", change(motion__yaw_rate__4=null)),
        ("bad_text", "explanation.text", change(explanation__text__0=tokenizer.single('"'))),
        ("bad_text", "explanation.text", change(explanation__text__0=tokenizer.eos)),
        ("text_after_padding", "explanation.text", change(explanation__text__1=null)),
        ("text_after_padding", "explanation.text", change(explanation__text__23=letter)),
    ]
    for kind, where, tokens in cases:
        with pytest.raises(ParseError) as caught:
            language.parse(tokens, tokenizer)
        assert (caught.value.kind, caught.value.where) == (kind, where)
        assert kind in str(caught.value)


def outcome(language: Language, tokenizer: Tokenizer, tokens: list[int]) -> tuple[str, Any]:
    """The kind of error, or "" and the values."""
    try:
        return "", language.parse(tokens, tokenizer)
    except ParseError as error:
        return error.kind, None


@given(data=st.data())
@settings(deadline=None)
def test_any_changed_token_changes_a_value_or_is_an_error(
    language: Language, tokenizer: Tokenizer, data: st.DataObject
) -> None:
    tokens = language.encode(data.draw(values()), tokenizer)
    said = language.parse(tokens, tokenizer)
    at = data.draw(st.integers(0, len(tokens) - 1))
    token = data.draw(st.integers(0, tokenizer.vocab - 1).filter(lambda t: t != tokens[at]))
    minus_zero = {tokens[at], token} == {tokenizer.single("+"), tokenizer.single("-")}
    tokens[at] = token
    fixed = language.compile(tokenizer).tokens[at] != VALUE
    kind, changed = outcome(language, tokenizer, tokens)
    if fixed:
        assert kind == ("mask_left" if token == tokenizer.mask else "wrong_scaffold")
    else:
        assert kind or changed != said or minus_zero


def test_parsing_is_fast(language: Language, tokenizer: Tokenizer, example: list[int]) -> None:
    row = np.asarray(example)
    times = []
    for _ in range(300):
        began = time.perf_counter()
        language.parse(row, tokenizer)
        times.append(time.perf_counter() - began)
    assert min(times) < 50e-6


def test_waypoints(language: Language, tokenizer: Tokenizer, example: list[int]) -> None:
    waypoints = language.waypoints(language.parse(example, tokenizer))
    np.testing.assert_array_equal(waypoints, 1.5 * np.arange(1, 6)[:, None] * np.ones(2))


@pytest.mark.parametrize(
    ("section", "slot", "value", "message"),
    [
        ("motion", "speed", 100.0, "0.0 to 99.9"),
        ("motion", "speed", -1.0, "0.0 to 99.9"),
        ("motion", "speed", float("nan"), "nan"),
        ("motion", "speed", "fast", "a number"),
        ("trajectory", "x1", 999.96, "-999.9 to 999.9"),
        ("meta", "lateral", "up", "one of left"),
        ("explanation", "text", 'say "no"', "without quotes"),
        ("explanation", "text", "pad <|NULL|>", "special tokens"),
        ("explanation", "text", "line\nbreak", "printable"),
        ("explanation", "text", "zyx" * 20, "at most 24 tokens"),
    ],
)
def test_values_that_do_not_fit(
    language: Language,
    tokenizer: Tokenizer,
    example: list[int],
    section: str,
    slot: str,
    value: Any,
    message: str,
) -> None:
    said = language.parse(example, tokenizer)
    said[section][slot] = value
    with pytest.raises(SlipstreamError, match=rf"{section}\.{slot} can't be written") as caught:
        language.encode(said, tokenizer)
    assert message in str(caught.value)


def test_a_missing_value_is_named(
    language: Language, tokenizer: Tokenizer, example: list[int]
) -> None:
    said = language.parse(example, tokenizer)
    del said["meta"]
    with pytest.raises(SlipstreamError, match=r"meta\.longitudinal can't be written"):
        language.encode(said, tokenizer)


@pytest.mark.parametrize(
    ("value", "text"),
    [(-0.04, "+00.0"), (0.05, "+00.1"), (0.15, "+00.2"), (-12.35, "-12.4"), (99.94, "+99.9")],
)
def test_numbers_round_half_away_from_zero(value: float, text: str) -> None:
    assert Number(digits=2, decimals=1).write(value) == text


def test_whole_numbers_and_clipping() -> None:
    whole = Number(digits=3, decimals=0, signed=False)
    assert (whole.write(7.0), whole.width) == ("007", 3)
    assert (whole.clip(-3.0), whole.clip(1e9)) == (0.0, 999.0)
    assert Number(digits=2, decimals=1).clip(float("-inf")) == -99.9


def test_merging_digits_are_refused(language: Language) -> None:
    with pytest.raises(SlipstreamError, match="merges digits"):
        language.compile(Tokenizer(merging(("0", "0"))))


def test_an_option_wider_than_its_slot_is_refused(language: Language) -> None:
    with pytest.raises(SlipstreamError, match=r"meta\.longitudinal[\s\S]*at most 2 tokens"):
        language.compile(Tokenizer(merging(("a", "b"))))
