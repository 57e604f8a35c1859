"""The tokenizer wrapper: round trips, special tokens, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from planners.tokens import SpecialNames, Tokenizer
from planners.training.tokenizer import VOCABULARY, train_tokenizer, write_tiny
from runtime.errors import SlipstreamError

TINY = Path(__file__).parents[2] / "planners" / "weights" / "tiny" / "target"


@given(text=st.text())
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_nothing_is_added(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("") == []
    assert not {tokenizer.null, tokenizer.mask, tokenizer.eos} & set(tokenizer.encode("go left"))


def test_special_tokens_are_found_by_text_or_id(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([tokenizer.null, tokenizer.mask]) == "<|NULL|>|<MASK>|"
    assert tokenizer.decode([tokenizer.eos]) == "<|endoftext|>"
    again = Tokenizer(train_tokenizer(), SpecialNames(eos="<|NULL|>", mask=7))
    assert (again.eos, again.mask) == (tokenizer.null, 7)


@pytest.mark.parametrize("mask", ["<|mask|>", -1, VOCABULARY])
def test_missing_special_token(mask: str | int) -> None:
    with pytest.raises(SlipstreamError, match=r"no mask token[\s\S]*SpecialNames\(mask="):
        Tokenizer(train_tokenizer(), SpecialNames(mask=mask))


def test_printable_leaves_out_specials_controls_and_broken_characters(tokenizer: Tokenizer) -> None:
    printable = tokenizer.printable
    assert {tokenizer.null, tokenizer.mask, tokenizer.eos}.isdisjoint(printable)
    assert all(text.isprintable() and "\ufffd" not in text for text in printable.values())
    assert tokenizer.single("a") in printable
    assert tokenizer.single("\n") not in printable
    assert set(tokenizer.encode("é")).isdisjoint(printable)  # two bytes, neither a character


def test_a_larger_embedding_is_allowed_and_a_smaller_one_is_not() -> None:
    assert Tokenizer(train_tokenizer(), vocab=640).vocab == 640
    with pytest.raises(SlipstreamError, match="at least 512"):
        Tokenizer(train_tokenizer(), vocab=500)


def test_load(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tiny(tmp_path)
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.vocab == VOCABULARY == 512
    assert loaded.encode("Stopped, waiting.") == tokenizer.encode("Stopped, waiting.")


def test_shipped_files_are_what_training_gives(tmp_path: Path) -> None:
    if not (TINY / "tokenizer.json").is_file():
        pytest.skip("the tiny planner's files are not in this checkout")
    write_tiny(tmp_path)
    for name in ("tokenizer.json", "language.json"):
        assert (tmp_path / name).read_bytes() == (TINY / name).read_bytes()


def test_missing_file_names_it_and_the_fix(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match=r"nowhere\.json is missing[\s\S]*to mend it: copy"):
        Tokenizer.load(tmp_path / "nowhere.json")


@pytest.mark.parametrize("text", ["", "{", '{"model": {"type": "None such"}}'])
def test_broken_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(SlipstreamError, match="can't be read"):
        Tokenizer.load(path)


def merging(*merges: tuple[str, str]) -> tokenizers.Tokenizer:
    """A byte-level tokenizer without pre-tokenization, so that the merges apply anywhere."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in merges]
    inner = tokenizers.Tokenizer(
        models.BPE({text: i for i, text in enumerate(letters)}, list(merges))
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>", "<|NULL|>", "|<MASK>|"])
    return inner


def test_digits(tokenizer: Tokenizer) -> None:
    assert [tokenizer.decode([digit]) for digit in tokenizer.digits] == list("0123456789")


def test_merged_digits_are_refused() -> None:
    assert len(Tokenizer(merging(("a", "b"))).digits) == 10
    with pytest.raises(SlipstreamError, match=r"merges digits[\s\S]*'12' is 1 token"):
        _ = Tokenizer(merging(("1", "2"))).digits


def test_a_tokenizer_that_is_not_byte_level_is_refused() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(["<|endoftext|>", "<|NULL|>", "|<MASK>|"])
    with pytest.raises(SlipstreamError, match="no byte-level tokenizer"):
        Tokenizer(inner)
