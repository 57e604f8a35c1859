"""Matplotlib as our pictures need it: they are drawn to files, whatever the environment says of it.

Who draws imports from here, and `check_page` before the work: what can't be drawn is told then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.errors import SlipstreamError

__all__ = ["Canvas", "MaxNLocator", "rc_context"]

_BACKEND, _FOLDER = "MPLBACKEND", "MPLCONFIGDIR"
_BASES = {"XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache"}


@contextmanager
def _own_environment() -> Iterator[None]:
    """No backend for windows, and a folder that matplotlib, which trusts all paths, can look up."""
    before = {name: os.environ.get(name) for name in (_BACKEND, _FOLDER)}
    os.environ.pop(_BACKEND, None)  # the import alone fails on a name that it does not know
    spare = "" if _folders_are_paths() else tempfile.mkdtemp(prefix="slipstream-matplotlib-")
    if spare:
        os.environ[_FOLDER] = spare
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if spare:
            shutil.rmtree(spare, ignore_errors=True)


def _folders_are_paths() -> bool:
    """Whether matplotlib's settings and fonts have folders that are no loops of links."""
    if named := os.environ.get(_FOLDER):
        folders = [Path(named)]
    else:
        home = Path(os.path.expanduser("~"))
        folders = [
            Path(os.environ.get(name) or home / below) / "matplotlib"
            for name, below in _BASES.items()
        ]
    try:
        for folder in folders:
            folder.resolve()
    except (OSError, RuntimeError):
        return False
    return True


try:
    with _own_environment():
        from matplotlib import rc_context
        from matplotlib.figure import Figure as Canvas
        from matplotlib.ticker import MaxNLocator
except Exception as error:  # a settings file that is no text, a build for another numpy, ...
    raise SlipstreamError(
        "matplotlib, which draws the pictures, can't be imported",
        expected="a whole installation, and settings that it can read",
        found=f"{type(error).__name__}: {error}"[:300],
        fix="pip install --force-reinstall matplotlib; or remove a file matplotlibrc from this "
        "folder, and unset MATPLOTLIBRC",
    ) from error
