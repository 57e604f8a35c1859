"""Reading a config: YAML or TOML, checked field by field."""

from __future__ import annotations

import json
import reprlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from drives.readers.text import read_text
from runtime.errors import SlipstreamError
from runtime.visible import is_text, spelled
from slipstream.training.config import (
    BlockDrafterConfig,
    DrafterConfig,
    EagleConfig,
    SelfDraftConfig,
    TargetConfig,
)

_Model = TypeVar("_Model", bound=BaseModel)

_KINDS = ("dflash", "dflare", "eagle3", "self")
_FIX = "see docs/training.md for every field and its default"
_LARGEST = 1 << 20  # bytes of a config
_DEEPEST, _MOST = 50, 100_000  # levels and values, those of YAML's aliases counted each time


def read_target_config(path: Path) -> TargetConfig:
    """Read and check the config of a target.

    Raises:
        SlipstreamError: no such file, neither YAML nor TOML, an unknown key or a bad value.
    """
    return validated(path, TargetConfig, load_config(path))


def read_drafter_config(path: Path) -> DrafterConfig:
    """Read and check the config of a drafter; raises as `read_target_config`."""
    return checked_drafter_config(path, load_config(path))


def checked_drafter_config(path: Path, raw: dict[str, Any]) -> DrafterConfig:
    """Check a drafter's fields, which come from `path`; raises as `read_target_config`."""
    drafter = raw.setdefault("drafter", {})
    if not isinstance(drafter, dict):
        raise _wrong(path, "drafter", "fields such as kind, layers and taps", drafter)
    kind = drafter.setdefault("kind", "dflash")
    if kind not in _KINDS:
        raise _wrong(path, "drafter.kind", " or ".join(_KINDS), kind)
    if kind == "eagle3":
        return validated(path, EagleConfig, raw)
    if kind == "self":
        return validated(path, SelfDraftConfig, raw)
    return validated(path, BlockDrafterConfig, raw)


def load_config(path: Path) -> dict[str, Any]:
    """The fields of a YAML or TOML file; raises as `read_target_config`."""
    readers = {".yaml": _yaml, ".yml": _yaml, ".toml": _toml}
    text = read_text(path, largest=_LARGEST, fix="name a config such as configs/tiny/drafter.yaml")
    if path.suffix not in readers:
        raise SlipstreamError(
            f"{path} has an unknown ending",
            expected=", ".join(readers),
            found=path.suffix or "none",
            fix="rename the config to what it holds",
        )
    raw = readers[path.suffix](path, text)
    if not isinstance(raw, dict):
        raise SlipstreamError(
            f"{path} holds no fields",
            expected="a mapping of field to value",
            found=type(raw).__name__,
            fix=_FIX,
        )
    _check_values(path, raw)
    return raw


def _check_values(path: Path, raw: dict[str, Any]) -> None:
    """Plain values, and not too many: aliases of aliases make a few lines of YAML grow."""
    left: list[tuple[Any, int]] = [(raw, 0)]
    seen = 0
    while left:
        value, depth = left.pop()
        seen += 1
        if seen > _MOST or depth > _DEEPEST:
            raise SlipstreamError(
                f"{path} is no config",
                expected=f"at most {_MOST} values, {_DEEPEST} levels deep",
                found="more, when all aliases are written out",
                fix="write the fields out without aliases (*name)",
            )
        if not isinstance(value, str | int | float | list | dict | None):
            raise _odd(path, str(value), f"a {type(value).__name__}")
        if isinstance(value, dict):
            if odd := [key for key in value if not isinstance(key, str)]:
                raise _odd(path, str(odd[0]), f"a {type(odd[0]).__name__} as a field's name")
            _check_text(path, value)
            value = list(value.values())
        if isinstance(value, str):
            _check_text(path, [value])
        if isinstance(value, list):
            left += [(each, depth + 1) for each in value]


def _check_text(path: Path, texts: Iterable[str]) -> None:
    """Escapes can spell what no file's name holds, and what no log or manifest can say."""
    for text in texts:
        if not is_text(text):
            raise SlipstreamError(
                f"{path}: '{spelled(text)[:60]}' is no text",
                expected="characters of Unicode, without NUL",
                found="an escape of another code, such as \\ud800 or \\0",
                fix="write the name without such escapes",
            )


def _odd(path: Path, value: str, found: str) -> SlipstreamError:
    """Of what YAML and TOML make a date, a set or bytes."""
    return SlipstreamError(
        f"{path}: {value[:60]} is no value of a config",
        expected="text, numbers, true, false, null, and lists and mappings of them",
        found=found,
        fix=f'write it as text, in quotes: "{value[:60]}"',
    )


def _yaml(path: Path, text: str) -> Any:
    try:
        from slipstream.training import yaml_text
    except ImportError as error:
        raise SlipstreamError(
            f"{path} is YAML, which needs the Python package pyyaml",
            expected="an installed pyyaml",
            found=str(error),
            fix="pip install 'slipstream[train]', or write the config as TOML",
        ) from error
    try:
        return yaml_text.load(text)
    except yaml_text.TwiceError as error:
        raise SlipstreamError(
            f"{path} gives a field twice",
            expected="each field once",
            found=str(error)[:300],
            fix="remove one of the two",
        ) from error
    except Exception as error:  # a value that its tag does not fit raises whatever Python does
        raise _not(path, "YAML", error) from error


def _toml(path: Path, text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # endless digits and brackets among them
        raise _not(path, "TOML", error) from error


def _not(path: Path, language: str, error: Exception) -> SlipstreamError:
    return SlipstreamError(
        f"{path} is no {language}",
        expected=f"a config in {language}",
        found=" ".join(str(error).split())[:300] or type(error).__name__,
        fix=f"mend its syntax and its values; {_FIX}",
    )


def validated(path: Path, model: type[_Model], raw: dict[str, Any]) -> _Model:
    """The model of a config's fields; raises as `read_target_config`."""
    try:
        # as JSON, in which text is a path and a list a tuple, but "2" and true are no numbers
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(place) for place in first["loc"] if _is_field(place))
        kind, message = first["type"], first["msg"]
        for opening in ("Value error, ", "Input should be "):
            message = message.removeprefix(opening)
        if kind == "missing":
            raise _wrong(path, field, "a value", "nothing") from error
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            raise _wrong(path, field, "no such field", first["input"], unknown=True) from error
        raise _wrong(path, field or "the config", message, first["input"]) from error


def _is_field(place: str | int) -> bool:
    """Not the name of a branch of a union, such as `dflash`, `int` or `tuple[...]`."""
    if isinstance(place, int):
        return True
    return place.isidentifier() and place not in (*_KINDS, "int", "str", "path")


def _wrong(
    path: Path, field: str, expected: str, found: Any, unknown: bool = False
) -> SlipstreamError:
    shown = found if isinstance(found, str) else reprlib.repr(found)
    return SlipstreamError(
        f"{path}: {field} is {'unknown' if unknown else 'not valid'}",
        expected=expected,
        found=shown if len(shown) <= 200 else shown[:200] + " ...",
        fix=f"remove {field}, or {_FIX}" if unknown else f"change {field}; {_FIX}",
    )
