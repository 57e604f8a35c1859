"""The summary of many drives in the terminal."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from rich.console import Console

from slipstream.commands.screen import banner, detailed
from slipstream.commands.terminal import rich_table
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
    drives = drives_table(summary)
    worst = replace(drives, rows=drives.rows[:SHOWN], groups=drives.groups[:SHOWN])
    for table in (pooled_table(summary), worst):
        console.print(detailed(partial(rich_table, table), console))
    more = len(drives.rows) - len(worst.rows)
    note = f"; {more} more drives are on the page" if more > 0 else ""
    of = "1 drive" if len(summary.drives) == 1 else f"{len(summary.drives)} drives"
    console.print(f"{summary.frames} frames of {of}{note}", style="dim")
