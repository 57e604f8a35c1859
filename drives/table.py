"""The comparison tables, once for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Protocol

from drives.results import Deadline, Decoder, Figure, Report, Settings
from runtime.settings import UNVERIFIED

DASH = "–"
KINEMATIC = "kinematic baselines, no network"


class Entrant(Protocol):
    """A decoder in a table, of one drive or of many."""

    @property
    def name(self) -> str: ...

    @property
    def reference(self) -> str: ...

    @property
    def settings(self) -> Settings: ...


@dataclass(frozen=True)
class Column:
    """A heading, and the schema field whose description says what stands below it.

    Where there is no room, details are left out, and intervals but those of key columns. Neighbours
    share the heading `over` them; `note` is small print below the title.
    """

    title: str
    field: str = ""
    over: str = ""
    note: str = ""
    detail: bool = False
    key: bool = False


@dataclass(frozen=True)
class Cell:
    """A figure and, in small print, its interval; `mark` is "better" or "worse" if it's settled."""

    text: str
    interval: str = ""
    mark: str = ""


BLANK = Cell("")  # of rows that a column does not ask for anything


@dataclass(frozen=True)
class Table:
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[str]  # one a row; a change begins a new block

    @property
    def spans(self) -> list[tuple[str, int]]:
        """Headings over the columns and how many columns each spans; empty where there are none."""
        if not any(column.over for column in self.columns):
            return []
        runs = groupby(column.over for column in self.columns)
        return [(over, len(list(run))) for over, run in runs]


def without_empty_columns(table: Table) -> Table:
    """The table without columns in which no row has anything, but for the names."""
    kept = [
        place
        for place in range(len(table.columns))
        if not place or any(row[place].text not in ("", DASH) for row in table.rows)
    ]
    rows = [[row[place] for place in kept] for row in table.rows]
    return replace(table, columns=[table.columns[place] for place in kept], rows=rows)


def speed_table(report: Report) -> Table:
    """Latency, passes and acceptance of every decoder."""
    columns = [
        Column("decoder"),
        Column("mean ms", "latency_ms", detail=True),
        Column("p50 ms", "latency_ms"),
        Column("p90"),
        Column("p99", "p99", detail=True),
        Column("in time %", "deadline"),
        Column("rollouts taken", "deadline"),
        Column("speed-up", "speedup", key=True),
        Column("TTFT ms", "ttft_ms", detail=True),
        Column("TPOT ms", "tpot_ms", detail=True),
        Column("tokens/s", "tokens_per_s", detail=True),
        Column("passes", "target_passes", detail=True),
        Column("tokens/pass", "tokens_per_pass", detail=True),
        Column("accept. length", "acceptance_length"),
        Column("accept. rate", "acceptance_rate", detail=True),
        Column("host", "host_share", detail=True),
        Column("cache MB", "cache_mb", detail=True),
        Column("device MB", "device_mb", detail=True),
        Column("same output", "identity"),
    ]
    rows = [_speed(decoder) for decoder in report.decoders]
    groups = [group_of(decoder) for decoder in report.decoders]
    return without_empty_columns(Table("Speed", columns, rows, groups))


def _speed(decoder: Decoder) -> list[Cell]:
    latency = decoder.latency_ms
    is_reference = decoder.name == decoder.reference
    return [
        Cell(decoder.name),
        estimate(latency.mean, "{:,.1f}"),
        estimate(latency.p50, "{:,.1f}"),
        Cell(f"{latency.p90:,.1f}"),
        Cell(DASH if latency.p99 is None else f"{latency.p99:,.1f}"),
        *kept_deadline(decoder.deadline),
        Cell("1×") if is_reference else _speedup(decoder.speedup),
        Cell(f"{decoder.ttft_ms:,.1f}"),
        Cell(f"{decoder.tpot_ms:.2f}"),
        Cell(f"{decoder.tokens_per_s:,.0f}"),
        Cell(f"{decoder.target_passes:.1f}"),
        Cell(DASH if decoder.tokens_per_pass is None else f"{decoder.tokens_per_pass:.2f}"),
        Cell(f"{decoder.acceptance_length:.2f}"),
        Cell(DASH if decoder.acceptance_rate is None else f"{100 * decoder.acceptance_rate:.0f} %"),
        Cell(f"{100 * decoder.host_share:.0f} %"),
        Cell(f"{decoder.cache_mb:.1f}"),
        Cell(DASH if decoder.device_mb is None else f"{decoder.device_mb:.0f}"),
        _identity(decoder),
    ]


def kept_deadline(deadline: Deadline | None) -> list[Cell]:
    """The share of frames in time, and the mean number of rollouts."""
    if deadline is None:
        return [Cell(DASH), Cell(DASH)]
    return [share(deadline.in_time), estimate(deadline.rollouts, "{:.1f}")]


