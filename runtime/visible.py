"""Text from files and arguments, made safe to show."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed


def visible(text: str) -> str:
    """The text without control characters, such as ESC, other than tab and line feed."""
    return _CONTROLS.sub("", text)
