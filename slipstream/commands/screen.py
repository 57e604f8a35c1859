"""The terminal of every command: names from files are shown as they are, never obeyed; no figure is
cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from runtime.visible import visible

ENDLESS = 10_000  # columns, more than any table has


class Screen(Console):
    """A console without markup and emoji that drops control characters such as ESC.

    Styles come from `style=` and `Text`; `[brackets]` of a name stay what they are. A table that is
    wider than the terminal wraps its cells.
    """

    def __init__(self, *, highlight: bool = True, width: int | None = None) -> None:
        super().__init__(markup=False, emoji=False, highlight=highlight, width=width)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments as rich makes them; only rich's own cursor codes pass as they are."""
        if isinstance(renderable, Table):
            width = self.width if options is None else options.max_width
            if width_of(renderable, self) > width:
                for column in renderable.columns:  # rich takes from the widest
                    column.no_wrap, column.overflow = False, "fold"
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def width_of(table: Table, console: Console) -> int:
    """Columns of a terminal in which no cell of it wraps."""
    return Measurement.get(console, console.options.update(width=ENDLESS), table).maximum


def detailed(make: Callable[[bool], Table], console: Console) -> Table:
    """A table with its details, or without where there is no room for them."""
    table = make(True)
    return table if width_of(table, console) <= console.width else make(False)


def titled_table(title: str) -> Table:
    """A table without columns yet, close set, its title at the left."""
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def labelled_table(title: str) -> Table:
    """A titled table with a column for its rows' names."""
    table = titled_table(title)
    table.add_column("", no_wrap=True)
    return table


def banner(label: str, text: str) -> Text:
    """A label that can't be overlooked, then what it means."""
    return Text.assemble((f" {label} ", "black on yellow"), f" {text}")
