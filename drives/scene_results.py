"""The schema of single frames in `report.json`: seen from above, and in the camera."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drives.figures import Strict

Point = tuple[float, float]
Line = list[Point]
Title = Literal["worst", "median", "best"]


class View(Strict):
    """A camera picture near a frame's instant, and the paths as they lie on the road in it.

    Lines are px of this picture from its top left corner. The road is taken as flat; the paths
    are moved to the picture's instant with the frame's speed and yaw rate.
    """

    camera: str
    late_ms: float = Field(description="The picture's time minus the frame's, ms.")
    width: int = Field(description="px of the embedded picture.")
    height: int
    jpeg: str = Field(description="The picture, JPEG in base64.")
    calibration: str | None = Field(
        description="Where the calibration is from and what of it is nominal; null: there is none, "
        "and nothing is drawn."
    )
    plan: list[Line] = Field(description="Visible pieces of the plan.")
    truth: list[Line] = Field(description="Of what happened.")
    rollouts: list[list[Line]] = Field(description="Of every usable rollout.")
    plan_seconds: Line = Field(description="Where the plan is at 1, 2, ... s, if in the picture.")
    truth_seconds: Line
    plan_at: list[int] = Field(
        default_factory=list, description="s of the dots in plan_seconds, in their order."
    )
    truth_at: list[int] = Field(default_factory=list, description="The same of truth_seconds.")


class Scene(Strict):
    """One frame in full, for its picture. Points are m in the ego frame, x forward, y left."""

    title: Title = Field(description="By ADE@5s of the decoder.")
    place: int = Field(description="Place of its ADE@5s among the frames with a plan; 1: worst.")
    of: int = Field(description="Frames with a plan.")
    decoder: str
    frame: int
    time: float
    intent: str
    speed: float = Field(description="m/s")
    ade_5s: float
    past: Line
    truth: Line
    plan: Line
    rollouts: list[Line] = Field(description="Usable ones.")
    baselines: dict[str, Line]
    text: str = Field(description="The first rollout's decoded output.")
    view: View | None = Field(description="Null without a camera picture near the instant.")
    note: str = Field(description="Why a drive with a camera has no picture here; or empty.")
