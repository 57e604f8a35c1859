"""Trains the small planners' tokenizers: byte-level BPE on their own prompts and outputs.

    python -m planners.training.tokenizer FOLDER

writes FOLDER/tokenizer.json and FOLDER/language.json of the tiny planner. Needs no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from planners.fast_ddrive import corpus, fast_ddrive_language
from planners.language import Choice, Language
from planners.manoeuvres import LATERAL, LONGITUDINAL, sentences
from planners.observation import PAST_STATES, Intent, Observation
from planners.presets import tiny_language
from planners.prompt import prompt_text
from planners.tokens import SpecialNames
from runtime.files import write_atomic

VOCABULARY = 512
FAST_DDRIVE_VOCABULARY = 640

# words with the mark or space before them, digits one by one, runs of marks, line breaks, spaces:
# the split of the Qwen tokenizers, without English contractions
_SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

# further words of the road, so that other explanations stay short too
_WORDS = """
car truck van bus tram bicycle cyclist motorcycle pedestrian child people vehicle vehicles traffic
light lights red green amber sign signal crossing crosswalk junction intersection roundabout lane
lanes merge merging change changing overtake parked parking oncoming leading following close clear
queue gap yield priority curve curb kerb wet rain snow fog night slow fast distance behind beside
near far front rear because with and the is are at by from of while until after before no not
"""


def train_tokenizer() -> tokenizers.Tokenizer:
    """The tokenizer of the tiny planner, the same on every run: V = 512, specials first."""
    said = [*sentences(), *(f"{word}. {word.capitalize()}" for word in _WORDS.split())]
    return _train(_corpus(tiny_language(), [*LONGITUDINAL, *LATERAL], said), VOCABULARY)


def train_fast_ddrive_tokenizer() -> tokenizers.Tokenizer:
    """That of a small Fast-dDrive planner: V is at most 640; each of its words is one token."""
    language = fast_ddrive_language()
    slots = [slot for section in language.sections for slot in section.slots.values()]
    options = [text for slot in slots if isinstance(slot, Choice) for text in slot.options]
    return _train(_corpus(language, sorted(set(options)), corpus()), FAST_DDRIVE_VOCABULARY)


def write_tiny(folder: str | Path) -> None:
    """Train, and write `tokenizer.json` and `language.json` into a folder."""
    _write(Path(folder), train_tokenizer(), tiny_language())


def write_fast_ddrive(folder: str | Path) -> None:
    """`write_tiny` of a small Fast-dDrive planner."""
    _write(Path(folder), train_fast_ddrive_tokenizer(), fast_ddrive_language())


def _write(folder: Path, tokenizer: tokenizers.Tokenizer, language: Language) -> None:
    write_atomic(folder / "tokenizer.json", tokenizer.to_str(pretty=False))
    language.save(folder / "language.json")


def _train(corpus: Iterable[str], vocabulary: int) -> tokenizers.Tokenizer:
    special = SpecialNames()
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=1,
        show_progress=False,
        special_tokens=[special.eos, special.null, special.mask],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def _corpus(language: Language, options: list[str], said: list[str]) -> Iterator[str]:
    """Fixed text, options and sentences, each as the piece that the language tokenizes."""
    fixed = [p.text for s in language.sections for p in s.pieces if p.slot is None]
    yield from fixed * 100
    yield from options * 100
    yield from said
    for intent in Intent:
        yield from [prompt_text(_mirrored(intent, sign)) for sign in (-1.0, 1.0)] * 100


def _mirrored(intent: Intent, sign: float) -> Observation:
    """An observation whose numbers all carry one sign, so that the prompt shows that sign."""
    ones = np.full(PAST_STATES, sign)
    return Observation(np.full((PAST_STATES, 2), sign), ones, ones, ones, ones, intent)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m planners.training.tokenizer FOLDER")
    write_tiny(sys.argv[1])
