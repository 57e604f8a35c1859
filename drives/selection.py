"""Which windows of a drive to replay: up to `60` evenly spread, or `0:200:4` by number."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drives.windows import Window
from runtime.errors import SlipstreamError

_EXPECTED = "a count such as 60, or a range of window numbers such as 0:200 or 0:200:4"


@dataclass(frozen=True)
class Selection:
    """At most `count` windows, evenly spread, or the range start:stop:step (stop exclusive)."""

    text: str
    count: int | None = None
    start: int = 0
    stop: int = 0
    step: int = 1

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Read a selection, without a drive at hand.

        Raises:
            SlipstreamError: no number, a count or step below 1, or an empty range.
        """
        parts = text.split(":")
        if len(parts) > 3 or not all(_is_number(part) for part in parts):
            raise _bad(text, _EXPECTED)
        numbers = [int(part) for part in parts]
        if len(numbers) == 1:
            if numbers[0] < 1:
                raise _bad(text, "at least 1 frame")
            return cls(text, count=numbers[0])
        step = numbers[2] if len(numbers) == 3 else 1
        if step < 1 or numbers[0] >= numbers[1]:
            raise _bad(text, "START:STOP or START:STOP:STEP, START below STOP and STEP at least 1")
        return cls(text, start=numbers[0], stop=numbers[1], step=step)

    def of(self, windows: Sequence[Window], drive: str) -> list[Window]:
        """The selected windows; of a count, as many as the drive has.

        Args:
            drive: what a command calls it: `Drive.place`.

        Raises:
            SlipstreamError: the drive has no window, or a range reaches beyond the last one.
        """
        if not windows:
            raise SlipstreamError(
                f"drive {drive} has no window to plan from",
                expected="somewhere 4 s of history and 5 s of future without a gap",
                found="none",
                fix=f"slipstream drives info {shlex.quote(drive)} says what its windows lack",
            )
        if self.count is None and self.stop > len(windows):
            raise _bad(
                self.text,
                f"at most the {len(windows)} windows of drive {drive}",
                f"--frames {len(windows)}, or --frames 0:{len(windows)}",
            )
        if self.count is None:
            return list(windows[self.start : self.stop : self.step])
        count = min(self.count, len(windows))
        spread = np.linspace(0, len(windows) - 1, count).round().astype(int)
        return [windows[i] for i in spread]


def _is_number(text: str) -> bool:
    return text.isascii() and text.strip().isdecimal() and len(text) < 18


def _bad(text: str, expected: str, fix: str = "") -> SlipstreamError:
    return SlipstreamError(
        "--frames can't be used",
        expected=expected,
        found=text[:60],
        fix=fix or "see `slipstream run --help`",
    )
