"""Tokenizers, special tokens, chat templates and prompts with a fault: each is one error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.bundle import export_bundle
from export.special import Said
from tests.export.bad_exports import FRONT, LIMITS, edit, refused


def _no_tokens(raw: Any) -> None:
    raw["model"] |= {"vocab": {}, "merges": []}
    raw["added_tokens"] = []


def _same_ids(raw: Any) -> None:
    raw["model"]["vocab"]["Z"] = raw["model"]["vocab"]["Q"]


def _lower_case(raw: Any) -> None:
    raw["normalizer"] = {"type": "Lowercase"}


def _no_byte_level(raw: Any) -> None:
    raw |= {"pre_tokenizer": None, "decoder": None}


def _huge_id(raw: Any) -> None:
    raw["model"]["vocab"]["zz"] = 2**32 - 1


def _without_unknown(raw: Any) -> None:
    raw["model"] = {"type": "Unigram", "vocab": [], "unk_id": None}


@pytest.mark.parametrize(
    "change", [_no_tokens, _same_ids, _lower_case, _no_byte_level, _huge_id, _without_unknown]
)
def test_a_tokenizer(change: Callable[[Any], None], copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    refused(folder, r"tokenizer\.json")


@pytest.mark.parametrize("said", [Said(null=True), Said(null=10**12), Said(eos=""), Said(mask=-1)])
def test_special_tokens_that_are_none(said: Said, copied: Callable[[str], Path]) -> None:
    refused(copied("qwen2"), "has no (null|mask|eos) token", special=said)


def test_a_padding_token_that_is_no_token_is_passed_over(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    edit(folder / "generation_config.json", "pad_token_id", value=True)
    made = export_bundle(folder, None, folder.parent / "b", limits=LIMITS, check_parity=False)
    assert type(made.null_token) is int


TEMPLATES = {
    "{% for i in range(10**9) %}{% endfor %}": "OverflowError",
    "{{ 'x' * 10**10 }}": "MemoryError",
    "{% include '/etc/passwd' %}": "no loader",
    "plain": "does not show the bundle's pictures",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "within 1 s",
}


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_chat_template(text: str, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    (folder / "chat_template.jinja").write_text(text)
    refused(folder, TEMPLATES[text], rig=FRONT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ speed.__class__ }}", "SecurityError"),
        ("{{ '(' * }}", "no template"),
    ],
)
def test_a_text_of_prompt_json(text: str, says: str, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    parts = [{"camera": "front"}, {"text": text}]
    (folder / "prompt.json").write_text(json.dumps({"version": 1, "user": parts}))
    refused(folder, says, rig=FRONT)


def test_a_prompt_that_does_not_fit_the_cache(copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    parts = [{"camera": "front"}, {"text": "x" * 100}]
    (folder / "prompt.json").write_text(json.dumps({"version": 1, "user": parts}))
    refused(folder, "the prompt does not fit the cache", rig=FRONT)
