"""The report's tables and verdicts in the terminal."""

from __future__ import annotations

import textwrap
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drives import table as tables
from drives.overview_table import overview_table
from drives.results import Report
from drives.verdicts import replayed, training_frames, verdicts
from slipstream.commands.screen import banner, detailed, titled_table

_MARKS = {"better": "green", "worse": "red", "": ""}


def show_report(report: Report, console: Console) -> None:
    """Print the comparison tables, then what they say."""
    if report.drive.synthetic:
        console.print(banner("SYNTHETIC DRIVE", "errors say nothing about real roads"))
    if trained := training_frames(report):
        seen = f"the bundle was trained on {trained} of these {report.frames} frames"
        console.print(banner("TRAINING DATA", seen))
    for make in (tables.speed_table, tables.accuracy_table, overview_table):
        console.print(detailed(partial(rich_table, make(report)), console))
    intervals = any(decoder.latency_ms.mean.low is not None for decoder in report.decoders)
    note = "; below a figure: its 95 % interval" if intervals else ""
    console.print(f"{replayed(report)} of {report.drive.name}{note}", style="dim")
    for sentence in verdicts(report):
        console.print(f"• {sentence}", highlight=False)


def rich_table(table: tables.Table, everything: bool) -> Table:
    """A table for the terminal; without room, details are left out."""
    shown = [i for i, column in enumerate(table.columns) if everything or not column.detail]
    rich = titled_table(table.title)
    for i in shown:
        heading = "\n".join(textwrap.wrap(table.columns[i].title, 9 if everything else 8))
        rich.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for index, row in enumerate(table.rows):
        ends = index + 1 == len(table.rows) or table.groups[index] != table.groups[index + 1]
        cells = [_cell(row[i], everything or table.columns[i].key) for i in shown]
        if not everything:  # a name stands on more lines before a figure has to
            cells[0] = Text(row[0].text.replace(":", ":\n"))
        rich.add_row(*cells, end_section=ends)
    return rich


def _cell(cell: tables.Cell, interval: bool) -> Text:
    text = Text(cell.text, style=_MARKS[cell.mark])
    return text.append(f"\n{cell.interval}", "dim") if interval and cell.interval else text
