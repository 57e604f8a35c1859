"""What a planner at work tells Prometheus: latency, deadlines, acceptance, rollouts, memory.

Names and meanings follow the serving engines' (`*_spec_decode_num_*_total`), so that their
dashboards can be read on; docs/monitoring.md has them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
    start_http_server,
)

from planners.plan import Plan
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from runtime.files import write_atomic

SECONDS = (
    *(0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3),
    *(0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
)
HERE = "127.0.0.1"


class Metrics:
    """Counters of the plans that it is shown, in a registry of their own.

    Args:
        bundle: that plans; its name and key stand in `slipstream_bundle_info`.

    Attributes:
        registry: for who exports it another way.
    """

    def __init__(self, bundle: Bundle | None = None) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory and CPU time of this process

        def counter(name: str, text: str, *labels: str) -> Counter:
            name = f"slipstream_{name}"
            return Counter(name, text, ("decoder", *labels), registry=self.registry)

        def histogram(name: str, text: str) -> Histogram:
            name = f"slipstream_{name}_seconds"
            return Histogram(name, text, ("decoder",), registry=self.registry, buckets=SECONDS)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"slipstream_{name}", text, ("decoder",), registry=self.registry)

        self._frame = histogram("frame", "Observation to plan.")
        self._first = histogram("time_to_first_token", "Prompt's tokens to first output token.")
        self._frames = counter("frames", "Frames, by whether they have a plan.", "planned")
        self._deadline = counter("deadline_frames", "Frames with a budget, if it was met.", "met")
        self._flags = counter("flagged_frames", "Frames whose plan has a flag.", "flag")
        self._rollouts = counter("rollouts", "Rollouts: usable, unusable, not begun.", "outcome")
        self._seconds = counter("stage_seconds", "Where latency goes.", "stage")
        self._passes = counter("passes", "Engine calls, prefill excluded.", "network")
        self._rounds = counter("spec_decode_num_drafts", "Verification rounds of a rollout.")
        self._drafted = counter("spec_decode_num_draft_tokens", "Drafted value tokens.")
        self._accepted = counter("spec_decode_num_accepted_tokens", "Those that stood.")
        self._places = tuple(
            counter(f"spec_decode_num_{what}_tokens_per_pos", "By place in the block.", "position")
            for what in ("draft", "accepted")
        )
        self._committed = counter("committed_tokens", "Tokens that rounds committed.")
        self._prompt = counter("prompt_rows", "Rows of prompts: passed, or kept.", "source")
        self._cache = gauge("cache_bytes", "Most keys and values of the last frame.")
        self._device = gauge("device_bytes", "Most accelerator memory of the last frame.")
        self._bundle = Info("slipstream_bundle", "What plans.", registry=self.registry)
        if bundle is not None:
            self.describe(bundle)

    def describe(self, bundle: Bundle) -> None:
        """Say what plans, where that was not known from the start."""
        self._bundle.info({"name": bundle.manifest.name, "key": bundle.key})

    def observe(self, plan: Plan, decoder: str = "planner") -> None:
        """Count a plan.

        Args:
            decoder: the label of its counters, where several decode in one process.
        """
        stats = plan.stats
        self._frame.labels(decoder).observe(plan.latency)
        self._first.labels(decoder).observe(stats.first_token)
        _count(self._frames, decoder, plan.trajectory is not None)
        if stats.met is not None:
            _count(self._deadline, decoder, stats.met)
        for flag in plan.flags:
            self._flags.labels(decoder, flag).inc()
        usable = int(plan.valid.sum())
        self._rollouts.labels(decoder, "usable").inc(usable)
        self._rollouts.labels(decoder, "unusable").inc(stats.rollouts - usable)
        self._rollouts.labels(decoder, "not begun").inc(stats.asked - stats.rollouts)
        stages = {**stats.seconds, "host": stats.host, "planning": plan.latency - stats.total}
        for stage, seconds in stages.items():
            self._seconds.labels(decoder, stage).inc(max(seconds, 0.0))  # a clock's last digit
        self._passes.labels(decoder, "target").inc(stats.target_passes)
        self._passes.labels(decoder, "draft").inc(stats.draft_passes)
        self._rounds.labels(decoder).inc(stats.rounds)
        self._drafted.labels(decoder).inc(stats.proposed)
        self._accepted.labels(decoder).inc(stats.accepted)
        for counter, found in zip(self._places, stats.by_position, strict=True):
            for place in np.flatnonzero(found):
                counter.labels(decoder, str(place)).inc(int(found[place]))
        self._committed.labels(decoder).inc(stats.committed)
        self._prompt.labels(decoder, "kept").inc(stats.kept_rows)
        self._prompt.labels(decoder, "passed").inc(stats.prompt_rows - stats.kept_rows)
        self._cache.labels(decoder).set(stats.cache_bytes)
        self._device.labels(decoder).set(stats.device_bytes)

    @contextmanager
    def served(self, where: str | int) -> Iterator[str]:
        """Serve them to Prometheus inside the block; gives the URL.

        Args:
            where: a port of this machine alone, or ADDRESS:PORT; 0.0.0.0 is all addresses, and
                port 0 any free one.

        Raises:
            SlipstreamError: no such address, or the port is taken.
        """
        address, port = _address(str(where))
        try:
            server, thread = start_http_server(port, address, self.registry)
        except OSError as error:
            raise SlipstreamError(
                f"metrics can't be served on {address}:{port}",
                expected="an address of this machine and a free port above 1023",
                found=error.strerror or str(error),
                fix="name another port, or 0 for any free one",
            ) from error
        host = f"[{address}]" if ":" in address else address
        try:
            yield f"http://{host}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def save(self, path: Path) -> None:
        """Write them to a file, as a whole, for node_exporter's textfile collector (*.prom).

        Raises:
            SlipstreamError: the file can't be written.
        """
        write_atomic(path, generate_latest(self.registry), option="another path")


def _address(where: str) -> tuple[str, int]:
    address, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise SlipstreamError(
            "metrics have no place to be served",
            expected="a port from 0 to 65535, or ADDRESS:PORT",
            found=repr(where),
            fix="give a port such as 9464",
        )
    return address.strip("[]") or HERE, int(port)


def _count(counter: Counter, decoder: str, yes: bool) -> None:
    """Both answers have a series from the first frame on, so that shares can be asked for."""
    counter.labels(decoder, "true").inc(yes)
    counter.labels(decoder, "false").inc(not yes)
