"""Libraries of the extras, imported when a recording or a file for a viewer needs them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from runtime.errors import SlipstreamError

INSTALL = "pip install '.[drives]' in slipstream's folder"


def library(module: str, what: str, *, act: str = "read", fix: str = INSTALL) -> ModuleType:
    """Import a library that only some recordings need.

    Args:
        module: what to import, e.g. `pyarrow.parquet`.
        what: what needs it, in a few words.
        act: what is done to that: read, written.
        fix: how to install it.

    Raises:
        SlipstreamError: it can't be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise SlipstreamError(
            f"{what} can't be {act} without the Python package {module.partition('.')[0]}",
            expected=f"an installed {module.partition('.')[0]}",
            found=str(error),
            fix=fix,
        ) from error
