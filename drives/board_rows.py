"""What the leaderboards' tables share: who stands in which row, and the paired differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from drives.baselines import BASELINES
from drives.leaderboard_results import LOG, Compared, Leaderboards
from drives.table import (
    BLANK,
    DASH,
    KINEMATIC,
    Cell,
    Column,
    Entrant,
    Table,
    difference,
    group_of,
    merged,
)

DRIVEN = "what was driven"
METRES = "{:.2f}"


class Named(Protocol):
    """A row of a leaderboard."""

    @property
    def name(self) -> str: ...


class Boarded(Protocol):
    """What stands on the leaderboards: a report of one drive, or a summary of many."""

    @property
    def leaderboards(self) -> Leaderboards: ...

    @property
    def kinematic(self) -> Sequence[Named]: ...

    def same_plans(self) -> Sequence[Sequence[Entrant]]:
        """Decoders grouped by equal plans."""


Row = TypeVar("Row", bound=Named)


@dataclass(frozen=True)
class Section:
    """One metric's table, and its convention in a sentence or two."""

    table: Table
    text: str


def frames(count: int) -> str:
    """So many frames, in words."""
    return "1 frame" if count == 1 else f"{count} frames"


def board_rows(
    report: Boarded, rows: Sequence[Row], cells: Callable[[Row], list[Cell]]
) -> tuple[list[list[Cell]], list[str]]:
    """Cells and blocks: decoders with the same plans in one row, then baselines, then the log."""
    known = {row.name: row for row in rows}
    shown, groups = [], []
    for decoders in report.same_plans():
        if decoders[0].name in known:
            shown.append([Cell(merged(decoders)), *cells(known[decoders[-1].name])])
            groups.append(group_of(decoders[0]))
    for baseline in report.kinematic:
        if baseline.name in known:
            shown.append([Cell(baseline.name.upper()), *cells(known[baseline.name])])
            groups.append(KINEMATIC)
    if LOG in known:
        shown.append([Cell("log"), *cells(known[LOG])])
        groups.append(DRIVEN)
    return shown, groups


def difference_columns(
    report: Boarded, board: str, over: str, rows: Sequence[Compared]
) -> list[Column]:
    """The paired differences that say something here."""
    other = next((row.to_kinematic.other for row in rows if row.to_kinematic), None)
    found = []
    if _has_reference(report):
        found.append(Column("to reference", f"{board}.to_reference", over=over))
    if other:
        found.append(Column(f"to {other.upper()}", f"{board}.to_kinematic", over=over))
    return found


def to_kinematic(rows: Sequence[Compared], figure: str) -> str:
    """Which baseline the differences are to, in a sentence behind others; "" without any.

    Args:
        figure: in which that baseline is the best; another may be in another table.
    """
    other = next((row.to_kinematic.other for row in rows if row.to_kinematic), None)
    if other is None:
        return ""
    label = BASELINES[other].label
    return f" Differences are to {other.upper()} ({label}), here the best baseline in {figure}."


def differences(report: Boarded, row: Compared, *, higher_is_better: bool = False) -> list[Cell]:
    """The cells of `difference_columns`."""
    return [
        BLANK if apart is None else difference(apart.value, higher_is_better=higher_is_better)
        for apart, shown in (
            (row.to_reference, _has_reference(report)),
            (row.to_kinematic, bool(report.leaderboards.frames)),
        )
        if shown
    ]


def _has_reference(report: Boarded) -> bool:
    """Whether some decoder's plans differ from those of its reference."""
    return any(
        decoder.reference not in {peer.name for peer in group}
        for group in report.same_plans()
        for decoder in group
    )


def plain_number(value: float | None) -> Cell:
    """A figure that has no interval."""
    return Cell(DASH if value is None else METRES.format(value))
