"""From the reports of many drives to the figures over all their frames: rows in, figures out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

from drives.bootstrap import RESAMPLES, BlockBootstrap
from drives.calibration import MISS
from drives.collision import NUSCENES_EGO
from drives.deadline import Deadline, deadline_of
from drives.figures import Figure, figure
from drives.frame_rows import columns, rollout_columns
from drives.leaderboard_results import LOG, Leaderboards
from drives.leaderboards import Board, outlines
from drives.results import Report
from drives.scores import RolloutScores, Scores
from drives.windows import NO_FUTURE
from slipstream.fleet.job import Finished, Job
from slipstream.fleet.summary_results import (
    ByDrive,
    DriveFigures,
    DriveResult,
    FailedDrive,
    PooledDecoder,
    PooledKinematic,
    Summary,
)

Floats = NDArray[np.float64]


def pooled(finished: Sequence[Finished], job: Job) -> Summary:
    """The summary of a run; at least one of its drives has a report."""
    done = [(each.item, each.report) for each in finished if each.report is not None]
    reports = [report for _, report in done]
    frames = AllFrames(reports)
    drives = [drive_result(item.drive, item.folder, report) for item, report in done]
    return Summary(
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=job.command,
        bundle=reports[0].bundle,
        rule=job.rule,
        asked=job.asked,
        threads=job.threads,
        frames=sum(report.frames for report in reports),
        compared=int(frames.board.compared.sum()),
        intervals=ByDrive(drives=len(reports), resamples=RESAMPLES, seed=0),
        decoders=[frames.decoder(place) for place in range(len(reports[0].decoders))],
        kinematic=[frames.kinematic(name) for name in frames.by_error],
        same=same_everywhere([each.same for each in finished if each.report is not None]),
        leaderboards=frames.leaderboards(),
        drives=sorted(drives, key=_error, reverse=True),
        failed=[
            FailedDrive(given=each.item.drive, error=each.error)
            for each in finished
            if each.report is None
        ],
    )


def distinct(finished: Sequence[Finished]) -> list[Finished]:
    """The drives, with a recording that was run twice under two paths counted once."""
    first: dict[str, str] = {}
    kept = []
    for each in finished:
        if each.report is not None:
            other = first.setdefault(each.report.drive.key, each.item.drive)
            if other != each.item.drive:
                told = f"the same recording as {other}: frames would count twice"
                each = Finished(each.item, None, told)
        kept.append(each)
    return kept


def same_everywhere(groups: Sequence[tuple[tuple[str, ...], ...]]) -> list[list[str]]:
    """Decoders that are in one group on every drive, in the order of the first drive's groups."""
    together: dict[tuple[int, ...], list[str]] = {}
    for name in (name for group in groups[0] for name in group):
        where = tuple(
            next(place for place, group in enumerate(drive) if name in group) for drive in groups
        )
        together.setdefault(where, []).append(name)
    return list(together.values())


def drive_result(given: str, folder: str, report: Report) -> DriveResult:
    """One drive's line of the summary."""
    best = report.best_kinematic(5)
    return DriveResult(
        given=given,
        folder=folder,
        name=report.drive.name,
        key=report.drive.key,
        synthetic=report.drive.synthetic,
        frames=report.frames,
        trained_frames=report.training.frames if report.training else 0,
        duration_s=report.drive.duration_s,
        length_m=report.drive.length_m,
        kinematic=best.name,
        kinematic_ade_5s=best.accuracy.ade[5].value,
        figures=[
            DriveFigures(
                decoder=each.name,
                ade_3s=each.accuracy.ade[3].value,
                ade_5s=each.accuracy.ade[5].value,
                fde_5s=each.accuracy.fde[5].value,
                latency_p50_ms=each.latency_ms.p50.value or 0.0,
                speedup=each.speedup.value,
                acceptance_length=each.acceptance_length,
                frames_without_plan=each.frames_without_plan,
            )
            for each in report.decoders
        ],
    )


