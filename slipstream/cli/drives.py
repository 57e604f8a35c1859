"""Commands about recorded drives."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.app import app
from slipstream.cli.options import Topics

drives = typer.Typer(help="Recorded drives: list, look at, fetch.", no_args_is_help=True)
app.add_typer(drives, name="drives")


@drives.command("list")
def drives_list() -> None:
    """Drives known by name."""
    from slipstream.commands.drives import show_drives

    show_drives()


@drives.command("info")
def drives_info(
    path: Annotated[str, typer.Argument(help="A drive's name or path.")],
    topic: Topics = None,
) -> None:
    """What a drive holds, and what in it deserves a second look."""
    from drives.open import with_topics
    from slipstream.commands.drives import show_drive

    show_drive(with_topics(path, topic or ()))


@drives.command("fetch")
def drives_fetch(name: Annotated[str, typer.Argument(help="A name from the list.")]) -> None:
    """Bring a drive that slipstream may not ship into the user's cache."""
    from slipstream.commands.drives import fetch_drive

    fetch_drive(name)
