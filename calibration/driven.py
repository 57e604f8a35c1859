"""The same frames planned by a source and a candidate, one after the other, and what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from calibration.recording import usual_settings
from calibration.results import Change, KindOfDriving
from calibration.strata import STRATA, stratum_of
from drives.bootstrap import BlockBootstrap, Interval
from drives.figures import figure, known
from drives.metrics import ade, distances, fde
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from runtime.bundle import Manifest
from runtime.errors import EngineError
from runtime.settings import BY_SCHEMA, FOLLOWING, RULES, DecodeSettings, Sampling

Floats = NDArray[np.float64]
GREEDY, SAMPLED = "greedy", "rollouts"
BOTH = "both"  # ways together: half the noise, and what the gates look at
_WARM_UP = 1  # frames, planned by both and not counted: first passes allocate


@dataclass(frozen=True)
class Driven:
    """Frames that both have planned.

    Attributes:
        windows: W of them, with their logged futures.
        source, candidate: ways of decoding -> W plans.
        seconds: "source" and "candidate" -> W s of greedy frames; of one engine thread what it
            computed, else by the clock.
        broken: why the candidate could not decode, or ''; then nothing else is there.
    """

    windows: Sequence[Window]
    source: dict[str, list[Plan]]
    candidate: dict[str, list[Plan]]
    seconds: dict[str, list[float]]
    broken: str = ""


def ways_to_drive(manifest: Manifest) -> dict[str, DecodeSettings]:
    """With the bundle's own drafter, greedy and with a few rollouts.

    Widths are fixed and sampled tokens are the target's own draws, so that both decode with the
    same random numbers and what differs is the precision.
    """
    usual = usual_settings(manifest)[0]
    following = [rule for rule in RULES.get(usual.method, ()) if rule in FOLLOWING]
    greedy = replace(usual, rollouts=1, sampling=Sampling())
    sampled = replace(usual, accept=following[0] if following else usual.accept)
    return {GREEDY: greedy, SAMPLED: sampled} if usual.rollouts > 1 else {GREEDY: greedy}


def drive_both(
    source: Planner,
    candidate: Planner,
    windows: Sequence[Window],
    ways: dict[str, DecodeSettings],
    done: Callable[[int], None] = lambda frames: None,
    *,
    earlier: Driven | None = None,
) -> Driven:
    """Plan every frame with both, taking turns in going first.

    A candidate whose logits are not numbers is broken, which is a result and no error.

    Args:
        earlier: another candidate's, on the same frames: what the source planned then but for
            greedy frames, whose time is compared, is not planned again.
    """
    clock = time.thread_time if source.threading.threads == 1 else time.perf_counter
    planners = {"source": source, "candidate": candidate}
    plans: dict[str, dict[str, list[Plan]]] = {name: {way: [] for way in ways} for name in planners}
    seconds: dict[str, list[float]] = {name: [] for name in planners}
    before = earlier.source if earlier else {}
    for index, window in zip(count(-_WARM_UP), [*windows[:_WARM_UP], *windows], strict=False):
        for name in ("source", "candidate")[:: 1 if index % 2 else -1]:
            for way, settings in ways.items():
                if name == "source" and way != GREEDY and way in before:
                    continue
                start = clock()
                try:
                    plan = planners[name].plan(window.observation, settings)
                except EngineError as error:
                    if name == "source":
                        raise
                    return Driven(windows, before, {}, {}, f"{error.what}: {error.found}")
                if index < 0:
                    continue
                plans[name][way].append(plan)
                if way == GREEDY:
                    seconds[name].append(clock() - start)
        done(max(index + 1, 0))
    plans["source"] = {way: plans["source"][way] or before[way] for way in ways}
    return Driven(windows, plans["source"], plans["candidate"], seconds)


class Comparison:
    """Figures of driven frames, with paired intervals over stretches of the drives."""

    def __init__(self, driven: Driven) -> None:
        windows = driven.windows
        self._driven = driven
        self._truth = np.stack([_future(window) for window in windows])
        self._bootstrap = BlockBootstrap(
            np.array([window.observation.time for window in windows]),
            [window.drive for window in windows],
        )

    def distance(self, metric: str, way: str = BOTH) -> Change:
        """`ADE@3s`, `ADE@5s` or `FDE@5s` of a way of decoding, or the mean over ways: m, and the
        relative increase."""
        source, candidate = (self._errors(plans, metric, way) for plans in self._both)
        shared = np.isfinite(source) & np.isfinite(candidate)
        return Change(
            name=f"{metric}, {way}",
            source=_mean(source[shared]),
            candidate=_mean(candidate[shared]),
            change=figure(_relative(self._bootstrap.ratio(candidate, source))),
        )

    def acceptance_length(self, way: str = BOTH) -> Change | None:
        """Tokens a verification round, and the relative change of frames' own; None where nothing
        is drafted."""
        source, candidate = (self._rounds(plans, way) for plans in self._both)
        if source is None or candidate is None:
            return None
        own = [committed / rounds for committed, rounds in (source, candidate)]
        return Change(
            name=f"tau, {way}",
            source=float(source[0].sum() / source[1].sum()),
            candidate=float(candidate[0].sum() / candidate[1].sum()),
            change=figure(_relative(self._bootstrap.ratio(own[1], own[0]))),
        )

    def unusable(self, way: str) -> Change:
        """Outputs that make no plan: how many, and the change of their share."""
        source, candidate = (_problems(plans[way]) for plans in self._both)
        outputs = len(self._driven.source[way][0].problems)
        return Change(
            name=f"unusable outputs, {way}",
            source=float(source.sum()),
            candidate=float(candidate.sum()),
            change=figure(self._bootstrap.difference(candidate / outputs, source / outputs)),
        )

    def latency(self) -> Change:
        """ms of a greedy frame with fixed blocks, the median; the relative change is the median
        over frames of each frame's own."""
        source, candidate = (np.array(self._driven.seconds[n]) for n in ("source", "candidate"))
        return Change(
            name="ms a frame, greedy",
            source=float(1e3 * np.median(source)),
            candidate=float(1e3 * np.median(candidate)),
            change=figure(_relative(self._bootstrap.median(candidate / source))),
        )

    def same_tokens(self, is_value: NDArray[np.bool_]) -> tuple[int, float]:
        """Identical greedy outputs, and the share of values before the first difference (mean).

        Args:
            is_value: [L], the scaffold's: other tokens are fixed.
        """
        source, candidate = (plans[GREEDY] for plans in self._both)
        same = [
            np.equal(one.tokens, other.tokens)[0, is_value]
            for one, other in zip(source, candidate, strict=True)
        ]
        shares = [float(each.argmin() / len(each)) if not each.all() else 1.0 for each in same]
        return sum(bool(each.all()) for each in same), float(np.mean(shares))

    def by_driving(self) -> list[KindOfDriving]:
        """ADE@5s of both ways, by kind of driving."""
        kinds = np.array([stratum_of(window.observation) for window in self._driven.windows])
        source, candidate = (self._errors(plans, "ADE@5s", BOTH) for plans in self._both)
        found = []
        for stratum in STRATA:
            here = (kinds == stratum) & np.isfinite(source) & np.isfinite(candidate)
            if here.any():
                found.append(
                    KindOfDriving(
                        stratum=stratum,
                        frames=int(here.sum()),
                        source=_mean(source[here]),
                        candidate=_mean(candidate[here]),
                    )
                )
        return found

    @property
    def _both(self) -> tuple[dict[str, list[Plan]], dict[str, list[Plan]]]:
        return self._driven.source, self._driven.candidate

    def _errors(self, plans: Mapping[str, Sequence[Plan]], metric: str, way: str) -> Floats:
        """[W] m; NaN without a plan."""
        if way == BOTH:
            both = [self._errors(plans, metric, each) for each in plans]
            return np.asarray(np.mean(both, axis=0), np.float64)
        none = np.full(self._truth.shape[1:], np.nan)
        paths = np.stack([none if p.trajectory is None else p.trajectory for p in plans[way]])
        of, _, horizon = metric.partition("@")
        measure = ade if of == "ADE" else fde
        return measure(distances(paths, self._truth), float(horizon.removesuffix("s")))

    def _rounds(self, plans: Mapping[str, Sequence[Plan]], way: str) -> Floats | None:
        """[2, W] tokens committed and rounds."""
        of_ways = [plans[each] for each in ([*plans] if way == BOTH else [way])]
        if not any(plan.stats.proposed for each in of_ways for plan in each):
            return None
        counted = [[(p.stats.committed, p.stats.rounds) for p in each] for each in of_ways]
        return np.asarray(np.array(counted, np.float64).sum(axis=0).T)


def settings_name(settings: DecodeSettings) -> str:
    """`dflash`, and the width of its blocks."""
    if settings.block is None:
        return settings.method
    what = "values of the schema" if settings.method in BY_SCHEMA else "rows"
    return f"{settings.method}, blocks of {settings.block} {what}"


def _future(window: Window) -> Floats:
    assert window.future is not None
    return window.future


def _problems(plans: Sequence[Plan]) -> Floats:
    return np.array([sum(map(bool, plan.problems)) for plan in plans], np.float64)


def _relative(ratio: Interval) -> Interval:
    return Interval(ratio.value - 1.0, ratio.low - 1.0, ratio.high - 1.0)


def _mean(values: Floats) -> float | None:
    return known(float(values.mean())) if len(values) else None
