"""The summary of many drives in the terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from slipstream.commands.screen import banner
from slipstream.commands.terminal import WIDE, rich_table
from slipstream.fleet.summary_results import Summary
from slipstream.fleet.tables import drives_table, pooled_table

SHOWN = 12  # drives; the page has all of them


def show_summary(summary: Summary, console: Console) -> None:
    """Print the pooled figures and the worst drives."""
    if made_up := sum(drive.synthetic for drive in summary.drives):
        told = f"{made_up} of {len(summary.drives)}: errors say nothing about real roads"
        console.print(banner("SYNTHETIC DRIVES", told))
    if trained := sum(drive.trained_frames for drive in summary.drives):
        told = f"the bundle was trained on {trained} of these {summary.frames} frames"
        console.print(banner("TRAINING DATA", told))
    everything = console.width >= WIDE
    console.print(rich_table(pooled_table(summary), everything))
    table = drives_table(summary)
    rows = table.rows[:SHOWN]
    console.print(rich_table(replace(table, rows=rows, groups=table.groups[:SHOWN]), everything))
    more = len(table.rows) - len(rows)
    note = f"; {more} more drives are on the page" if more > 0 else ""
    drives = "1 drive" if len(summary.drives) == 1 else f"{len(summary.drives)} drives"
    console.print(f"{summary.frames} frames of {drives}{note}", style="dim")
