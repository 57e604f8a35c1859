"""The summary's page: one HTML file that links to the drives' reports and to nothing else."""

from __future__ import annotations

from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from drives.leaderboard_tables import sections
from drives.page import meanings as report_meanings
from drives.report import PAGE
from slipstream.fleet.summary_results import DriveFigures, DriveResult, PooledDecoder, Summary
from slipstream.fleet.tables import drives_table, pooled_table


def summary_page(summary: Summary) -> str:
    """`index.html` of a run as text; everything in it comes from the summary."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("slipstream.fleet"), PackageLoader("drives")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    table = drives_table(summary)
    worst = max((_error(drive) for drive in summary.drives), default=0.0) or 1.0
    return environment.get_template("summary.html").render(
        summary=summary,
        report=summary,
        boards=summary.leaderboards,
        sections=sections(summary),
        featured=summary.decoders[-1],
        pooled=pooled_table(summary),
        columns=table.columns,
        drives=[
            (quote(f"{drive.folder}/{PAGE}"), row, 100 * _error(drive) / worst)
            for drive, row in zip(summary.drives, table.rows, strict=True)
        ],
        synthetic=sum(drive.synthetic for drive in summary.drives),
        trained=sum(drive.trained_frames for drive in summary.drives),
        hours=sum(drive.duration_s for drive in summary.drives) / 3600,
        kilometres=sum(drive.length_m for drive in summary.drives) / 1000,
        meaning=meanings(),
    )


def meanings() -> dict[str, str]:
    """Field -> its convention, from the schema's own descriptions."""
    own = {
        name: field.description
        for model in (DriveResult, DriveFigures, PooledDecoder)
        for name, field in model.model_fields.items()
        if field.description
    }
    return {**report_meanings(), **own}


def _error(drive: DriveResult) -> float:
    return drive.figures[-1].ade_5s or 0.0
