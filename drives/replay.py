"""Replay: run every decoder over the same frames of a drive and keep what each one did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from drives.windows import Window
from planners.observation import Observation
from planners.plan import Aggregate, Plan
from runtime.errors import SlipstreamError
from runtime.settings import UNVERIFIED, DecodeSettings

WARMUP_FRAMES = 6  # in which the cost gate tries its ways


class Plans(Protocol):
    """Anything that turns an observation into a plan; `planners.planner.Planner` does."""

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan: ...


@dataclass(frozen=True, eq=False)
class Replay:
    """What the decoders did on one drive; every list runs over the same frames.

    Attributes:
        windows: W frames with their logged futures.
        settings: decoder name -> its settings (`frame` is set to each window's number).
        plans: decoder name -> W plans.
        warmup: decoder name -> latencies in s of the frames that ran first and aren't counted.
        rule: how rollouts became one trajectory.
        skipped: why windows of the drive could not be used -> how many.
    """

    windows: Sequence[Window]
    settings: Mapping[str, DecodeSettings]
    plans: Mapping[str, list[Plan]]
    warmup: Mapping[str, list[float]]
    rule: Aggregate
    skipped: Counter[str] = field(default_factory=Counter)


def replay(
    planner: Plans,
    windows: Sequence[Window],
    settings: Mapping[str, DecodeSettings],
    rule: Aggregate = "mean",
    *,
    skipped: Mapping[str, int] | None = None,
    warmup: int = WARMUP_FRAMES,
    progress: Callable[[int], None] = lambda frames: None,
) -> Replay:
    """Plan each window with each decoder, the order rotating so that none is always first.

    Args:
        planner: plans; it is called W * len(settings) times plus the warm-up.
        windows: W frames.
        settings: decoder name -> settings.
        rule: how rollouts become one trajectory.
        skipped: reasons of the drive's windows that were left out before.
        warmup: frames that every decoder runs first, measured apart (first passes allocate).
        progress: called with the number of frames done.

    Raises:
        SlipstreamError: no window, no decoder, or a window without its future.
    """
    if not windows or not settings:
        raise SlipstreamError(
            "there is nothing to replay",
            expected="at least one frame and one decoder",
            found=f"{len(windows)} frames, {len(settings)} decoders",
            fix="choose a longer drive or other --frames",
        )

    def one(name: str, window: Window) -> Plan:
        observation = window.observation
        return planner.plan(observation, replace(settings[name], frame=observation.frame), rule)

    if blind := [w.observation.frame for w in windows if w.future is None]:
        raise SlipstreamError(
            "a replay compares plans with what happened next",
            expected="windows with their logged future",
            found=f"none at frame {blind[0]}",
            fix="cut the windows with without_future=False",
        )
    names = list(settings)
    first = {name: [one(name, window).latency for window in windows[:warmup]] for name in names}
    plans: dict[str, list[Plan]] = {name: [] for name in names}
    for done, window in enumerate(windows):
        for name in rotated(names, done):
            plans[name].append(one(name, window))
        progress(done + 1)
    return Replay(windows, settings, plans, first, rule, Counter(dict(skipped or {})))


def rotated(names: Sequence[str], by: int) -> Iterable[str]:
    """The names, starting from another one each time."""
    start = by % len(names)
    return [*names[start:], *names[:start]]


def is_greedy(settings: DecodeSettings) -> bool:
    """Whether the whole output is the target's own choice at temperature 0."""
    cold = settings.sampling.temperature == settings.prefix_sampling.temperature == 0
    return cold and settings.method not in UNVERIFIED


def reference_of(name: str, settings: Mapping[str, DecodeSettings]) -> str:
    """The decoder that another one is compared with: plain `ar` with the same rollouts, sampling
    and seed; without one, the first lossless decoder that shares them (at last, itself).
    """
    peers = [
        other for other in settings if _conditions(settings[other]) == _conditions(settings[name])
    ]
    lossless = [peer for peer in peers if settings[peer].method not in UNVERIFIED] or peers
    return next((peer for peer in lossless if settings[peer].method == "ar"), lossless[0])


def _conditions(settings: DecodeSettings) -> tuple[object, ...]:
    return settings.rollouts, settings.sampling, settings.prefix_sampling, settings.seed
