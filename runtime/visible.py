"""Text from files and arguments, made safe to show."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

_NO_TEXT = re.compile(r"[\x00\ud800-\udfff]")  # Python's surrogates stand for bytes, too


def visible(text: str) -> str:
    """The text without control characters, such as ESC, other than tab and line feed."""
    return _CONTROLS.sub("", text)


def one_line(text: str) -> str:
    """The text with escapes for what ends a line or is no character, such as `\\n` and `\\x1b`."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def is_text(text: str) -> bool:
    """Whether UTF-8 can say it and a path can hold it: no lone surrogate, no NUL."""
    return not _NO_TEXT.search(text)


def spelled(text: str) -> str:
    """A text that is none, with escapes for what is no character."""
    return visible(text.encode("utf-8", "backslashreplace").decode())
