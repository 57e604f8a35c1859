"""`slipstream compare`: read the config, run the comparison, show and write what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from runtime.errors import SlipstreamError
from runtime.files import check_writable, write_atomic
from slipstream.commands.screen import Screen, titled_table, width_of
from slipstream.commands.session import progress_bar
from slipstream.commands.train import enough_memory, need_torch

if TYPE_CHECKING:
    from slipstream.compare.table import Table as Found

PAGE, PICTURE, MARKDOWN = "index.html", "compare.png", "compare.md"


@dataclass(frozen=True)
class Request:
    """The options of `slipstream compare`, as given."""

    config: Path
    out: Path
    jobs: int
    threads: int
    against: Path | None
    only: tuple[str, ...] = ()


def run_compare(request: Request) -> int:
    """Compare, and write `compare.json`, `compare.md`, `compare.png` and `index.html`.

    Returns:
        0, or 1 where a proof failed or a figure left the interval of `against`.

    Raises:
        SlipstreamError: no torch, a bad config, checkpoint or drive, or a folder that can't be
            written.
    """
    need_torch()
    from slipstream.compare.agreement import agreements, read_comparison
    from slipstream.compare.config import only_entries, read_compare_config
    from slipstream.compare.page import page
    from slipstream.compare.picture import picture
    from slipstream.compare.results import COMPARE
    from slipstream.compare.run import Comparing
    from slipstream.compare.table import short_table, tables, verdicts

    console = Screen()
    config = read_compare_config(request.config)
    if request.only:
        config = only_entries(request.config, config, request.only)
    check_writable(request.out, folder=True)
    _check_folder(request.out, COMPARE)
    other = read_comparison(request.against) if request.against else None
    comparing = Comparing(
        request.config,
        config,
        request.out,
        lambda what, total: progress_bar(console, what, total),
    )
    with enough_memory():
        comparison = comparing.run(request.jobs, request.threads)
    drawn = picture(comparison)
    found = tables(comparison)
    said = verdicts(comparison)
    text = "\n".join([*(f"- {line}" for line in said), "", *(t.markdown() for t in found)])
    write_atomic(request.out / COMPARE, comparison.model_dump_json(indent=1))
    write_atomic(request.out / PICTURE, drawn)
    write_atomic(request.out / MARKDOWN, text)
    write_atomic(request.out / PAGE, page(comparison, drawn))
    every = [_rich(table) for table in found]
    wide = all(width_of(table, console) <= console.width for table in every)
    for table in every if wide else [_rich(short_table(comparison))]:
        console.print(table)
    if not wide:
        console.print("seeds' spread, sections, places, studies: on the page", style="dim")
    for line in said:
        console.print(f"• {line}", highlight=False)
    console.print(Text.assemble("\nreport: ", (str(request.out / PAGE), "bold")), soft_wrap=True)
    proven = all(entry.proof is None or entry.proof.passed for entry in comparison.entries)
    if other is None:
        return 0 if proven else 1
    pairs = agreements(comparison, other)
    if not pairs:
        raise SlipstreamError(
            f"{request.against} has nothing in common with this comparison",
            expected="entries of the same names",
            found=", ".join(entry.name for entry in other.entries)[:200],
            fix="name the compare.json of the same config",
        )
    apart = [pair for pair in pairs if not pair.agrees]
    console.print(f"{len(pairs) - len(apart)} of {len(pairs)} figures agree with {request.against}")
    for pair in apart:
        here, there = pair.here.value, pair.there.value
        console.print(f"• {pair.drafter}, {pair.figure}: {here:.2f} here, {there:.2f} there")
    return 0 if proven and not apart else 1


def _check_folder(out: Path, result: str) -> None:
    """Insist that no page or picture of something else would be replaced."""
    others = [name for name in (PAGE, PICTURE, MARKDOWN) if (out / name).exists()]
    if others and not (out / result).is_file():
        raise SlipstreamError(
            f"{out} can't take a comparison",
            expected=f"a new folder, or that of an earlier comparison, with {result}",
            found=", ".join(others),
            fix="name another folder with -o",
        )


def _rich(table: Found) -> Table:
    rich = titled_table(table.title)
    for index, column in enumerate(table.columns):
        rich.add_column(Text(column), justify="right" if index else "left", no_wrap=True)
    for row in table.rows:
        rich.add_row(*(Text(cell) for cell in row))
    return rich
