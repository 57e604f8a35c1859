"""language.json: written whole, read strictly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from planners.language import Choice, Language, Number, Section
from runtime.errors import SlipstreamError


def test_save_and_load(language: Language, tmp_path: Path) -> None:
    language.save(tmp_path / "new" / "language.json")
    assert Language.load(tmp_path / "new" / "language.json").sections == language.sections


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match=r"language\.json is missing[\s\S]*to mend it"):
        Language.load(tmp_path / "language.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.update(version=2), r"unknown version[\s\S]*version 1[\s\S]*version 2"),
        (lambda raw: raw.pop("version"), "unknown version"),
        (lambda raw: raw.update(colour="red"), "colour is not valid"),
        (lambda raw: raw["sections"][0].update(colour="red"), r"sections\.0\.colour is not valid"),
        (lambda raw: raw.update(fork_section="paths"), "'paths' is none of"),
        (lambda raw: raw.update(sections=raw["sections"] * 2), "section names repeat"),
        (lambda raw: raw["sections"][3]["slots"].pop("x5"), "the template names the slots"),
        (lambda raw: raw.update(fork_section="meta"), "no number slot x1"),
        (lambda raw: raw.update(sections=[]), "sections is not valid"),
        (lambda raw: raw["sections"][1]["slots"]["text"].update(width=0), "greater than 0"),
        (lambda raw: raw["sections"][1]["slots"]["text"].update(kind="poem"), "kind|tag"),
        (lambda raw: raw["sections"][3]["slots"]["x5"].update(signed="yes"), "signed is not valid"),
        (lambda raw: raw.update(version=True), "version is not valid"),
    ],
)
def test_a_bad_file_is_refused(
    language: Language, tmp_path: Path, change: Any, message: str
) -> None:
    raw = language.model_dump(mode="json")
    change(raw)
    path = tmp_path / "language.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(SlipstreamError, match=message) as caught:
        Language.load(path)
    assert str(path) in str(caught.value)


def test_a_mark_at_its_begin_is_no_fault_and_a_key_twice_is(
    language: Language, tmp_path: Path
) -> None:
    path = tmp_path / "language.json"
    language.save(path)
    text = path.read_text("utf-8")
    path.write_text(text, "utf-8-sig")
    assert Language.load(path).sections == language.sections
    path.write_text('{"name": "other", ' + text[1:], "utf-8")
    with pytest.raises(SlipstreamError, match="'name' is there twice"):
        Language.load(path)


@pytest.mark.parametrize("text", ["", "[1, 2", "[]", "\x00"])
def test_not_json_or_not_a_language(tmp_path: Path, text: str) -> None:
    path = tmp_path / "language.json"
    path.write_text(text)
    with pytest.raises(SlipstreamError, match=r"can't be read|unknown version"):
        Language.load(path)


@pytest.mark.parametrize("slot", [
    lambda: Choice(options=("a", "a"), width=1),
    lambda: Choice(options=("",), width=1),
    lambda: Number(digits=0, decimals=0),
    lambda: Section(name="s", template="", slots={}),
])  # fmt: skip
def test_slots_that_make_no_sense(slot: Any) -> None:
    with pytest.raises(ValidationError):
        slot()
