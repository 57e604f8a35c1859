"""A replay that Prometheus can watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from drives.replay import Plans
from planners.observation import Observation
from planners.plan import Aggregate, Plan
from runtime.settings import DecodeSettings
from slipstream.commands.request import decoder_name

if TYPE_CHECKING:
    from planners.metrics import Metrics
    from planners.planner import Planner


class Meter:
    """The metrics that a command serves, if it was asked to."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics

    def on(self, planner: Planner) -> Plans:
        """The planner, whose plans are counted from now on."""
        if self._metrics is None:
            return planner
        self._metrics.describe(planner.bundle)
        return _Metered(planner, self._metrics)


class _Metered:
    """Plans, and shows each plan to the metrics under its decoder's name."""

    def __init__(self, planner: Plans, metrics: Metrics) -> None:
        self._planner, self._metrics = planner, metrics

    def plan(self, observation: Observation, settings: DecodeSettings, rule: Aggregate) -> Plan:
        plan = self._planner.plan(observation, settings, rule)
        self._metrics.observe(plan, decoder_name(settings))
        return plan


@contextmanager
def metered(where: str | None, console: Console) -> Iterator[Meter]:
    """Serve metrics inside the block, at `where` (see `Metrics.served`); None serves none.

    Raises:
        SlipstreamError: they can't be served there.
    """
    if where is None:
        yield Meter(None)
        return
    from planners.metrics import Metrics  # only who serves them needs prometheus-client

    metrics = Metrics()
    with metrics.served(where) as url:
        console.print(f"metrics: {url}", highlight=False, soft_wrap=True)
        yield Meter(metrics)