class AllFrames:
    """The rows of all reports, one column a figure, drive after drive."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = reports
        self.names = [each.name for each in reports[0].decoders]
        self.rows = {
            name: [row for report in reports for row in report.rows if row.decoder == name]
            for name in self.names
        }
        drives = [str(i) for i, report in enumerate(reports) for _ in range(report.frames)]
        # segments without an end: what is drawn is whole drives
        self.bootstrap = BlockBootstrap(np.zeros(len(drives)), drives, segment_s=float("inf"))
        self.board = self._board()
        self.by_error = self._by_error()

    def decoder(self, place: int) -> PooledDecoder:
        first = self.reports[0].decoders[place]
        own, other = self.board.decoders[first.name], self.board.decoders[first.reference]
        latency = self._column(first.name, "latency_ms")
        best = self.board.baselines[self.by_error[0]]
        return PooledDecoder(
            name=first.name,
            settings=first.settings,
            reference=first.reference,
            latency_ms=figure(self.bootstrap.mean(latency)),
            latency_p50_ms=figure(self.bootstrap.median(latency)),
            deadline=self._deadline(first.name, first.settings.budget_ms),
            speedup=figure(
                self.bootstrap.median(self._column(first.reference, "latency_ms") / latency)
            ),
            target_passes=figure(self.bootstrap.mean(self._column(first.name, "target_passes"))),
            acceptance_length=figure(
                self.bootstrap.ratio(self._sums(place, "committed"), self._sums(place, "rounds"))
            ),
            ade_3s=self._mean(own.ade_3s),
            ade_5s=self._mean(own.ade_5s),
            fde_5s=self._mean(own.fde_5s),
            ade_5s_to_reference=self._mean(own.ade_5s - other.ade_5s),
            ade_5s_to_kinematic=self._mean(own.ade_5s - best.ade_5s),
            frames_without_plan=int(np.isnan(own.ade_5s).sum()),
        )

    def kinematic(self, name: str) -> PooledKinematic:
        scores = self.board.baselines[name]
        return PooledKinematic(
            name=name,
            ade_3s=self._mean(scores.ade_3s),
            ade_5s=self._mean(scores.ade_5s),
            fde_5s=self._mean(scores.fde_5s),
        )

    def leaderboards(self) -> Leaderboards:
        """The leaderboards' tables; whose outline collides is said as the drives say it."""
        boards = self.board.tables()
        if boards.collisions is None:
            return boards
        found = (report.leaderboards.collisions for report in self.reports)
        egos = outlines(each.ego for each in found if each)
        collisions = boards.collisions.model_copy(update={"ego": egos})
        return boards.model_copy(update={"collisions": collisions})

    def _board(self) -> Board:
        """Everybody's scores; rollouts are not in the reports, so calibration is not pooled."""
        first = self.reports[0]
        baselines = {name: self._baseline(name) for name in (each.name for each in first.kinematic)}
        return Board(
            decoders={name: columns(rows) for name, rows in self.rows.items()},
            baselines=baselines,
            log=self._baseline(LOG),
            rollouts={
                **{
                    name: rollout_columns([row.rollouts for row in rows])
                    for name, rows in self.rows.items()
                },
                **{name: of_one(scores) for name, scores in baselines.items()},
            },
            counts={
                **{each.name: each.settings.rollouts for each in first.decoders},
                **dict.fromkeys(baselines, 1),
            },
            usable={
                **{name: self._column(name, "usable") for name in self.rows},
                **dict.fromkeys(baselines, np.ones(len(self.rows[self.names[0]]))),
            },
            references={each.name: each.reference for each in first.decoders},
            bootstrap=self.bootstrap,
            clusters=[row.cluster or "" for row in self.rows[self.names[0]]],
            agents=any(report.leaderboards.collisions for report in self.reports),
            ego=NUSCENES_EGO,
            known_ego=True,
            cut_off=sum(report.skipped.get(NO_FUTURE, 0) for report in self.reports),
            forecasts={},
            truth=np.zeros((len(self.rows[self.names[0]]), 0, 2)),
        )

    def _deadline(self, name: str, budget_ms: float | None) -> Deadline | None:
        if budget_ms is None:
            return None
        decoded = np.array([row.usable + len(row.problems) for row in self.rows[name]], np.float64)
        return deadline_of(budget_ms, self._column(name, "latency_ms"), decoded, self.bootstrap)

    def _baseline(self, name: str) -> Scores:
        return columns(
            [row for report in self.reports for row in report.baseline_rows if row.baseline == name]
        )

    def _by_error(self) -> list[str]:
        """Baselines, the least ADE@5s over the compared frames first; standing still is last."""

        def error(name: str) -> float:
            value = self._mean(self.board.baselines[name].ade_5s).value
            return float("inf") if value is None else value

        return sorted(self.board.baselines, key=error)

    def _column(self, decoder: str, field: str) -> Floats:
        return np.array([getattr(row, field) for row in self.rows[decoder]], np.float64)

    def _sums(self, place: int, field: str) -> Floats:
        """A count over each drive's sections, spread evenly over its frames."""
        parts = []
        for report in self.reports:
            sections = report.decoders[place].by_section.values()
            total = sum(getattr(section, field) for section in sections)
            parts.append(np.full(report.frames, total / report.frames))
        return np.concatenate(parts)

    def _mean(self, values: Floats) -> Figure:
        """Over the compared frames."""
        return figure(self.bootstrap.mean(np.where(self.board.compared, values, np.nan)))


def of_one(scores: Scores) -> RolloutScores:
    """A single trajectory, read as the best of its one rollout."""
    missed = np.where(np.isfinite(scores.fde_5s), scores.fde_5s > MISS, np.nan)
    still = np.where(np.isfinite(scores.fde_5s), 0.0, np.nan)
    return RolloutScores(scores.ade_5s, scores.fde_5s, scores.fde_5s, missed, still, scores.fde_5s)


def _error(drive: DriveResult) -> float:
    value = drive.figures[-1].ade_5s
    return float("inf") if value is None else value
