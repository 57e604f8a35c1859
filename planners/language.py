"""What a planner says: sections in order, each a template of fixed text with typed slots."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from planners.actions import Codebook, Unicycle
from planners.compiled import CompiledLanguage, Parsed, Values
from planners.fields import ParseError, ParseKind
from planners.motions import Motion
from planners.observation import FUTURE_STATES
from planners.slots import Bins, Choice, Number, Slot, Strict, Text
from planners.small_files import exists, small_file
from planners.text_waypoints import SpeedCurvature, Waypoints
from planners.tokens import Tokenizer
from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.json_text import model_of, parsed
from runtime.scaffold import Scaffold
from runtime.strict import One

__all__ = [
    "Bins",
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
Floats = NDArray[np.float64]
_PLACEHOLDER = re.compile(r"<([a-z_][a-z0-9_]*)>")
_FIX = "copy language.json from the bundle again, or write it with this version: Language.save"


@dataclass(frozen=True)
class Piece:
    """Part of a template: fixed text, or a slot and its name."""

    text: str
    slot: Choice | Text | Number | Bins | None = None


class Section(Strict):
    """A template such as `"speed": <speed>, ` in which `<speed>` stands for slots["speed"]."""

    name: str = Field(pattern=r"^[a-z_][a-z0-9_]*$", max_length=1 << 6)
    template: str = Field(max_length=1 << 16)
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

    The section `fork_section` is where rollouts part; its slots say where the vehicle will be.

    Attributes:
        motion: what those slots are and how they become a trajectory. Without it they are x1, y1 ..
            x5, y5: waypoints at 1..5 s in metres (x forward, y left).
    """

    version: One = LANGUAGE_VERSION  # type: ignore[assignment]
    name: str = Field(max_length=1 << 8)
    fork_section: str = "trajectory"
    motion: Motion | None = None
    sections: tuple[Section, ...] = Field(min_length=1, max_length=1 << 8)

    _compiled: WeakKeyDictionary[Tokenizer, CompiledLanguage] = PrivateAttr(
        default_factory=WeakKeyDictionary
    )

    @model_validator(mode="after")
    def _fork_has_the_motions_slots(self) -> Language:
        names = [section.name for section in self.sections]
        if len(set(names)) != len(names):
            raise ValueError(f"section names repeat: {names}")
        if self.fork_section not in names:
            raise ValueError(f"fork_section {self.fork_section!r} is none of {names}")
        slots = self.sections[names.index(self.fork_section)].slots
        for name in self.moves.slots:
            if not isinstance(slots.get(name), Number | Bins):
                raise ValueError(f"section {self.fork_section} has no number slot {name}")
        if isinstance(self.moves, Codebook):
            self._check_entries(self.moves)
        return self

    def _check_entries(self, codebook: Codebook) -> None:
        """Insist on a bin for each entry: no token of the slots may mean none, or another one."""
        slots = self._fork.slots
        last = len(codebook.moves) - 1
        for name in codebook.slots:
            slot = slots[name]
            if not isinstance(slot, Bins) or (slot.low, slot.high, slot.count) != (
                0,
                last,
                last + 1,
            ):
                raise ValueError(f"slot {name} needs a bin for each of the {last + 1} moves")

    @property
    def moves(self) -> Waypoints | SpeedCurvature | Unicycle | Codebook:
        """The motion, also where the file does not name one."""
        return self.motion or Waypoints()

    @property
    def pads(self) -> bool:
        """Whether NULL pads a slot: choices and texts, never numbers and bins."""
        slots = (slot for section in self.sections for slot in section.slots.values())
        return any(isinstance(slot, Choice | Text) for slot in slots)

    @property
    def _fork(self) -> Section:
        return next(each for each in self.sections if each.name == self.fork_section)

    @classmethod
    def load(cls, path: str | Path) -> Language:
        """Read `language.json`.

        Raises:
            SlipstreamError: missing, not JSON, another version, an unknown key or a bad value.
        """
        path = Path(path)
        version, text = _read(path)
        if version != LANGUAGE_VERSION:
            raise SlipstreamError(
                f"{path} has an unknown version",
                expected=f"version {LANGUAGE_VERSION}",
                found=f"version {version!r}",
                fix=_FIX,
            )
        try:
            return model_of(cls, text)
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
        content = self.model_dump(mode="json", exclude=None if self.motion else {"motion"})
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
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

    def trajectory(
        self, parsed: Mapping[str, Mapping[str, str | float]], v0: float, a0: float
    ) -> Floats:
        """[20, 2] m at 4 Hz (x forward, y left) of a parsed output.

        Args:
            v0: m/s, the speed now; a0: m/s², the acceleration now, both along x.
        """
        section = parsed[self.fork_section]
        numbers = np.array([float(section[name]) for name in self.moves.slots])
        return self.moves.trajectory(numbers, v0, a0)

    def motion_values(self, future: Floats, v0: float, a0: float) -> dict[str, str | float]:
        """The fork section's values that say a driven path [20, 2] m at 4 Hz: training labels.

        They are clipped to what their slots hold.

        Raises:
            SlipstreamError: another shape, NaN, or the motion's steps don't fit a path of 5 s.
        """
        path = np.asarray(future, np.float64)
        if path.shape != (FUTURE_STATES, 2) or not np.isfinite([*path.flat, v0, a0]).all():
            raise SlipstreamError(
                "a path can't be said in the language's motion",
                expected=f"finite numbers of shape [{FUTURE_STATES}, 2], m at 4 Hz",
                found=f"shape {list(path.shape)}, or numbers that are not finite",
                fix="leave out the frame, or mend its path",
            )
        numbers = self.moves.values(path, v0, a0)
        said: dict[str, str | float] = {}
        for name, number in zip(self.moves.slots, numbers, strict=True):
            slot = self._fork.slots[name]
            assert isinstance(slot, Number | Bins)
            said[name] = slot.clip(float(number))
        return said

    def waypoints(self, parsed: Mapping[str, Mapping[str, str | float]]) -> Floats:
        """[K, 2] m of a parsed output whose motion is waypoints: [5, 2] at 1..5 s, usually."""
        section = parsed[self.fork_section]
        assert isinstance(self.moves, Waypoints), "this language has no waypoints"
        return np.array([float(section[name]) for name in self.moves.slots]).reshape(-1, 2)


def _read(path: Path) -> tuple[object, bytes]:
    """The version that it says, and the whole."""
    if not exists(path):
        raise SlipstreamError(
            f"{path} is missing", expected="a language.json", found="no file", fix=_FIX
        )
    try:
        text = small_file(path, 1 << 26)
        raw = parsed(text)
    except (ValueError, OSError) as error:
        raise SlipstreamError(
            f"{path} can't be read", expected="JSON text", found=str(error), fix=_FIX
        ) from error
    return (raw.get("version") if isinstance(raw, dict) else None), text
