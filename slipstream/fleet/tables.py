"""The tables of a summary, once for its page and for the terminal."""

from __future__ import annotations

from collections import Counter

from drives.figures import Figure
from drives.table import (
    BLANK,
    DASH,
    KINEMATIC,
    Cell,
    Column,
    Table,
    difference,
    estimate,
    group_of,
    kept_deadline,
    without_empty_columns,
)
from slipstream.fleet.summary_results import DriveResult, PooledDecoder, Summary

METRES = "{:.2f}"


def pooled_table(summary: Summary) -> Table:
    """Every decoder and baseline over all frames of all drives."""
    best = summary.kinematic[0].name.upper()
    columns = [
        Column("plan"),
        Column("p50 ms", "latency_p50_ms"),
        Column("mean ms", "latency_ms", detail=True),
        Column("in time %", "deadline"),
        Column("rollouts taken", "deadline"),
        Column("speed-up", "speedup", key=True),
        Column("passes", "target_passes", detail=True),
        Column("accept. length", "acceptance_length", detail=True),
        Column("ADE@3s m", "ade_3s", detail=True),
        Column("ADE@5s m", "ade_3s", key=True),
        Column("FDE@5s m", "ade_3s", detail=True),
        Column("Δ ADE@5s to reference", "ade_5s_to_reference", detail=True),
        Column(f"Δ ADE@5s to {best}", "ade_5s_to_kinematic", key=True),
        Column("no plan", "frames_without_plan", detail=True),
    ]
    rows = [_decoder(decoder) for decoder in summary.decoders]
    groups = [group_of(decoder) for decoder in summary.decoders]
    for each in summary.kinematic:
        errors = [estimate(figure, METRES) for figure in (each.ade_3s, each.ade_5s, each.fde_5s)]
        rows.append([Cell(each.name.upper()), *[BLANK] * 7, *errors, *[BLANK] * 3])
        groups.append(KINEMATIC)
    return without_empty_columns(Table("All drives", columns, rows, groups))


def drives_table(summary: Summary) -> Table:
    """Every drive, the worst first, by the featured decoder."""
    columns = [
        Column("drive"),
        Column("frames"),
        Column("km", detail=True),
        Column("ADE@3s m", "ade_3s", detail=True),
        Column("ADE@5s m", "ade_3s"),
        Column("best baseline m", "kinematic", key=True),
        Column("p50 ms", "latency_p50_ms"),
        Column("speed-up", "speedup"),
        Column("accept. length", "acceptance_length"),
        Column("no plan", "frames_without_plan", detail=True),
    ]
    names = Counter(drive.name for drive in summary.drives)
    rows = [_drive(drive, alike=names[drive.name] > 1) for drive in summary.drives]
    featured = summary.decoders[-1].name
    return Table(f"Drives, worst first: {featured}", columns, rows, [""] * len(rows))


def _decoder(decoder: PooledDecoder) -> list[Cell]:
    is_reference = decoder.name == decoder.reference
    return [
        Cell(decoder.name),
        estimate(decoder.latency_p50_ms, "{:,.1f}"),
        estimate(decoder.latency_ms, "{:,.1f}"),
        *kept_deadline(decoder.deadline),
        Cell("1×") if is_reference else _ratio(decoder.speedup),
        estimate(decoder.target_passes, "{:.1f}"),
        estimate(decoder.acceptance_length, "{:.2f}"),
        *(estimate(each, METRES) for each in (decoder.ade_3s, decoder.ade_5s, decoder.fde_5s)),
        BLANK if is_reference else difference(decoder.ade_5s_to_reference),
        difference(decoder.ade_5s_to_kinematic),
        Cell(str(decoder.frames_without_plan)),
    ]


def _drive(drive: DriveResult, *, alike: bool) -> list[Cell]:
    own = drive.figures[-1]
    small = [drive.folder] if alike else []
    small += ["synthetic"] if drive.synthetic else []
    return [
        Cell(drive.name, ", ".join(small)),
        Cell(str(drive.frames), f"{seen} trained on" if (seen := drive.trained_frames) else ""),
        Cell(f"{drive.length_m / 1000:.1f}"),
        _number(own.ade_3s, METRES),
        _number(own.ade_5s, METRES),
        Cell(_text(drive.kinematic_ade_5s, METRES), drive.kinematic.upper()),
        Cell(f"{own.latency_p50_ms:,.1f}"),
        Cell("1×") if len(drive.figures) == 1 else _number(own.speedup, "{:.2f}×"),
        Cell(f"{own.acceptance_length:.2f}"),
        Cell(str(own.frames_without_plan)),
    ]


def _ratio(figure: Figure) -> Cell:
    """A ratio of times; settled if its interval excludes 1."""
    cell = estimate(figure, "{:.2f}×")
    if figure.low is None or figure.high is None or figure.low <= 1 <= figure.high:
        return cell
    return Cell(cell.text, cell.interval, "better" if figure.low > 1 else "worse")


def _number(value: float | None, pattern: str) -> Cell:
    return Cell(_text(value, pattern))


def _text(value: float | None, pattern: str) -> str:
    return DASH if value is None else pattern.format(value)