def accuracy_table(report: Report) -> Table:
    """ADE and FDE of every decoder and every kinematic baseline."""
    best_3s, best_5s = report.best_kinematic(3), report.best_kinematic(5)
    columns = [
        Column("plan"),
        Column("ADE@1s m", "ade", detail=True),
        Column("ADE@3s m", "ade"),
        Column("ADE@5s m", "ade", key=True),
        Column("FDE@5s m", "fde"),
        Column("Δ ADE@5s to reference", "versus_reference", detail=True),
        Column(f"Δ ADE@5s to {best_5s.name.upper()}", "versus_kinematic", key=True),
        Column(f"Δ ADE@3s to {best_3s.name.upper()}", "versus_kinematic", detail=True),
        Column("unusable rollouts", "unusable"),
        Column("frames without plan", "frames_without_plan", detail=True),
    ]
    rows: list[list[Cell]] = []
    groups: list[str] = []
    for decoder in report.decoders:
        ade, versus = decoder.accuracy.ade, decoder.versus_kinematic
        is_reference = decoder.name == decoder.reference
        rows.append(
            [
                Cell(decoder.name),
                *(estimate(ade[t], "{:.2f}") for t in (1, 3, 5)),
                estimate(decoder.accuracy.fde[5], "{:.2f}"),
                BLANK if is_reference else difference(decoder.versus_reference.ade_5s),
                difference(versus[best_5s.name].ade_5s),
                difference(versus[best_3s.name].ade_3s),
                Cell(f"{sum(decoder.unusable.values())} of {decoder.rollouts}"),
                Cell(str(decoder.frames_without_plan)),
            ]
        )
        groups.append(group_of(decoder))
    for kinematic in report.kinematic:
        ade = kinematic.accuracy.ade
        rows.append(
            [
                Cell(kinematic.name.upper(), kinematic.label),
                *(estimate(ade[t], "{:.2f}") for t in (1, 3, 5)),
                estimate(kinematic.accuracy.fde[5], "{:.2f}"),
                *[BLANK] * 5,
            ]
        )
        groups.append(KINEMATIC)
    return without_empty_columns(Table("Accuracy", columns, rows, groups))


def readings_table(report: Report) -> Table:
    """The ways to read N rollouts, side by side on the same frames."""
    groups = [group for group in report.same_plans() if group[0].settings.rollouts > 1]
    sampled = [group[-1] for group in groups]
    names = list(sampled[0].rollout_ade_5s) if sampled else []
    titles = {**_READING, "plan": f"plan ({report.rule})"}
    columns = [Column("ADE@5s m", "rollout_ade_5s"), *(Column(titles[name]) for name in names)]
    rows = [
        [Cell(merged(group)), *(estimate(d.rollout_ade_5s[name], "{:.2f}") for name in names)]
        for group, d in zip(groups, sampled, strict=True)
    ]
    table = Table("Readings of the rollouts", columns, rows, [group_of(d) for d in sampled])
    return without_empty_columns(table)


def merged(group: Sequence[Entrant]) -> str:
    """The name of decoders whose plans are the same."""
    return " = ".join(decoder.name for decoder in group)


_READING = {
    "greedy": "greedy",
    "mean": "mean",
    "medoid": "medoid",
    "mean_of_ade": "mean of ADE",
    "min_ade": "minADE (oracle)",
}


def estimate(figure: Figure, pattern: str) -> Cell:
    """A figure with its interval in brackets."""
    if figure.value is None:
        return Cell(DASH)
    text, low, high = (
        "" if end is None else pattern.format(end).replace("-", "−")
        for end in (figure.value, figure.low, figure.high)
    )
    return Cell(text, f"{low} … {high}" if low and high else "")


def share(figure: Figure, note: str = "") -> Cell:
    """A share in per cent, and in small print its interval, or a note where it has none."""
    shown = (None if end is None else 100 * end for end in (figure.value, figure.low, figure.high))
    value, low, high = shown
    cell = estimate(Figure(value=value, low=low, high=high), "{:.1f}")
    return Cell(cell.text, note or cell.interval)


def difference(figure: Figure, *, higher_is_better: bool = False) -> Cell:
    """A paired difference; settled if its interval excludes 0."""
    if figure.value == 0 and not figure.low and not figure.high:
        return Cell("0")
    cell = estimate(figure, "{:+.3f}")
    if not figure.excludes_zero or figure.value is None:
        return cell
    better = (figure.value > 0) == higher_is_better
    return Cell(cell.text, cell.interval, "better" if better else "worse")


def _speedup(figure: Figure) -> Cell:
    cell = estimate(figure, "{:.2f}×")
    if figure.low is None or figure.high is None or figure.low <= 1 <= figure.high:
        return cell
    return Cell(cell.text, cell.interval, "better" if figure.low > 1 else "worse")


def _identity(decoder: Decoder) -> Cell:
    identity = decoder.identity
    if identity is None:
        return Cell("reference")
    text = f"{identity.identical}/{identity.rollouts}"
    if not identity.expected:
        lossy = decoder.settings.method in UNVERIFIED
        return Cell(text, "not lossless" if lossy else "not promised")
    return Cell(text, mark="better" if identity.identical == identity.rollouts else "worse")


def group_of(decoder: Entrant) -> str:
    """The conditions that decoders of one block share."""
    settings = decoder.settings
    rollouts = "1 rollout" if settings.rollouts == 1 else f"{settings.rollouts} rollouts"
    conditions = f"{rollouts}, temperature {settings.temperature:g}"
    if settings.budget_ms is None:
        return conditions
    upto = "up to " if settings.rollouts > 1 else ""
    return f"{upto}{conditions}, deadline {settings.budget_ms:g} ms"
