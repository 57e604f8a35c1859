"""The command line `slipstream`: options and their help; the work is in `slipstream.commands`."""

from __future__ import annotations

import sys
from typing import NoReturn

from runtime.errors import SlipstreamError
from slipstream.cli import build, calibrate, drives, machine, plan, process, submission, train
from slipstream.cli.app import app

__all__ = ["app", "build", "calibrate", "drives", "machine", "main", "plan", "submission", "train"]


def main() -> None:
    """Entry point: a `SlipstreamError` is one message on stderr and exit code 2."""
    process.settle_streams()
    process.settle_signals()
    try:
        process.check_arguments(sys.argv[1:])
        app()
    except SlipstreamError as error:
        _leave(error)
    except OSError as error:
        # what no part foresaw, such as a name that is too long or a terminal that went away
        _leave(
            SlipstreamError(
                f"{str(error.filename or 'a file')[:120]} can't be used",
                expected="a path that this user may use, and free space",
                found=error.strerror or str(error),
                fix="check the paths of the command",
            )
        )
    except MemoryError as error:
        _leave(
            SlipstreamError(
                "the memory does not suffice",
                expected="a bundle and a drive that fit this machine",
                found=str(error) or "no more memory to be had",
                fix="close other programs, raise this process's limit (ulimit -v), or take a "
                "larger machine",
            )
        )


def _leave(error: SlipstreamError) -> NoReturn:
    process.complain(f"slipstream: {error}\n")
    sys.exit(error.exit_code)
