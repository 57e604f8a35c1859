"""The tokenizer of a checkpoint: text to token ids and back, and the ids that decoding needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tokenizers

from planners.small_files import exists, small_file
from runtime.errors import SlipstreamError

_FIX = "copy tokenizer.json from the checkpoint again, or export the bundle again"
_PROBE = ' A speed of  12.5 m/s,\n\n\tx_1 = {"Y"}'


@dataclass(frozen=True)
class SpecialNames:
    """Three special tokens, by text or by id; Fast-dDrive ends an output with `<|im_end|>`."""

    null: str | int = "<|NULL|>"  # pads a choice or a text to its fixed width
    mask: str | int = "|<MASK>|"  # a position that a block drafter fills
    eos: str | int = "<|endoftext|>"


def read_tokenizer(path: str | Path) -> tokenizers.Tokenizer:
    """Parse a `tokenizer.json`.

    Raises:
        SlipstreamError: no such file, or not a tokenizer.
    """
    path = Path(path)
    if not exists(path):
        raise SlipstreamError(
            f"{path} is missing", expected="a tokenizer.json", found="no file", fix=_FIX
        )
    try:
        inner = tokenizers.Tokenizer.from_str(small_file(path).decode("utf-8-sig"))
        # of training; a text is neither cut nor filled up here, as in transformers
        inner.no_truncation()
        inner.no_padding()
        if getattr(inner.model, "dropout", None):
            inner.model.dropout = None
        if not inner.get_vocab_size():
            raise ValueError("no token at all")
        return inner
    except Exception as error:  # the library raises bare Exception
        raise SlipstreamError(
            f"{path} can't be read",
            expected="a tokenizer.json of the Hugging Face tokenizers library",
            found=str(error)[:200],
            fix=_FIX,
        ) from error


class Tokenizer:
    """A byte-level tokenizer (`tokenizer.json` of the Hugging Face tokenizers library).

    Attributes:
        ids: of each token, by how the file writes it.
        null, mask, eos: ids of the special tokens.
        vocab: V, rows of the embedding; ids the tokenizer doesn't know decode to nothing.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        special: SpecialNames | None = None,
        *,
        vocab: int | None = None,
        source: str = "the tokenizer",
    ) -> None:
        special = special or SpecialNames()
        self._inner, self.source = inner, source
        self.ids: dict[str, int] = inner.get_vocab(with_added_tokens=True)
        known = max(self.ids.values()) + 1
        if twice := len(self.ids) - len(set(self.ids.values())):
            raise SlipstreamError(
                f"{source} has tokens of the same id",
                expected="an id of its own for each token",
                found=f"{twice} of {len(self.ids)} have another one's",
                fix=_FIX,
            )
        if vocab is not None and vocab < known:
            raise SlipstreamError(
                f"the vocabulary is smaller than that of {source}",
                expected=f"at least {known} ids",
                found=str(vocab),
                fix=_FIX,
            )
        self.vocab = vocab or known
        self.null = self._special("null", special.null)
        self.mask = self._special("mask", special.mask)
        self.eos = self._special("eos", special.eos)
        if (back := self._there_and_back(_PROBE)) != _PROBE:
            raise SlipstreamError(
                f"{source} is no byte-level tokenizer",
                expected="tokens whose texts join to exactly the text that was encoded",
                found=f"{_PROBE!r} comes back as {back!r}",
                fix="use a checkpoint of the Qwen, Llama-3 or GPT-2 tokenizer family",
            )

    @classmethod
    def load(
        cls, path: str | Path, special: SpecialNames | None = None, *, vocab: int | None = None
    ) -> Tokenizer:
        """Read a `tokenizer.json`.

        Args:
            path: the file.
            special: the special tokens, where the checkpoint has others than the defaults.
            vocab: V of the model, where its embedding has more rows than the tokenizer has ids.

        Raises:
            SlipstreamError: no such file, not a tokenizer, a special token is missing, or its
                tokens don't join to the text (not byte-level).
        """
        inner = read_tokenizer(path)
        return cls(inner, special, vocab=vocab, source=str(path))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; nothing is added before or after."""
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, special tokens by their names: the inverse of `encode`."""
        text: str = self._inner.decode(ids, skip_special_tokens=False)
        return text

    @cached_property
    def printable(self) -> dict[int, str]:
        """Text of each token that prints by itself: no special, no control, no broken UTF-8."""
        added = self._inner.get_added_tokens_decoder()
        texts = {token: self.decode([token]) for token in self.ids.values()}
        return {
            token: text
            for token, text in texts.items()
            if text and text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text
            if token not in added
        }

    @cached_property
    def digits(self) -> tuple[int, ...]:
        """Ids of 0..9.

        Raises:
            SlipstreamError: neighbouring digits merge into one token, so that fixed-width numbers
                would not be what the model was trained on.
        """
        ids = tuple(self.single(digit) for digit in "0123456789")
        for tens in range(10):
            for ones in range(10):
                if self.encode(f"{tens}{ones}") != [ids[tens], ids[ones]]:
                    raise SlipstreamError(
                        f"{self.source} merges digits",
                        expected="one token for each digit",
                        found=f"'{tens}{ones}' is {len(self.encode(f'{tens}{ones}'))} token(s)",
                        fix="use a tokenizer that splits numbers into digits, as Qwen's does",
                    )
        return ids

    def single(self, character: str) -> int:
        """The id of a text that must be one token."""
        ids = self.encode(character)
        if len(ids) != 1:
            raise SlipstreamError(
                f"{self.source} has no token of its own for {character!r}",
                expected="one token",
                found=f"{len(ids)} tokens",
                fix="use a tokenizer that splits numbers into digits, as Qwen's does",
            )
        return ids[0]

    def _there_and_back(self, text: str) -> str:
        try:
            return "".join(self.decode([token]) for token in self.encode(text))
        except Exception as error:  # the library raises bare Exception
            return f"{error}"

    def _special(self, role: str, token: str | int) -> int:
        known = token in self.ids
        if not isinstance(token, str):
            known = type(token) is int and 0 <= token < self.vocab
        if not known:
            raise SlipstreamError(
                f"{self.source} has no {role} token",
                expected=f"a token {token!r}",
                found="no such token",
                fix=f"name the checkpoint's own one: --{role} TOKEN, or SpecialNames({role}=...)",
            )
        return self.ids[token] if isinstance(token, str) else token
