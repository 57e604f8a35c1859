"""What a process is given before any command begins: its streams, its signals, its arguments."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from runtime.errors import SlipstreamError
from runtime.visible import is_text, visible


def settle_streams() -> None:
    """Output that a stream's encoding lacks, or that nobody takes, must not lose what was done."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us
            setattr(sys, name, _nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace" if name == "stdout" else "backslashreplace")


def settle_signals() -> None:
    """Signals that ask for an end; a hangup is none where it was to be ignored, as by nohup."""
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _stop)


def check_arguments(words: Sequence[str]) -> None:
    """Insist on text: reports, manifests and graphs name what they were made of in UTF-8.

    Raises:
        SlipstreamError: naming the argument.
    """
    for word in words:
        if not is_text(word):
            shown = os.fsencode(word).decode("utf-8", "backslashreplace")
            raise SlipstreamError(
                f"the argument '{visible(shown)}' is no text",
                expected=f"names in {sys.getfilesystemencoding()}, the encoding of this locale",
                found="bytes of another encoding",
                fix="rename what it names, or name a link to it; or set the locale that the name "
                "is written in, such as LC_ALL=C.UTF-8",
            )


def complain(text: str) -> None:
    """Write to stderr, where that can be written to: the exit code tells the rest."""
    try:
        sys.stderr.write(visible(text))
        sys.stderr.flush()
    except OSError:
        sys.stderr = _nowhere()  # what it still holds would fail again at the end


def _nowhere() -> io.TextIOWrapper:
    return open(os.devnull, "w", encoding="utf-8")


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave through every `finally`, so that nothing half-written stays."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a lost terminal sends more than one
    raise SystemExit(128 + number)
