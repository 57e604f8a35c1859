"""What a planner says: sections in order, each a template of fixed text with typed slots."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic_core import from_json

from planners.compiled import CompiledLanguage, Parsed, Values
from planners.fields import ParseError, ParseKind
from planners.slots import Choice, Number, Slot, Strict, Text
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.scaffold import Scaffold

__all__ = [
    "Choice",
    "Language",
    "Number",
    "ParseError",
    "ParseKind",
    "Parsed",
    "Section",
    "Slot",
    "Text",
    "Values",
]

LANGUAGE_VERSION = 1
WAYPOINTS = 5  # at 1..5 s
_PLACEHOLDER = re.compile(r"<([a-z_][a-z0-9_]*)>")
_FIX = "copy language.json from the bundle again, or write it with this version: Language.save"


@dataclass(frozen=True)
class Piece:
    """Part of a template: fixed text, or a slot and its name."""

    text: str
    slot: Choice | Text | Number | None = None


class Section(Strict):
    """A template such as `"speed": <speed>, ` in which `<speed>` stands for slots["speed"]."""

    name: str = Field(pattern=r"^[a-z_][a-z0-9_]*$")
    template: str
    slots: dict[str, Slot] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _slots_are_placed(self) -> Section:
        placed = _PLACEHOLDER.findall(self.template)
        if sorted(placed) != sorted(self.slots):
            raise ValueError(
                f"section {self.name}: the template names the slots {sorted(placed)}, "
                f"but there are {sorted(self.slots)}"
            )
        if not self.template:
            raise ValueError(f"section {self.name} has an empty template")
        return self

    @property
    def pieces(self) -> list[Piece]:
        """Fixed texts and slots, in order."""
        parts = _PLACEHOLDER.split(self.template)  # text, name, text, name, ..., text
        pieces = []
        for index, part in enumerate(parts):
            if index % 2:
                pieces.append(Piece(part, self.slots[part]))
            elif part:
                pieces.append(Piece(part))
        return pieces


class Language(Strict):
    """An output schema, `language.json`. The end-of-text token follows the last section.

    The section `fork_section` is where rollouts part; its number slots x1, y1 .. x5, y5 are the
    waypoints at 1..5 s in metres (x forward, y left).
    """

    version: Literal[1] = LANGUAGE_VERSION  # type: ignore[assignment]
    name: str
    fork_section: str = "trajectory"
    sections: tuple[Section, ...] = Field(min_length=1)

    _compiled: WeakKeyDictionary[Tokenizer, CompiledLanguage] = PrivateAttr(
        default_factory=WeakKeyDictionary
    )

    @model_validator(mode="after")
    def _fork_has_waypoints(self) -> Language:
        names = [section.name for section in self.sections]
        if len(set(names)) != len(names):
            raise ValueError(f"section names repeat: {names}")
        if self.fork_section not in names:
            raise ValueError(f"fork_section {self.fork_section!r} is none of {names}")
        slots = self.sections[names.index(self.fork_section)].slots
        for name in _waypoint_names():
            if not isinstance(slots.get(name), Number):
                raise ValueError(f"section {self.fork_section} has no number slot {name}")
        return self

    @classmethod
    def load(cls, path: str | Path) -> Language:
        """Read `language.json`.

        Raises:
            SlipstreamError: missing, not JSON, another version, an unknown key or a bad value.
        """
        path = Path(path)
        version, raw = _read(path)
        if version != LANGUAGE_VERSION:
            raise SlipstreamError(
                f"{path} has an unknown version",
                expected=f"version {LANGUAGE_VERSION}",
                found=f"version {version!r}",
                fix=_FIX,
            )
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file as a whole"
            raise SlipstreamError(
                f"{path}: {where} is not valid",
                expected=first["msg"],
                found=repr(first.get("input"))[:120],
                fix=_FIX,
            ) from error

    def save(self, path: str | Path) -> None:
        """Write `language.json`, whole or not at all."""
        text = json.dumps(self.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
        write_atomic(Path(path), text + "\n")

    def compiled(self, tokenizer: Tokenizer) -> CompiledLanguage:
        """The tables for one tokenizer, made once."""
        compiled = self._compiled.get(tokenizer)
        if compiled is None:
            compiled = self._compiled[tokenizer] = CompiledLanguage.of(self, tokenizer)
        return compiled

    def compile(self, tokenizer: Tokenizer) -> Scaffold:
        """The scaffold: fixed tokens, value positions with their allowed sets, section spans.

        Raises:
            SlipstreamError: the tokenizer merges digits, or an option is wider than its slot.
        """
        return self.compiled(tokenizer).scaffold

    def encode(self, values: Values, tokenizer: Tokenizer) -> list[int]:
        """The tokens of an output, `values[section][slot]`; numbers are rounded to their digits.

        Raises:
            SlipstreamError: a value is missing or does not fit its slot.
        """
        return self.compiled(tokenizer).encode(values)

    def parse(self, tokens: Sequence[int] | NDArray[np.integer], tokenizer: Tokenizer) -> Parsed:
        """The values of an output, `parsed[section][slot]`.

        Args:
            tokens: [L], the end-of-text token included.
            tokenizer: the one they are of.

        Raises:
            ParseError: the tokens are anything but an output of this language.
        """
        return self.compiled(tokenizer).parse(tokens)

    def waypoints(self, parsed: Mapping[str, Mapping[str, str | float]]) -> NDArray[np.float64]:
        """[5, 2] m at 1..5 s (x forward, y left) of a parsed output."""
        section = parsed[self.fork_section]
        flat = [float(section[name]) for name in _waypoint_names()]
        return np.array(flat, np.float64).reshape(WAYPOINTS, 2)


def _waypoint_names() -> list[str]:
    return [f"{axis}{second}" for second in range(1, WAYPOINTS + 1) for axis in "xy"]


def _read(path: Path) -> tuple[object, Any]:
    if not path.is_file():
        raise SlipstreamError(
            f"{path} is missing", expected="a language.json", found="no file", fix=_FIX
        )
    try:
        raw = from_json(path.read_bytes())
    except (ValueError, OSError) as error:
        raise SlipstreamError(
            f"{path} can't be read", expected="JSON text", found=str(error), fix=_FIX
        ) from error
    return (raw.get("version") if isinstance(raw, dict) else None), raw
