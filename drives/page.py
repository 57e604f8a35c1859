"""The report's page: one HTML file without anything outside of it."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drives import leaderboard_results as boards
from drives import pictures
from drives.figures import Strict
from drives.leaderboard_tables import sections
from drives.results import Accuracy, Decoder, Latency, Report
from drives.scene_picture import bird_eye, ending, numbered
from drives.scenes import APART_S
from drives.table import accuracy_table, readings_table, speed_table
from drives.verdicts import (
    featured,
    headlines,
    intervals,
    replayed,
    to_beat,
    training_frames,
    verdicts,
)


def page(report: Report) -> str:
    """`index.html` as text; everything in it comes from the report."""
    environment = Environment(
        loader=PackageLoader("drives"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = {
        "frontier": pictures.frontier(report),
        "latency": pictures.latency(report),
        "stages": pictures.stages(report),
        "acceptance": pictures.acceptance(report),
        "horizons": pictures.horizons(report),
    }
    return environment.get_template("report.html").render(
        report=report,
        featured=featured(report),
        headlines=headlines(report),
        verdicts=verdicts(report),
        training_frames=training_frames(report),
        replayed=replayed(report),
        intervals=intervals(report),
        to_beat=to_beat(report),
        speed=speed_table(report),
        accuracy=accuracy_table(report),
        readings=readings_table(report),
        boards=report.leaderboards,
        sections=sections(report),
        pictures={name: Markup(svg) for name, svg in drawn.items()},
        scenes=[(scene, Markup(bird_eye(scene)), ending(scene)) for scene in report.scenes],
        numbered=numbered,
        apart_s=APART_S,
        stages=pictures.shown_stages(report),
        meaning=meanings(),
    )


def meanings() -> dict[str, str]:
    """Field -> its convention, from the schema's own descriptions."""
    models: tuple[type[Strict], ...] = (Decoder, Accuracy)
    found = {
        name: field.description
        for model in models
        for name, field in model.model_fields.items()
        if field.description
    }
    for board, rows in _BOARDS.items():
        for name, field in rows.model_fields.items():
            found[f"{board}.{name}"] = field.description or ""
    p99 = Latency.model_fields["p99"].description or ""
    return {**found, "latency_ms": (Latency.__doc__ or "").strip(), "p99": p99}


_BOARDS: dict[str, type[Strict]] = {
    "best_of": boards.BestOf,
    "calibration": boards.Calibration,
    "nuscenes": boards.L2Row,
    "collisions": boards.CollisionRow,
    "comfort": boards.ComfortRow,
    "wod": boards.WodRow,
}
