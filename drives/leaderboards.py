"""From every frame's scores to the leaderboards' tables, over the same frames in all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from drives.bootstrap import BlockBootstrap
from drives.calibration import calibration
from drives.collision import EgoBox
from drives.conventions import NUSCENES_HORIZONS, WOD_HORIZONS
from drives.figures import Figure, figure, known
from drives.leaderboard_results import (
    LOG,
    BestOf,
    Calibration,
    CollisionRow,
    Collisions,
    Comfort,
    ComfortRow,
    Difference,
    L2Row,
    Leaderboards,
    NuscenesL2,
    Wod,
    WodRow,
)
from drives.rater import cluster_average
from drives.scores import BOUNDS, HORIZON, RolloutScores, Scores, compared_frames

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


_STAND_IN = "; a stand-in, this vehicle's is not known"


def outline(ego: EgoBox, *, known: bool) -> str:
    """An ego box in words; `known` is false where it stands in for another vehicle's."""
    box = f"{ego.length:g} × {ego.width:g} m, its middle {ego.center:g} m ahead of the rear axle"
    return box if known else box + _STAND_IN


def outlines(told: Iterable[str]) -> str:
    """What `outline` says of many drives, each box once."""
    whose: dict[str, set[bool]] = {}
    for each in sorted(set(told)):
        whose.setdefault(each.removesuffix(_STAND_IN), set()).add(each.endswith(_STAND_IN))
    notes = {
        frozenset({False}): "",
        frozenset({True}): "; a stand-in, the vehicles' are not known",
        frozenset({False, True}): "; for some drives a stand-in, their vehicle's is not known",
    }
    return "; or ".join(box + notes[frozenset(stands)] for box, stands in whose.items())


