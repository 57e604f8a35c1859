"""A byte-level tokenizer that splits text as Qwen2.5's does: its pattern, digits one by one."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from planners.published import COMMANDS, CRITICAL_OBJECTS, SPEEDS
from planners.tokens import SpecialNames, Tokenizer

# of tokenizer.json in Qwen2.5's checkpoints
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def qwen_like(more: Iterable[str] = ()) -> Tokenizer:
    """Trained on the words of the outputs; `more` are further special tokens, action tokens say."""
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    inner.decoder = decoders.ByteLevel()
    words = [*CRITICAL_OBJECTS, *SPEEDS, *COMMANDS, "yes", "no", "explanation", "trajectory"]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    text = [f'{{"critical_objects": {{"{word}": "yes", ' for word in words]
    inner.train_from_iterator([*text, "the car ahead is slowing down, follow it"] * 3, trainer)
    names = SpecialNames(eos="<|im_end|>")
    inner.add_special_tokens([names.mask, names.null, names.eos])
    inner.add_special_tokens(list(more))
    return Tokenizer(inner, names)
