"""JSON that people and other programs wrote: nothing of it is read as something else, or twice."""

from __future__ import annotations

import codecs
import json
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

_Model = TypeVar("_Model", bound=BaseModel)


def parsed(data: bytes | str) -> Any:
    """The content of a JSON text, with or without a byte order mark.

    Raises:
        ValueError: no JSON, bottomless nesting, half a character, or an object with a key twice.
    """
    text = _without_mark(data)
    content = from_json(text)
    json.loads(text, object_pairs_hook=_once)  # from_json takes the last of two
    return content


def model_of(kind: type[_Model], data: bytes | str) -> _Model:
    """A JSON text as a model, each value of its field's own type: no "2" for 2, no true for 1.

    Raises:
        ValueError: as `parsed`.
        pydantic.ValidationError: it does not fit the model.
    """
    parsed(data)
    return kind.model_validate_json(_without_mark(data), strict=True)


def _without_mark(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return raw.removeprefix(codecs.BOM_UTF8)


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"the key {name[:60]!r} is there twice")
        seen.add(name)
