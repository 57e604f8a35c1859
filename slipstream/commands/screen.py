"""The terminal of every command: names from files are shown as they are, never obeyed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runtime.visible import visible


class Screen(Console):
    """A console without markup and emoji that drops control characters such as ESC.

    Styles come from `style=` and `Text`; `[brackets]` of a name stay what they are.
    """

    def __init__(self, *, highlight: bool = True, width: int | None = None) -> None:
        super().__init__(markup=False, emoji=False, highlight=highlight, width=width)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Segments as rich makes them; only rich's own cursor codes pass as they are."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def banner(label: str, text: str) -> Text:
    """A label that can't be overlooked, then what it means."""
    return Text.assemble((f" {label} ", "black on yellow"), f" {text}")
