"""The schema of `summary.json`: every drive of a run, and all frames of all of them together."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drives.deadline import Deadline
from drives.figures import Figure, Strict
from drives.leaderboard_results import Leaderboards
from drives.results import Asked, BundleInfo, Settings

SUMMARY_VERSION = 1


class DriveFigures(Strict):
    """One decoder on one drive, over the drive's frames."""

    decoder: str
    ade_3s: float | None = Field(description="m, over the drive's compared frames.")
    ade_5s: float | None
    fde_5s: float | None
    latency_p50_ms: float
    speedup: float | None = Field(description="Median over frames of reference / this one.")
    acceptance_length: float = Field(description="Tokens committed per verification round.")
    frames_without_plan: int


class DriveResult(Strict):
    """A drive with its report."""

    given: str = Field(description="As it was named on the command line or in a list.")
    folder: str = Field(description="Of its report, in the folder of this file.")
    name: str
    key: str = Field(description="Of the recording.")
    synthetic: bool
    frames: int
    trained_frames: int = Field(description="Frames that the bundle was trained on, by its record.")
    duration_s: float
    length_m: float
    kinematic: str = Field(description="The baseline with the least ADE@5s on this drive.")
    kinematic_ade_5s: float | None
    figures: list[DriveFigures]


class FailedDrive(Strict):
    """A drive without a report."""

    given: str
    error: str


class PooledDecoder(Strict):
    """One decoder over all frames of all drives; intervals by drive."""

    name: str
    settings: Settings
    reference: str = Field(description="The decoder that it is compared with.")
    latency_ms: Figure = Field(description="Mean, observation to plan.")
    latency_p50_ms: Figure = Field(description="Of the median frame.")
    deadline: Deadline | None = Field(
        default=None,
        description="Share of the frames within the deadline, and rollouts decoded a frame; null: "
        "no deadline was given.",
    )
    speedup: Figure = Field(
        description="Median over all frames of the reference's latency / this one's on the frame."
    )
    target_passes: Figure = Field(description="Target passes a frame, the prefill excluded.")
    acceptance_length: Figure = Field(
        description="Tokens committed per verification round, over all rounds of all drives."
    )
    ade_3s: Figure = Field(
        description="m, open loop against the log, over the compared frames of all drives."
    )
    ade_5s: Figure
    fde_5s: Figure
    ade_5s_to_reference: Figure = Field(description="Paired on the frame; negative is better.")
    ade_5s_to_kinematic: Figure = Field(
        description="Paired with the baseline that is best over all drives; negative is better."
    )
    frames_without_plan: int


class PooledKinematic(Strict):
    """A kinematic baseline over the same frames."""

    name: str
    ade_3s: Figure
    ade_5s: Figure
    fde_5s: Figure


class ByDrive(Strict):
    """How the intervals were made: whole drives are drawn, since frames of one are alike."""

    drives: int
    resamples: int
    seed: int


class Summary(Strict):
    """`summary.json`."""

    version: Literal[1] = SUMMARY_VERSION  # type: ignore[assignment]
    created: str = Field(description="UTC, ISO 8601.")
    command: str
    bundle: BundleInfo
    rule: str = Field(description="How rollouts become one trajectory.")
    asked: Asked
    threads: int | None = Field(description="Engine threads of each worker.")
    frames: int = Field(description="Of all drives.")
    compared: int = Field(description="Those of them on which every decoder has a plan.")
    intervals: ByDrive
    decoders: list[PooledDecoder] = Field(min_length=1)
    kinematic: list[PooledKinematic] = Field(description="The best at 5 s first.")
    same: list[list[str]] = Field(
        description="Decoders grouped by equal plans on every frame of every drive."
    )
    leaderboards: Leaderboards = Field(description="Over all frames; intervals by drive.")
    drives: list[DriveResult] = Field(
        description="The worst first, by ADE@5s of the last decoder.", min_length=1
    )
    failed: list[FailedDrive]

    def same_plans(self) -> list[list[PooledDecoder]]:
        """Decoders grouped by equal plans on every frame of every drive."""
        known = {decoder.name: decoder for decoder in self.decoders}
        return [[known[name] for name in group] for group in self.same]
