"""A language joined to a tokenizer: its scaffold, and tables that write and read tokens fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planners.fields import (
    BinsField,
    NumberField,
    ParseError,
    SlotField,
    Value,
    bad_value,
    compile_slot,
)
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError
from runtime.scaffold import VALUE, Padding, Scaffold, Span

if TYPE_CHECKING:
    from planners.language import Language

LONGEST = 1 << 14  # tokens of an output
_LARGEST_SETS = 1 << 28  # bytes of all allowed sets
Values = Mapping[str, Mapping[str, Value]]
Parsed = dict[str, dict[str, Value]]


@dataclass(frozen=True)
class Placed:
    """A slot at positions start..stop-1 of the output."""

    section: str
    name: str
    start: int
    stop: int
    field: SlotField


@dataclass
class CompiledLanguage:
    """What `Language` does with one tokenizer. Made by `CompiledLanguage.of`."""

    scaffold: Scaffold
    slots: tuple[Placed, ...]
    tokenizer: Tokenizer
    _fixed_at: tuple[int, ...] = field(init=False)
    _fixed: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._fixed_at = tuple(np.flatnonzero(~self.scaffold.is_value).tolist())
        self._fixed = tuple(self.scaffold.tokens[list(self._fixed_at)].tolist())
        # a target without a MASK of its own pads with the same token
        self._mask_is_own = self.tokenizer.mask not in (self.tokenizer.null, self.tokenizer.eos)
        self._pick = itemgetter(*self._fixed_at, -1)  # -1: a tuple even of one position

    @classmethod
    def of(cls, language: Language, tokenizer: Tokenizer) -> CompiledLanguage:
        """Tokenize the template piece by piece, so that slots begin and end between tokens."""
        tokens: list[int] = []
        allowed: list[frozenset[int] | None] = []
        slots: list[Placed] = []
        spans: list[Span] = []
        for section in language.sections:
            start = len(tokens)
            for piece in section.pieces:
                if piece.slot is None:
                    fixed = tokenizer.encode(piece.text)
                    tokens += fixed
                    allowed += [None] * len(fixed)
                    continue
                where = f"{section.name}.{piece.text}"
                filled = compile_slot(piece.slot, where, tokenizer)
                stop = len(tokens) + piece.slot.width
                slots.append(Placed(section.name, piece.text, len(tokens), stop, filled))
                frozen = filled.fixed if isinstance(filled, NumberField) else frozenset()
                for offset, choices in enumerate(filled.allowed):
                    tokens.append(next(iter(choices)) if offset in frozen else VALUE)
                    allowed.append(None if offset in frozen else choices)
            if section is language.sections[-1]:
                tokens.append(tokenizer.eos)
                allowed.append(None)
            spans.append(Span(section.name, start, len(tokens)))
            _check_length(len(tokens))
        allowed_id, allowed_sets = _allowed_rows(allowed, tokenizer.vocab)
        fixed_or_value, padding = (
            np.asarray(tokens, np.int64),
            _padding(slots, len(tokens), tokenizer),
        )
        scaffold = Scaffold(fixed_or_value, allowed_id, allowed_sets, tuple(spans), padding)
        return cls(scaffold, tuple(slots), tokenizer)

    def encode(self, values: Values) -> list[int]:
        """The output's tokens, all L of them."""
        tokens: list[int] = self.scaffold.tokens.tolist()
        for slot in self.slots:
            try:
                value = values[slot.section][slot.name]
            except (KeyError, TypeError, IndexError):
                raise bad_value(f"{slot.section}.{slot.name}", "a value", "none") from None
            tokens[slot.start : slot.stop] = slot.field.write(value)
        return tokens

    def parse(self, tokens: Sequence[int] | NDArray[np.integer]) -> Parsed:
        """The slots' values; strict, and free of searching: every slot's place is known."""
        row: list[int] = tokens.tolist() if isinstance(tokens, np.ndarray) else list(tokens or ())
        if len(row) != len(self.scaffold):
            raise ParseError(
                "wrong_length", expected=f"{len(self.scaffold)} tokens", found=str(len(row))
            )
        if self._mask_is_own and self.tokenizer.mask in row:
            at = row.index(self.tokenizer.mask)
            raise ParseError("mask_left", self._where(at), expected="a token", found="MASK")
        if self._pick(row)[:-1] != self._fixed:
            raise self._scaffold_error(row)
        parsed: Parsed = {span.name: {} for span in self.scaffold.sections}
        for slot in self.slots:
            parsed[slot.section][slot.name] = slot.field.read(row[slot.start : slot.stop])
        return parsed

    def _scaffold_error(self, row: list[int]) -> ParseError:
        at, wanted = next(
            (at, token)
            for at, token in zip(self._fixed_at, self._fixed, strict=True)
            if row[at] != token
        )
        return ParseError(
            "wrong_scaffold",
            self._where(at),
            expected=f"{self.tokenizer.decode([wanted])!r} at position {at}",
            found=self._named(row[at]),
        )

    def _named(self, token: object) -> str:
        known = type(token) is int and 0 <= token < self.tokenizer.vocab
        return repr(self.tokenizer.decode([token]) if known else token)  # type: ignore[list-item]

    def _where(self, position: int) -> str:
        for slot in self.slots:
            if slot.start <= position < slot.stop:
                return f"{slot.section}.{slot.name}"
        return self.scaffold.section_of(position).name


def _padding(slots: list[Placed], length: int, tokenizer: Tokenizer) -> Padding | None:
    """NULL pads choices and texts."""
    ends = np.full(length, -1)
    for slot in slots:
        if not isinstance(slot.field, NumberField | BinsField):
            ends[slot.start : slot.stop] = slot.stop - 1
    return Padding(tokenizer.null, ends) if (ends >= 0).any() else None


def _check_length(tokens: int) -> None:
    if tokens > LONGEST:
        raise SlipstreamError(
            "the outputs of language.json are too long",
            expected=f"at most {LONGEST} tokens",
            found=f"{tokens}, or more",
            fix="make its texts and slots shorter",
        )


def _allowed_rows(
    allowed: list[frozenset[int] | None], vocab: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Row of each position, and the different sets; row 0 allows everything."""
    rows: dict[frozenset[int] | None, int] = {None: 0}
    ids = [rows.setdefault(choices, len(rows)) for choices in allowed]
    if len(rows) * vocab > _LARGEST_SETS:
        raise SlipstreamError(
            "language.json allows too many different sets of tokens",
            expected=f"at most {_LARGEST_SETS // vocab} of {vocab} tokens",
            found=str(len(rows)),
            fix="make its choices narrower, or fewer",
        )
    sets = np.zeros((len(rows), vocab), np.bool_)
    sets[0] = True
    for choices, row in rows.items():
        if choices is not None:
            sets[row, sorted(choices)] = True
    return np.asarray(ids, np.int64), sets
