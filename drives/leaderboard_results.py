"""The schema of the leaderboards' figures in `report.json`, each with its convention.

Every table is over the same frames for all of its rows: those on which every decoder has a plan.
Names in the rows are those of decoders, of kinematic baselines, and `log` for the recorded future.
"""

from __future__ import annotations

from pydantic import Field

from drives.figures import Figure, Strict

LOG = "log"


class Difference(Strict):
    """A paired difference, on the frames that both have."""

    other: str
    frames: int
    value: Figure = Field(description="This one's minus the other's.")


class Compared(Strict):
    """A row's paired differences in its table's main figure; null where there is no other."""

    to_reference: Difference | None = Field(
        description="The decoder's minus its reference's; null for references and baselines."
    )
    to_kinematic: Difference | None = Field(
        description="The decoder's minus that of the kinematic baseline which is best in this "
        "figure here; null for baselines and the log."
    )


class BestOf(Strict):
    """The best of k rollouts, an oracle that knows the truth, at 5 s, without unusable ones."""

    name: str
    k: int = Field(description="Rollouts asked for; a baseline has one.")
    usable: float | None = Field(
        default=None,
        description="Usable rollouts a frame, the mean; minima are over these. Null in reports "
        "that did not count them.",
    )
    min_ade_5s: Figure = Field(
        description="minADE-k, m: the least ADE@5s of the k rollouts. Not Argoverse's, which is "
        "the ADE of the rollout with the least FDE."
    )
    min_fde_5s: Figure = Field(
        description="minFDE-k, m: the least distance at 5 s. Argoverse 2 reads it at 6 s."
    )
    brier_min_fde_5s: Figure = Field(
        description="brier-minFDE-k, m: minFDE + (1 - p)²; rollouts are samples, so p = 1/k, "
        "unusable ones counted, and a single trajectory pays nothing (Argoverse 2)."
    )
    miss_rate_5s: Figure = Field(
        description="Miss rate@k: share of the frames whose usable rollouts all end over 2 m from "
        "the truth at 5 s."
    )
    spread_5s: Figure = Field(
        description="Root mean square distance of the rollouts from their mean at 5 s, m."
    )
    energy_score_5s: Figure = Field(
        description="Energy score at 5 s, m, in its fair form; lower is better, only the true "
        "distribution is best, and for one trajectory it is the FDE."
    )


class Calibration(Strict):
    """Whether the truth looks like one more rollout, at 5 s; decoders with two or more."""

    name: str
    frames: int = Field(description="With at least two usable rollouts.")
    spread_ratio: float | None = Field(
        description="Spread / error of the mean; 1 is honest, below it the rollouts are too sure."
    )
    along: dict[str, float] = Field(
        description="Nominal central share -> share of the truths inside, along the path."
    )
    across: dict[str, float] = Field(description="The same beside the path.")


class L2Row(Compared):
    """One row of the L2 table; differences are in the average of L2 at 1, 2, 3 s."""

    name: str
    at: dict[int, Figure] = Field(
        description="L2 at t (UniAD): horizon in s -> mean distance of the point at t, m."
    )
    at_average: Figure = Field(description="Average of L2 at 1, 2 and 3 s, m.")
    up_to: dict[int, Figure] = Field(
        description="L2 averaged up to t (ST-P3, VAD): horizon in s -> mean distance of the points "
        "every 0.5 s up to t, m."
    )
    up_to_average: Figure = Field(description="Average of the three: averaged twice, m.")


class NuscenesL2(Strict):
    """nuScenes open-loop L2 in both conventions; never compare across them."""

    policy: str = Field(
        description="drop-frame: frames without a complete future are left out (VAD). UniAD keeps "
        "them and counts the missing points as no error."
    )
    frames: int = Field(
        description="Frames in the means: windows of this replay, not nuScenes' 2 Hz key frames."
    )
    cut_off: int = Field(description="Windows left out since their future is cut off.")
    rows: list[L2Row]


class CollisionRow(Strict):
    name: str
    at: dict[int, Figure] = Field(
        description="Horizon in s -> share of the judged frames that collide at t (UniAD)."
    )
    hits: dict[int, int] = Field(description="Horizon in s -> frames that collide at t.")
    judged: dict[int, int] = Field(description="Horizon in s -> frames judged at t.")
    up_to: dict[int, Figure] = Field(
        description="Horizon in s -> mean share of the judged steps up to t that collide; steps "
        "are 0.5 s apart (ST-P3, VAD)."
    )


class Collisions(Strict):
    """Overlap of the ego box, carried along a plan, with labelled boxes of all classes.

    Boxes are exact rectangles, not a grid. Agents don't react. Frames whose logged ego box overlaps
    an agent's at t are label noise and are judged for the log alone, which shows how many they are.
    """

    ego: str = Field(description="Outline of the vehicle.")
    labelled: dict[int, int] = Field(description="Horizon in s -> frames with labels near t.")
    rows: list[CollisionRow]


class ComfortRow(Strict):
    name: str
    comfortable: Figure = Field(description="Share inside of all six bounds of nuPlan.")
    outside: dict[str, Figure] = Field(
        description="Bound -> share that is outside of it at any step. Curvature and reverse are "
        "not nuPlan's."
    )


class Comfort(Strict):
    """Share of the trajectories outside of nuPlan's bounds of comfort within 5 s.

    All series come from the 20 points and the speed now, for plans, baselines and log alike; the
    log's share says how much is noise of the recording.
    """

    bounds: dict[str, str] = Field(description="Bound -> the limit.")
    rows: list[ComfortRow]


class WodRow(Compared):
    """One row of the WOD-E2E table; differences are in RFS, where higher is better."""

    name: str
    log_ade: dict[int, Figure] = Field(
        description="Horizon in s -> ADE against the log, m, all compared frames (val tables)."
    )
    log_of_rated_ade: dict[int, Figure] = Field(
        description="The same on just the rated frames of the next column."
    )
    top_rater_ade: dict[int, Figure] = Field(
        description="Horizon in s -> ADE against the trajectory that the raters scored highest, m "
        "(the test server's). Never mix it with the log's."
    )
    rfs: Figure = Field(
        description="Rater Feedback Score of the plan, mean over the rated frames (arXiv "
        "2510.26125); 0 to 10, outside of every trust region not below 4."
    )
    rfs_by_cluster: dict[str, float] = Field(description="Scenario cluster -> mean RFS.")
    rfs_of_clusters: float | None = Field(
        description="Unweighted mean over the clusters, the leaderboard's figure; null where "
        "frames have no cluster."
    )


class Wod(Strict):
    """WOD-E2E, on windows that raters scored."""

    rated: int = Field(description="Rated frames among the compared ones.")
    reached: dict[int, int] = Field(
        description="Horizon in s -> those whose top-rated trajectory reaches it."
    )
    clusters: dict[str, int] = Field(description="Scenario cluster -> rated frames.")
    rows: list[WodRow]


class Leaderboards(Strict):
    """The figures of other leaderboards on the frames of this replay."""

    frames: int = Field(
        description="Compared frames: those on which every decoder has a plan. Decoders that never "
        "have one are not asked, and have no figures."
    )
    without_plan: dict[str, int] = Field(description="Decoder -> frames on which it has no plan.")
    best_of: list[BestOf]
    calibration: list[Calibration]
    nuscenes: NuscenesL2
    collisions: Collisions | None = Field(description="Null where no road users are labelled.")
    comfort: Comfort
    wod: Wod | None = Field(description="Null where no compared frame is rated.")
