"""The comparison's page: one HTML file without anything outside of it."""

from __future__ import annotations

import base64

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from slipstream.compare.results import Comparison
from slipstream.compare.table import tables, verdicts


def page(comparison: Comparison, picture: bytes) -> str:
    """`index.html` as text.

    Args:
        picture: PNG, put into the page.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("slipstream.compare"), PackageLoader("drives")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("compare.html").render(
        comparison=comparison,
        tables=tables(comparison),
        verdicts=verdicts(comparison),
        picture=base64.b64encode(picture).decode("ascii"),
    )
