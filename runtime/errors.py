"""The one error a user ever sees: what was wrong, what was expected, what mends it."""

from __future__ import annotations

from typing import Any

from runtime.visible import one_line

_LONGEST = 1000  # characters of a part; what is found may be as long as a file
_NO_MEMORY = ("Arena alloc failed", "bad_alloc", "bad allocation", "Failed to allocate memory")


class SlipstreamError(Exception):
    """Bad input or a broken environment; the command line prints it and exits with code 2.

    Args:
        what: the file or argument and what is wrong with it, in one sentence.
        expected: what a good value looks like.
        found: what was there instead; an empty one is told as nothing.
        fix: the command or the step that mends it.
    """

    exit_code = 2

    def __init__(self, what: str, *, expected: str = "", found: str = "", fix: str = "") -> None:
        if expected and not found.strip():
            found = repr(found) if found else "nothing"
        what, expected, found, fix = map(_shortened, (what, expected, found, fix))
        self.what, self.expected, self.found, self.fix = what, expected, found, fix
        parts = [what]
        if expected:
            parts.append(f"expected: {expected}")
        if found:
            parts.append(f"found: {found}")
        if fix:
            parts.append(f"to mend it: {fix}")
        super().__init__("\n  ".join(parts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew of its parts, by way of another process too."""
        parts = self.what, self.expected, self.found, self.fix
        return _again, (type(self), *parts), self.__dict__


def _again(
    kind: type[SlipstreamError], what: str, expected: str, found: str, fix: str
) -> SlipstreamError:
    error = kind.__new__(kind)  # whose own arguments may be others
    SlipstreamError.__init__(error, what, expected=expected, found=found, fix=fix)
    return error


def _shortened(text: str) -> str:
    """One line; what is wrong with a long thing stands behind it, so the middle is left out."""
    text = one_line(text)
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2 - 3
    return f"{text[:half]} ... {text[-half:]}"


class BundleError(SlipstreamError):
    """A bundle's manifest or one of its files is missing, altered or of another version."""


class EngineError(SlipstreamError):
    """An engine can't be loaded, or does not fit its manifest or its inputs."""


class SettingsError(SlipstreamError):
    """A setting of decoding has the wrong type or is out of range."""


class CacheFullError(SlipstreamError):
    """A pass needs more cache rows than the bundle's limits allow."""


def check_memory(error: Exception) -> None:
    """Raises: MemoryError: a library says in words of its own that there was none to be had."""
    if isinstance(error, MemoryError) or any(word in str(error) for word in _NO_MEMORY):
        raise MemoryError(str(error)[:300]) from error
