"""language.json with damaged numbers, and outputs of no language: one error, soon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planners.language import Language, ParseError
from planners.rollouts import impossible
from planners.tokens import SpecialNames, Tokenizer
from runtime.errors import SlipstreamError
from tests.planners.qwen_like import qwen_like

NUMBER = {"kind": "number", "digits": 2, "decimals": 1}
BINS = {"kind": "bins", "pattern": "{}", "count": 10, "low": 0, "high": 9}
MOVES = [[1.3 * i, 0.0, 0.0] for i in range(10)]
HUGE = 2**70


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return qwen_like()


def written(path: Path, motion: dict[str, Any], slots: dict[str, Any], **more: Any) -> Path:
    """A language.json whose one section has these slots."""
    template = " ".join(f"<{name}>" for name in slots)
    section = {"name": "trajectory", "template": template, "slots": slots}
    raw = {"version": 1, "name": "n", "motion": motion, "sections": [section]} | more
    path.write_text(json.dumps(raw))
    return path


def numbers(names: str, count: int) -> dict[str, Any]:
    return {f"{name}{k}": NUMBER for k in range(1, count + 1) for name in names}


def refused(path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(SlipstreamError) as caught:
        Language.load(path).compile(tokenizer)
    error = caught.value
    assert error.expected
    assert error.found
    assert error.fix
    assert len(str(error)) < 4100


@pytest.mark.parametrize(
    "slot",
    [
        None,
        5,
        {"kind": "zz"},
        {"kind": "text", "width": 10**9},
        {"kind": "text", "width": HUGE},
        {"kind": "choice", "options": ["a"], "width": 10**9},
        {"kind": "choice", "options": [], "width": 1},
        {"kind": "choice", "options": ["x" * 100_000], "width": 9},
        {"kind": "choice", "options": [str(i) for i in range(9000)], "width": 9},
        {"kind": "number", "digits": 0, "decimals": 0},
        {"kind": "number", "digits": True, "decimals": "1"},
        BINS | {"low": 1, "high": 0},
        BINS | {"low": 1, "high": 1},
        BINS | {"low": float("nan")},
        BINS | {"low": -1e308, "high": 1e308},
        BINS | {"low": 0, "high": 5e-324},
        BINS | {"low": 1e8, "high": 1e8 + 1e-8},
        BINS | {"count": 1},
        BINS | {"count": 1 << 17},
        BINS | {"first": 10**400},
        BINS | {"pattern": "{}{}"},
        BINS | {"pattern": "x" * 10**6 + "{}"},
    ],
)
def test_a_slot(slot: object, tokenizer: Tokenizer, tmp_path: Path) -> None:
    slots = numbers("xy", 5) | {"extra": slot}
    refused(written(tmp_path / "l.json", {"kind": "waypoints"}, slots), tokenizer)


@pytest.mark.parametrize("kind", ["waypoints", "speed_curvature", "unicycle"])
@pytest.mark.parametrize(
    ("step", "count"),
    [
        (0, 5),
        (-1, 5),
        (float("nan"), 5),
        (1e308, 5),
        (HUGE, 5),
        (5e-324, 5),
        ("1", 5),
        (True, 5),
        (5.0, 1),
        (1.0, 0),
        (1.0, 10**9),
        (1.0, 4),
    ],
)
def test_steps(kind: str, step: object, count: int, tokenizer: Tokenizer, tmp_path: Path) -> None:
    names = {"waypoints": "xy", "speed_curvature": "vk", "unicycle": "ak"}[kind]
    motion = {"kind": kind, "step": step, "count": count}
    refused(written(tmp_path / "l.json", motion, numbers(names, min(count, 9))), tokenizer)


@pytest.mark.parametrize(
    "change",
    [
        {"moves": []},
        {"moves": MOVES[:1]},
        {"moves": MOVES[:9]},
        {"moves": [[1, 2]] * 10},
        {"moves": [[float("nan"), 0, 0]] * 10},
        {"moves": [[1e308, 0, 0]] * 10},
        {"moves": 5},
        {"length": 1e-320},
        {"width": 0},
        {"step": 0},
    ],
)
def test_a_codebook(change: dict[str, Any], tokenizer: Tokenizer, tmp_path: Path) -> None:
    slots = {f"t{k}": BINS for k in range(1, 11)}
    motion = {"kind": "codebook", "moves": MOVES} | change
    refused(written(tmp_path / "l.json", motion, slots), tokenizer)


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("speed_curvature", "curvature_scale", 0),
        ("speed_curvature", "speed_seconds", 1e-308),
        ("unicycle", "acceleration_mean", float("inf")),
        ("unicycle", "curvature_mean", -1e308),
        ("unicycle", "curvature_std", 1e-308),
        ("unicycle", "more", 1),
    ],
)
def test_a_scale(kind: str, key: str, value: float, tokenizer: Tokenizer, tmp_path: Path) -> None:
    names = {"speed_curvature": "vk", "unicycle": "ak"}[kind]
    motion = {"kind": kind, "step": 0.5, "count": 10, key: value}
    refused(written(tmp_path / "l.json", motion, numbers(names, 10)), tokenizer)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"version":2}', '{"version":1}', '{"version":1,"a":' * 50_000]
)
def test_what_is_no_language(text: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(text)
    refused(tmp_path / "l.json", tokenizer)


def test_outputs_that_are_too_long(tokenizer: Tokenizer, tmp_path: Path) -> None:
    wide = {f"w{chr(97 + k)}": {"kind": "text", "width": 4096} for k in range(5)}
    slots = numbers("xy", 5) | wide
    refused(written(tmp_path / "l.json", {"kind": "waypoints"}, slots), tokenizer)


@pytest.mark.parametrize(
    ("motion", "names"),
    [
        ({"kind": "waypoints"}, "xy"),
        ({"kind": "speed_curvature", "step": 1.0, "count": 5, "curvature_scale": 1e-9}, "vk"),
        ({"kind": "unicycle", "step": 1.0, "count": 5, "curvature_std": 1e9}, "ak"),
    ],
)
def test_extreme_values_are_impossible_and_warn_of_nothing(
    motion: dict[str, Any], names: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    most = NUMBER | {"digits": 9, "decimals": 0}
    slots = dict.fromkeys(numbers(names, 5), most)
    language = Language.load(written(tmp_path / "l.json", motion, slots))
    values = {"trajectory": {name: -1e9 + 1 if "1" in name else 1e9 - 1 for name in slots}}
    parsed = language.parse(language.encode(values, tokenizer), tokenizer)
    with np.errstate(all="raise"):
        assert impossible(language.trajectory(parsed, 60.0, 0.0), 60.0)


@pytest.fixture
def language(tmp_path: Path) -> Language:
    return Language.load(written(tmp_path / "l.json", {"kind": "waypoints"}, numbers("xy", 5)))


@pytest.mark.parametrize("token", [-1, 10**9, 2**40, "a", None, 1.5, [1], float("nan")])
def test_tokens_of_no_tokenizer_do_not_parse(
    token: Any, language: Language, tokenizer: Tokenizer
) -> None:
    length = len(language.compile(tokenizer))
    with pytest.raises(ParseError):
        language.parse([token] * length, tokenizer)
    with pytest.raises(ParseError, match="wrong_length"):
        language.parse([], tokenizer)


@pytest.mark.parametrize(
    "values", [None, 5, {}, {"trajectory": None}, {"trajectory": {"x1": None}}]
)
def test_values_that_can_t_be_written(
    values: Any, language: Language, tokenizer: Tokenizer
) -> None:
    with pytest.raises(SlipstreamError, match="can't be written"):
        language.encode(values, tokenizer)


@pytest.mark.parametrize(
    "path", [np.zeros((3, 2)), np.zeros((20, 3)), np.full((20, 2), np.nan), np.zeros(0)]
)
def test_a_path_that_can_t_be_said(path: Any, language: Language) -> None:
    with pytest.raises(SlipstreamError, match="a path can't be said"):
        language.motion_values(path, 0.0, 0.0)


def test_padding_with_the_mask_s_token_is_no_mask_that_was_left(tmp_path: Path) -> None:
    """A target without a MASK of its own has NULL for it."""
    own = qwen_like()
    null = own.null
    same = Tokenizer(own._inner, SpecialNames(null, null, own.eos))
    slots = numbers("xy", 5) | {"word": {"kind": "choice", "options": ["a", "abc"], "width": 3}}
    language = Language.load(written(tmp_path / "l.json", {"kind": "waypoints"}, slots))
    values: dict[str, Any] = dict.fromkeys(numbers("xy", 5), 0.0) | {"word": "a"}
    tokens = language.encode({"trajectory": values}, same)
    assert language.parse(tokens, same)["trajectory"]["word"] == "a"
