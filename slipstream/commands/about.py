"""`slipstream version`."""

from __future__ import annotations

from rich.console import Console

from drives.machine import this_machine


def show_versions() -> None:
    machine = this_machine()
    for name, version in machine.versions.items():
        Console(emoji=False).print(f"{name} {version}", highlight=False)
