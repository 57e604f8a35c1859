"""Objects of a JSON file that holds one list of them, read one by one whatever its size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.errors import SlipstreamError

_PIECE = 1 << 20  # characters read at once
_LONGEST = 1 << 20  # characters of a record
_BETWEEN = " \t\r\n"


class Record:
    """One object of a table, whose values are read with their types checked."""

    def __init__(self, path: Path, place: str, values: dict[str, Any], fix: str) -> None:
        self.path, self.place, self.values, self.fix = path, place, values, fix

    def text(self, key: str) -> str:
        """A string.

        Raises:
            SlipstreamError: absent or of another type; likewise below.
        """
        value = self.values.get(key)
        if not isinstance(value, str):
            raise self.bad(f"a string {key}", value)
        return value

    def stamp(self, key: str) -> int:
        """A whole number of microseconds, at most 2**53."""
        value = self.values.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
            raise self.bad(f"a whole number {key}", value)
        return value

    def numbers(self, key: str, count: int) -> list[float]:
        """A list of `count` numbers, which may be NaN."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != count or not all(map(_is_number, value)):
            raise self.bad(f"{count} numbers {key}", value)
        return [float(each) for each in value]

    def bad(self, expected: str, found: object) -> SlipstreamError:
        """The error for this record."""
        return SlipstreamError(
            f"{self.path} record {self.place} is not of this format",
            expected=expected,
            found=repr(found)[:80],
            fix=self.fix,
        )


def records(path: Path, fix: str) -> Iterator[Record]:
    """The objects of a list, in order; no more than two pieces of the file are held.

    Raises:
        SlipstreamError: a missing file, text that is not UTF-8, or another content than a whole
            list of objects.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, value in enumerate(_values(file.read)):
                if not isinstance(value, dict):
                    raise ValueError(f"a {type(value).__name__} as record {number}")
                yield Record(path, str(number), value, fix)
    except OSError as error:
        raise _bad(path, error.strerror or str(error), fix) from error
    except RecursionError as error:
        raise _bad(path, "lists within lists without end", fix) from error
    except ValueError as error:  # of JSON and of UTF-8 too
        raise _bad(path, (str(error).splitlines() or ["bad JSON"])[0][:200], fix) from error


def _values(read: Any) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    text, position, first, ended = read(_PIECE), 0, True, False

    def skipped(position: int) -> int:
        while position < len(text) and text[position] in _BETWEEN:
            position += 1
        return position

    position = skipped(0)
    if text[position : position + 1] != "[":
        raise ValueError(f"a file that begins with {text[:20]!r}")
    position += 1
    while True:
        if len(text) - position < _LONGEST and not ended:
            more = read(_PIECE)
            ended = not more
            text, position = text[position:] + more, 0
        position = skipped(position)
        if text[position : position + 1] == "]":
            rest = text[position + 1 :].strip()
            if rest or (not ended and read(1).strip()):
                raise ValueError(f"{rest[:20]!r} behind the list")
            return
        if not first:
            if text[position : position + 1] != ",":
                raise ValueError(f"{text[position : position + 20]!r} behind a record")
            position = skipped(position + 1)
        value, position = decoder.raw_decode(text, position)
        yield value
        first = False


def _is_number(value: object) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 1 << 53
    return isinstance(value, float)


def _bad(path: Path, found: str, fix: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be read", expected="a JSON list of objects", found=found, fix=fix
    )
