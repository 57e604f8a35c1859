"""`slipstream version` and `slipstream --version`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:  # run from a source tree
        return "source"


def show_versions() -> None:
    """Versions of slipstream and of what it runs on."""
    from drives.machine import this_machine
    from slipstream.commands.screen import Screen

    machine = this_machine()
    for name, found in machine.versions.items():
        Screen().print(f"{name} {found}", highlight=False)