@dataclass(frozen=True, eq=False)
class Board:
    """Scores of all decoders, baselines and the log on W frames of one drive or of many.

    Attributes:
        decoders, baselines: name -> its W frames.
        log: the recorded future's W frames.
        rollouts: decoder or baseline -> its rollouts' W frames.
        counts: decoder or baseline -> rollouts, k.
        usable: decoder or baseline -> [W] usable ones of those k.
        references: decoder -> the decoder that it is compared with.
        bootstrap: of the W frames.
        clusters: [W] scenario clusters, "" where a frame has none.
        agents: whether road users are labelled.
        ego: outline of the vehicle.
        known_ego: whether it is this vehicle's, not a stand-in.
        cut_off: windows that were left out since their future is cut off.
        forecasts: decoder -> W arrays [N, 20, 2] m, for calibration; empty where they are not kept.
        truth: [W, 20, 2] m, for calibration.
    """

    decoders: Mapping[str, Scores]
    baselines: Mapping[str, Scores]
    log: Scores
    rollouts: Mapping[str, RolloutScores]
    counts: Mapping[str, int]
    usable: Mapping[str, Floats]
    references: Mapping[str, str]
    bootstrap: BlockBootstrap
    clusters: Sequence[str]
    agents: bool
    ego: EgoBox
    known_ego: bool
    cut_off: int
    forecasts: Mapping[str, Sequence[Floats]]
    truth: Floats

    @cached_property
    def compared(self) -> Bools:
        return compared_frames({name: each.ade_5s for name, each in self.decoders.items()})

    @cached_property
    def entrants(self) -> dict[str, Scores]:
        return {**self.decoders, **self.baselines}

    @cached_property
    def everyone(self) -> dict[str, Scores]:
        return {**self.entrants, LOG: self.log}

    def tables(self) -> Leaderboards:
        """All tables."""
        lacking = {name: int(np.isnan(each.ade_5s).sum()) for name, each in self.decoders.items()}
        return Leaderboards(
            frames=int(self.compared.sum()),
            without_plan={name: count for name, count in lacking.items() if count},
            best_of=[self._best_of(name) for name in self.entrants],
            calibration=[self._calibration(name) for name in self.forecasts],
            nuscenes=self._nuscenes(),
            collisions=self._collisions() if self.agents else None,
            comfort=Comfort(
                bounds={name: bound.text for name, bound in BOUNDS.items()},
                rows=[self._comfort(name, scores) for name, scores in self.everyone.items()],
            ),
            wod=self._wod() if self._rated.any() else None,
        )

    def _best_of(self, name: str) -> BestOf:
        scores = self.rollouts[name]
        return BestOf(
            name=name,
            k=self.counts[name],
            usable=known(float(np.mean(self.usable[name][self.compared])))
            if self.compared.any()
            else None,
            min_ade_5s=self._mean(scores.min_ade),
            min_fde_5s=self._mean(scores.min_fde),
            brier_min_fde_5s=self._mean(scores.brier_min_fde),
            miss_rate_5s=self._mean(scores.missed),
            spread_5s=self._mean(scores.spread),
            energy_score_5s=self._mean(scores.energy_score),
        )

    def _calibration(self, name: str) -> Calibration:
        rollouts = self.forecasts[name]
        kept = [each for each, counts in zip(rollouts, self.compared, strict=True) if counts]
        read = calibration(kept, self.truth[self.compared], HORIZON)
        shares = [
            {f"{level:g}": share for level, share in side.items()} if read.frames else {}
            for side in (read.along, read.across)
        ]
        return Calibration(
            name=name,
            frames=read.frames,
            spread_ratio=known(read.spread_ratio),
            along=shares[0],
            across=shares[1],
        )

    def _nuscenes(self) -> NuscenesL2:
        averages = {name: scores.l2_at.mean(axis=1) for name, scores in self.entrants.items()}
        return NuscenesL2(
            policy="drop-frame",
            frames=int(self.compared.sum()),
            cut_off=self.cut_off,
            rows=[
                L2Row(
                    name=name,
                    at=self._at(scores.l2_at),
                    at_average=self._mean(averages[name]),
                    up_to=self._at(scores.l2_up_to),
                    up_to_average=self._mean(scores.l2_up_to.mean(axis=1)),
                    to_reference=self._to_reference(name, averages),
                    to_kinematic=self._to_kinematic(name, averages),
                )
                for name, scores in self.entrants.items()
            ],
        )

    def _collisions(self) -> Collisions:
        return Collisions(
            ego=outline(self.ego, known=self.known_ego),
            labelled=self._counts(np.isfinite(self.log.collision_at)),
            rows=[
                CollisionRow(
                    name=name,
                    at=self._at(scores.collision_at),
                    hits=self._counts(scores.collision_at == 1),
                    judged=self._counts(np.isfinite(scores.collision_at)),
                    up_to=self._at(scores.collision_up_to),
                )
                for name, scores in self.everyone.items()
            ],
        )

    def _comfort(self, name: str, scores: Scores) -> ComfortRow:
        nuplan = [place for place, bound in enumerate(BOUNDS.values()) if bound.nuplan]
        return ComfortRow(
            name=name,
            comfortable=self._mean(1.0 - scores.discomfort[:, nuplan].max(axis=1)),
            outside={
                bound: self._mean(scores.discomfort[:, place]) for place, bound in enumerate(BOUNDS)
            },
        )

    @cached_property
    def _rated(self) -> Bools:
        return np.asarray(np.isfinite(self.log.rfs) & self.compared)

    def _wod(self) -> Wod:
        scores = {name: each.rfs for name, each in self.entrants.items()}
        frames = [name for name, rated in zip(self.clusters, self._rated, strict=True) if rated]
        reaches = {3: self.log.top_ade_3s, 5: self.log.top_ade_5s}
        return Wod(
            rated=len(frames),
            reached={t: int((np.isfinite(reaches[t]) & self._rated).sum()) for t in WOD_HORIZONS},
            clusters=dict(sorted(Counter(name for name in frames if name).items())),
            rows=[self._wod_row(name, each, scores) for name, each in self.everyone.items()],
        )

    def _wod_row(self, name: str, own: Scores, scores: Mapping[str, Floats]) -> WodRow:
        log, top = {3: own.ade_3s, 5: own.ade_5s}, {3: own.top_ade_3s, 5: own.top_ade_5s}
        named = self._rated & np.array([bool(cluster) for cluster in self.clusters])
        average = cluster_average(np.where(named, own.rfs, np.nan), self.clusters)
        return WodRow(
            name=name,
            log_ade={t: self._mean(log[t]) for t in WOD_HORIZONS},
            log_of_rated_ade={
                t: self._mean(np.where(np.isfinite(top[t]), log[t], np.nan)) for t in WOD_HORIZONS
            },
            top_rater_ade={t: self._mean(top[t]) for t in WOD_HORIZONS},
            rfs=self._mean(own.rfs),
            rfs_by_cluster={cluster: mean for cluster, (mean, _) in average.clusters.items()},
            rfs_of_clusters=known(average.value) if (named == self._rated).all() else None,
            to_reference=self._to_reference(name, scores),
            to_kinematic=self._to_kinematic(name, scores, higher=True),
        )

    def _to_reference(self, name: str, scores: Mapping[str, Floats]) -> Difference | None:
        other = self.references.get(name, name)
        return None if other == name else self._difference(name, other, scores)

    def _to_kinematic(
        self, name: str, scores: Mapping[str, Floats], *, higher: bool = False
    ) -> Difference | None:
        """To the baseline with the best mean over the compared frames."""
        if name not in self.decoders or not self.compared.any():
            return None
        means = {other: np.nanmean(scores[other][self.compared]) for other in self.baselines}
        best = max(means, key=lambda other: means[other] * (1 if higher else -1))
        return self._difference(name, best, scores)

    def _difference(self, name: str, other: str, scores: Mapping[str, Floats]) -> Difference:
        apart = scores[name] - scores[other]
        return Difference(
            other=other,
            frames=int(np.isfinite(apart).sum()),
            value=figure(self.bootstrap.mean(apart)),
        )

    def _at(self, values: Floats) -> dict[int, Figure]:
        """Horizon -> mean of its column [W, 3]."""
        return {t: self._mean(values[:, i]) for i, t in enumerate(NUSCENES_HORIZONS)}

    def _counts(self, marks: Bools) -> dict[int, int]:
        """Horizon -> compared frames that are marked [W, 3]."""
        return {t: int(marks[self.compared, i].sum()) for i, t in enumerate(NUSCENES_HORIZONS)}

    def _mean(self, values: Floats) -> Figure:
        """Over the compared frames."""
        return figure(self.bootstrap.mean(np.where(self.compared, values, np.nan)))
