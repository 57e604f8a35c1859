"""How an output's numbers become a trajectory: one of four kinds, named in `language.json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planners.actions import Codebook, Unicycle
from planners.text_waypoints import SpeedCurvature, Waypoints

Motion = Annotated[Waypoints | SpeedCurvature | Unicycle | Codebook, Field(discriminator="kind")]
