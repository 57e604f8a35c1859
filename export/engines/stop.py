"""Signals that come while TensorRT works: its bindings drop what a Python handler raises inside a
callback, so the handlers wait until TensorRT is out of the way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Which signal came, if any."""

    def __init__(self) -> None:
        self.number: int | None = None

    def __bool__(self) -> bool:
        return self.number is not None

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal handler that only remembers."""
        self.number = number


@contextmanager
def held_signals() -> Iterator[Stop]:
    """Hold Ctrl-C, SIGTERM and SIGHUP back inside the block; their handlers run when it ends.

    Whoever works inside looks at the `Stop` and leaves early. Signals that Python does not handle,
    and those of other threads than the main one, stay as they are.
    """
    stop, handlers = Stop(), {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, stop.note)
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, handler in handlers.items():
            if number == stop.number:
                handler(number, None)
