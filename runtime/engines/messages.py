"""TensorRT's messages. A process has one logger for each TensorRT, the first that it is given, so
every part of slipstream that uses TensorRT takes the logger from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Listener = Callable[[str, str], None]  # a severity such as "WARNING", and a message

_loggers: dict[str, Any] = {}


def logger_of(module: Any, listener: Listener | None = None) -> Any:
    """The process' logger for a TensorRT module.

    Args:
        module: `tensorrt` or `tensorrt_rtx`, imported.
        listener: takes all messages from now on, from any of TensorRT's threads; None drops them.
            What it raises can't pass through TensorRT: the first such error becomes `logger.lost`.
    """
    logger = _loggers.get(module.__name__)
    if logger is None:
        logger = _loggers[module.__name__] = _new(module)
    logger.listener, logger.lost = listener, None
    return logger


def _new(module: Any) -> Any:
    def start(self: Any) -> None:
        module.ILogger.__init__(self)
        self.listener = self.lost = None

    def write(self: Any, severity: Any, message: str) -> None:
        try:
            if self.listener is not None:
                self.listener(severity.name, message)
        except BaseException as error:
            self.lost = self.lost or error

    return type("Logger", (module.ILogger,), {"__init__": start, "log": write})()
