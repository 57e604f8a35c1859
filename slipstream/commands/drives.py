"""`slipstream drives`: list, info, fetch."""

from __future__ import annotations

from rich.table import Table

from drives.drive import Drive, ImageReferences
from drives.fetch import fetch
from drives.formats import FORMATS
from drives.images import read_image
from drives.info import describe
from drives.open import format_of, list_drives, open_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from slipstream.commands.screen import Screen


def show_drives() -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("drive", "on this machine", "licence", "what"):
        table.add_column(heading, no_wrap=heading == "drive")
    for drive in list_drives():
        there = "yes" if drive.available else f"no: slipstream drives fetch {drive.name}"
        table.add_row(drive.name, there, drive.licence, drive.what)
    formats = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("or a path in this format", "PATH", "what is read"):
        formats.add_column(heading)
    for each in FORMATS:
        formats.add_row(each.name, each.path, each.what)
    Screen().print(table, "", formats)


def show_drive(path: str) -> None:
    drive = open_drive(path)
    info = describe(drive)
    cut = windows(drive)
    skipped = "; ".join(f"{reason}: {count}" for reason, count in cut.skipped.most_common())
    facts = {
        "drive": info.name + (" (SYNTHETIC)" if info.synthetic else ""),
        "format": format_of(path),
        "source": info.source,
        "licence": info.licence,
        "samples": f"{info.samples:,} at {info.rate_hz:.2f} Hz",
        "duration": f"{info.duration:.1f} s",
        "distance": f"{info.distance:,.1f} m",
        "speed": f"{_tenths(info.speed_min)} to {_tenths(info.speed_max)} m/s, "
        f"mean {_tenths(info.speed_mean)}",
        "standing": f"{100 * info.stationary_share:.0f} % of the samples",
        "gaps": ", ".join(f"{length:.1f} s at {start:.1f} s" for start, length in info.gaps[:8])
        or "none",
        "windows": f"{len(cut)} {_kind(drive)}" + (f"; left out: {skipped}" if skipped else ""),
    }
    if rated := [window.rated for window in cut if window.rated]:
        scores = sum(len(each.scores) for each in rated)
        facts["rated"] = f"{len(rated)} of the windows, by {scores} trajectories with scores"
    if info.label_frames:
        facts["labelled"] = f"road users at {info.label_frames} instants"
    if drive.images:
        facts["cameras"] = ", ".join(_camera(each) for each in drive.images)
    if info.commands:
        facts["commands"] = ", ".join(f"{name}: {n}" for name, n in info.commands.items())
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, text in facts.items():
        table.add_row(name, text)
    for warning in info.warnings:
        table.add_row("look at", warning, style="yellow")
    Screen().print(table)


def _camera(images: ImageReferences) -> str:
    """Its frames, and their size as `export --camera` takes it, where the first can be read."""
    said = f"{images.camera}: {len(images.times)} frames"
    if not len(images.times):
        return said
    try:
        height, width = read_image(images.paths[0]).shape[:2]
    except SlipstreamError:  # a library is missing, or the file: `run` says so
        return said
    return f"{said} of {width}x{height}"


def _tenths(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # no -0.0


def _kind(drive: Drive) -> str:
    return "at 4 Hz" if drive.recorded is None else "as the data set cut them"


def fetch_drive(name: str) -> None:
    Screen().print(str(fetch(name)), highlight=False, soft_wrap=True)
