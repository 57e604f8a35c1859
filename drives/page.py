"""The report's page: one HTML file without anything outside of it."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from drives import pictures
from drives.results import Accuracy, Decoder, Latency, Report, Strict
from drives.table import accuracy_table, readings_table, speed_table
from drives.verdicts import featured, headlines, training_frames, verdicts


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
        speed=speed_table(report),
        accuracy=accuracy_table(report),
        readings=readings_table(report),
        pictures={name: Markup(svg) for name, svg in drawn.items()},
        scenes=[(scene, Markup(pictures.bird_eye(scene))) for scene in report.scenes],
        stages=list(pictures.STAGE),
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
    p99 = Latency.model_fields["p99"].description or ""
    return {**found, "latency_ms": (Latency.__doc__ or "").strip(), "p99": p99}
