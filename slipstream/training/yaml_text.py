"""YAML as configs need it: each key once, and 1e-3 is a number."""

from __future__ import annotations

import re
from typing import Any

import yaml


class TwiceError(ValueError):
    """A mapping has a key twice."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    def compose_mapping_node(self, anchor: Any) -> Any:
        """As written, before merges (<<) bring keys of other mappings in."""
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        lines: dict[tuple[str, str], int] = {}
        for key in keys:
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise TwiceError(f"{key.value} in line {lines[name]} and again in line {line}")
            lines[name] = line
        return node


# YAML 1.1 wants a dot before the exponent; YAML 1.2, JSON and people do not
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


def load(text: str) -> Any:
    """The content of a YAML document of plain values.

    Raises:
        TwiceError: a mapping has a key twice.
        Exception: anything else that Python and PyYAML do with bad text.
    """
    return yaml.load(text, Loader=_Loader)
