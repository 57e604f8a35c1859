"""The schema of `sweep.json`: every figure of a sweep, with its convention in its description."""

from __future__ import annotations

from pydantic import Field

from drives.results import (
    BundleInfo,
    DriveInfo,
    Figure,
    Machine,
    Paired,
    Sampling,
    Strict,
    Training,
)

SWEEP_VERSION = 2


class Reading(Strict):
    """One ADE of N rollouts, m; `rollout_figures` says how each is read."""

    plan: Figure = Field(description="Of the plan, under the sweep's rule.")
    mean: Figure = Field(description="Of the rollouts' mean trajectory.")
    medoid: Figure = Field(description="Of the rollout nearest to the others.")
    mean_of_ade: Figure = Field(description="Mean of the rollouts' own ADEs: what one sample has.")
    min_ade: Figure = Field(description="The best rollout's, an oracle that knows the truth.")


class Point(Strict):
    """N rollouts at one temperature."""

    name: str
    rollouts: int
    temperature: float
    unusable: int = Field(description="Rollouts that no plan used, over all frames.")
    frames_without_plan: int = Field(description="Nobody's errors have them; never zeros.")
    ade_3s: Reading
    ade_5s: Reading
    fde_5s: Figure = Field(description="Of the plan, m.")
    min_fde_5s: Figure = Field(description="Least FDE of the N rollouts, an oracle, m.")
    miss_rate_5s: Figure = Field(description="Frames whose N rollouts all end over 2 m away.")
    versus_greedy: Paired = Field(description="The plan against the greedy plan, frame by frame.")
    mean_versus_greedy: Paired = Field(
        description="The rollouts' mean trajectory against the greedy plan, frame by frame."
    )
    medoid_versus_greedy: Paired = Field(
        description="The rollouts' medoid against the greedy plan, frame by frame."
    )
    versus_kinematic: Paired = Field(
        description="The plan against the kinematic baseline with the least ADE@5s here."
    )
    spread_5s: Figure = Field(description="Root mean square distance from the mean at 5 s, m.")
    energy_score_5s: Figure = Field(
        description="Proper score of the rollouts as a forecast at 5 s (fair form), m; lower is "
        "better, and for one rollout it is the FDE."
    )
    spread_ratio_5s: float | None = Field(
        description="Spread / error of the mean at 5 s; 1 is honest, below it the rollouts are "
        "too sure. Null below two rollouts."
    )
    coverage_5s: dict[str, dict[str, float]] = Field(
        description="along and across the path -> nominal share -> share of the truths inside."
    )
    rfs: Figure | None = Field(
        description="Rater Feedback Score of the plan, mean over the rated frames; null: none."
    )
    rfs_of_one: Figure | None = Field(description="Mean of the rollouts' own scores.")
    rfs_versus_greedy: Figure | None = Field(description="Higher is better here.")
    latency_ms: Figure = Field(description="Mean observation to plan.")
    latency_p50_ms: Figure = Field(description="Of the median frame.")
    cost: Figure = Field(description="Median over the frames of latency / the greedy latency.")
    cost_of_one: Figure | None = Field(
        description="Median over the frames of latency / the latency of one rollout at the same "
        "temperature; null without one in the sweep."
    )
    cache_of_one: float | None = Field(
        description="cache_mb / that of one rollout at the same temperature."
    )
    target_passes: float = Field(description="Target passes a frame, the prefill excluded.")
    cache_mb: float = Field(description="Most key/value memory of a frame, 10^6 bytes.")


class Kinematic(Strict):
    name: str
    label: str
    ade_3s: Figure
    ade_5s: Figure
    rfs: Figure | None


class Scaling(Strict):
    """Everything that a sweep measured."""

    version: int = SWEEP_VERSION
    created: str
    command: str
    machine: Machine
    bundle: BundleInfo
    drives: list[DriveInfo]
    training: dict[str, Training] = Field(
        description="Drive -> what the bundle's record says of it, where it names its data set."
    )
    method: str
    accept: str = Field(
        description="coupled: a rollout does not depend on how many there are, so each curve's "
        "smaller N are the first rollouts of its larger ones."
    )
    rule: str = Field(description="How rollouts became a plan.")
    top_k: int
    top_p: float
    seed: int
    frames: int
    compared: int = Field(
        description="Frames on which every setting has a plan. All errors, scores and spreads are "
        "over these, the baselines' too; latencies are over all frames."
    )
    rated_frames: int = Field(description="Of the compared ones, those that raters scored.")
    skipped: dict[str, int] = Field(description="Why windows could not be used -> how many.")
    intervals: Sampling
    wall_s: float
    greedy: Point = Field(description="The honest baseline: one output at temperature 0.")
    points: list[Point]
    kinematic: list[Kinematic] = Field(description="Baselines on the same frames.")

    @property
    def best_kinematic(self) -> Kinematic:
        """The baseline with the least ADE@5s."""
        return min(self.kinematic, key=lambda k: _number(k.ade_5s))

    def curves(self) -> dict[float, list[Point]]:
        """Temperature -> its points, by number of rollouts."""
        found: dict[float, list[Point]] = {}
        for point in sorted(self.points, key=lambda p: (p.temperature, p.rollouts)):
            found.setdefault(point.temperature, []).append(point)
        return found


def _number(value: Figure) -> float:
    return float("inf") if value.value is None else value.value
