"""Training the tiny tokenizer: its size, its words, and that it repeats itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from planners.language import Language
from planners.manoeuvres import LATERAL, LONGITUDINAL, sentences
from planners.tokens import Tokenizer
from planners.training.tokenizer import VOCABULARY, write_tiny

ROOT = Path(__file__).parents[2]


def test_vocabulary(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab == VOCABULARY
    ids = range(VOCABULARY)
    assert len({tokenizer.decode([i]) for i in ids if i in tokenizer.printable}) > 300
    assert [tokenizer.eos, tokenizer.null, tokenizer.mask] == [0, 1, 2]


@pytest.mark.parametrize("text", [" straight", " left", " right", " on", " +", " -", "+", "-", "."])
def test_pieces_that_the_prompt_counts_on(tokenizer: Tokenizer, text: str) -> None:
    tokenizer.single(text)


def test_words_of_the_labels_are_one_token_each(tokenizer: Tokenizer) -> None:
    for text in (*LONGITUDINAL, *LATERAL):
        assert len(tokenizer.encode(text)) == len(text.split())
    for sentence in sentences():
        marks = sentence.count(",") + sentence.count(".")
        assert len(tokenizer.encode(sentence)) == len(sentence.split()) + marks


def test_the_command_writes_the_same_files_in_another_process(tmp_path: Path) -> None:
    write_tiny(tmp_path / "here")
    command = [sys.executable, "-m", "planners.training.tokenizer", str(tmp_path / "there")]
    subprocess.run(command, check=True, cwd=ROOT)
    for name in ("tokenizer.json", "language.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    Language.load(tmp_path / "there" / "language.json").compile(
        Tokenizer.load(tmp_path / "there" / "tokenizer.json")
    )


def test_the_command_without_a_folder_says_how_it_is_used() -> None:
    command = [sys.executable, "-m", "planners.training.tokenizer"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode != 0
    assert "usage: python -m planners.training.tokenizer FOLDER" in found.stderr


def test_no_torch_is_needed() -> None:
    modules = "language,prompt,presets,tokens,trajectory,rollouts,training.tokenizer"
    code = (
        "import sys; sys.modules['torch'] = None; import importlib;"
        f"[importlib.import_module('planners.' + name) for name in '{modules}'.split(',')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
