"""Slots joined to a tokenizer: each writes its value as tokens and reads it back, strictly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from planners.slots import Bins, Choice, Number, Text
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError

Value = str | float

ParseKind = Literal[
    "wrong_length",
    "mask_left",
    "wrong_scaffold",
    "bad_choice",
    "bad_number",
    "bad_action",
    "bad_text",
    "text_after_padding",
]

FORBIDDEN_IN_TEXT = frozenset('"\\{}')


class ParseError(SlipstreamError):
    """Tokens that are not an output of the language.

    Attributes:
        kind: what is wrong, one short name of `ParseKind`.
        where: section and slot, "" where the output as a whole is wrong.
    """

    def __init__(self, kind: ParseKind, where: str = "", *, expected: str, found: str) -> None:
        self.kind, self.where = kind, where
        super().__init__(
            f"the output does not parse ({kind}{' in ' + where if where else ''})",
            expected=expected,
            found=found,
        )


@dataclass(frozen=True)
class ChoiceField:
    """Writes and reads a choice."""

    where: str
    tokens_of: dict[str, tuple[int, ...]]
    option_of: dict[tuple[int, ...], str]
    allowed: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, slot: Choice, where: str, tokenizer: Tokenizer) -> ChoiceField:
        tokens_of = {
            option: tuple(_padded(tokenizer.encode(option), slot.width, where, option, tokenizer))
            for option in slot.options
        }
        allowed = tuple(frozenset(column) for column in zip(*tokens_of.values(), strict=True))
        return cls(where, tokens_of, {ids: text for text, ids in tokens_of.items()}, allowed)

    def write(self, value: Value) -> Sequence[int]:
        tokens = self.tokens_of.get(str(value))
        if tokens is None:
            raise bad_value(self.where, f"one of {', '.join(self.tokens_of)}", repr(value))
        return tokens

    def read(self, tokens: list[int]) -> str:
        option = self.option_of.get(tuple(tokens))
        if option is None:
            raise ParseError(
                "bad_choice",
                self.where,
                expected=f"one of {', '.join(self.tokens_of)}",
                found=f"tokens {tokens}",
            )
        return option


@dataclass(frozen=True)
class TextField:
    """Writes and reads a padded text."""

    where: str
    width: int
    pieces: dict[int, str]
    tokenizer: Tokenizer
    allowed: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, slot: Text, where: str, tokenizer: Tokenizer) -> TextField:
        pieces = {
            token: text
            for token, text in tokenizer.printable.items()
            if FORBIDDEN_IN_TEXT.isdisjoint(text)
        }
        allowed = frozenset(pieces) | {tokenizer.null}
        return cls(where, slot.width, pieces, tokenizer, (allowed,) * slot.width)

    def write(self, value: Value) -> Sequence[int]:
        text = str(value)
        tokens = self.tokenizer.encode(text)
        for token in tokens:
            if token not in self.pieces:
                raise bad_value(
                    self.where,
                    "printable text without quotes, backslashes, braces or special tokens",
                    f"{self.tokenizer.decode([token])!r} in {text!r}",
                )
        return _padded(tokens, self.width, self.where, text, self.tokenizer)

    def read(self, tokens: list[int]) -> str:
        null = self.tokenizer.null
        end = len(tokens) - tokens.count(null)
        if null in tokens[:end]:
            raise ParseError(
                "text_after_padding",
                self.where,
                expected="nothing but padding after the first NULL",
                found=f"tokens {tokens}",
            )
        try:
            return "".join([self.pieces[token] for token in tokens[:end]])
        except KeyError as error:
            raise ParseError(
                "bad_text",
                self.where,
                expected="printable text without quotes, backslashes or braces",
                found=f"token {error}",
            ) from None


@dataclass(frozen=True)
class NumberField:
    """Writes and reads a number; `tables[i]` maps a token at offset i to what it adds."""

    where: str
    slot: Number
    signs: dict[int, int]
    tables: tuple[dict[int, int], ...]
    token_of: dict[str, int]
    fixed: frozenset[int]
    scale: int
    allowed: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, slot: Number, where: str, tokenizer: Tokenizer) -> NumberField:
        token_of = dict(zip("0123456789", tokenizer.digits, strict=True))
        token_of.update({sign: tokenizer.single(sign) for sign in "+-."})
        signs = {token_of["+"]: 1, token_of["-"]: -1} if slot.signed else {}
        powers = [10**place for place in reversed(range(slot.digits + slot.decimals))]
        tables = [{token_of[str(d)]: d * power for d in range(10)} for power in powers]
        if slot.decimals:
            tables.insert(slot.digits, {token_of["."]: 0})
        dot = slot.signed + slot.digits
        fixed = frozenset({dot} if slot.decimals and not slot.dot_is_value else ())
        allowed = ([frozenset(signs)] if slot.signed else []) + [frozenset(t) for t in tables]
        return cls(where, slot, signs, tuple(tables), token_of, fixed, slot.scale, tuple(allowed))

    def write(self, value: Value) -> Sequence[int]:
        try:
            text = self.slot.write(float(value))
        except (ValueError, TypeError):
            raise bad_value(self.where, "a number", repr(value)) from None
        except SlipstreamError as error:
            raise bad_value(self.where, error.expected, error.found) from None
        return [self.token_of[character] for character in text]

    def read(self, tokens: list[int]) -> float:
        try:
            digits = tokens
            sign = 1
            if self.signs:
                sign, digits = self.signs[tokens[0]], tokens[1:]
            units = 0
            for table, token in zip(self.tables, digits):  # noqa: B905 (same length; speed)
                units += table[token]
        except KeyError as error:
            raise ParseError(
                "bad_number",
                self.where,
                expected=f"{self.slot.write(0.0)}-like digits",
                found=f"token {error} in {tokens}",
            ) from None
        return sign * units / self.scale


@dataclass(frozen=True)
class BinsField:
    """Writes and reads a number that is one token; any other token is an error, never a bin."""

    where: str
    slot: Bins
    tokens: tuple[int, ...]
    value_of: dict[int, float]
    allowed: tuple[frozenset[int], ...]

    @classmethod
    def of(cls, slot: Bins, where: str, tokenizer: Tokenizer) -> BinsField:
        tokens, value_of, allowed = _bins(slot, tokenizer)
        return cls(where, slot, tokens, value_of, allowed)

    def write(self, value: Value) -> Sequence[int]:
        try:
            return [self.tokens[self.slot.index(float(value))]]
        except (ValueError, TypeError):
            raise bad_value(self.where, "a number", repr(value)) from None
        except SlipstreamError as error:
            raise bad_value(self.where, error.expected, error.found) from None

    def read(self, tokens: list[int]) -> float:
        value = self.value_of.get(tokens[0])
        if value is None:
            last = self.slot.text(self.slot.count - 1)
            raise ParseError(
                "bad_action",
                self.where,
                expected=f"{self.slot.text(0)} to {last}",
                found=f"token {tokens[0]}",
            )
        return value


@lru_cache(maxsize=8)
def _bins(
    slot: Bins, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], dict[int, float], tuple[frozenset[int], ...]]:
    """A row of bins as tokens: the same for every slot of a language that has it.

    Raises:
        SlipstreamError: the tokenizer splits one of them, or two are the same token.
    """
    tokens = tuple(tokenizer.single(slot.text(i)) for i in range(slot.count))
    value_of = {token: slot.value(i) for i, token in enumerate(tokens)}
    if len(value_of) < len(tokens):
        raise SlipstreamError(
            f"{tokenizer.source} has not a token for each of {slot.pattern}",
            expected=f"{slot.count} different tokens",
            found=f"{len(value_of)}",
            fix="copy tokenizer.json from the checkpoint again, or correct the slot's pattern",
        )
    return tokens, value_of, (frozenset(tokens),)


SlotField = ChoiceField | TextField | NumberField | BinsField


def compile_slot(
    slot: Choice | Text | Number | Bins, where: str, tokenizer: Tokenizer
) -> SlotField:
    """Join one slot to a tokenizer."""
    if isinstance(slot, Choice):
        return ChoiceField.of(slot, where, tokenizer)
    if isinstance(slot, Text):
        return TextField.of(slot, where, tokenizer)
    if isinstance(slot, Bins):
        return BinsField.of(slot, where, tokenizer)
    return NumberField.of(slot, where, tokenizer)


def _padded(tokens: list[int], width: int, where: str, text: str, by: Tokenizer) -> list[int]:
    """Tokens of a text, NULL-padded to the slot's width."""
    if len(tokens) > width:
        raise bad_value(where, f"at most {width} tokens", f"{len(tokens)} for {text!r}")
    return tokens + [by.null] * (width - len(tokens))


def bad_value(where: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{where} can't be written",
        expected=expected,
        found=found,
        fix="correct the value, or the slot in language.json",
    )
