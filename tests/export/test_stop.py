"""Signals while TensorRT works: held back, then handled; what callbacks raise is not lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

import slipstream
from export.engines.builder import build_engine
from export.engines.flavours import load_library
from export.engines.graphs import ready_graph
from export.engines.options import BuildOptions
from export.engines.stop import held_signals
from runtime.bundle import Bundle
from runtime.engines.messages import logger_of
from runtime.engines.profiles import default_profiles


class HandledError(Exception):
    """The handler ran."""


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    def handler(number: int, frame: FrameType | None) -> None:
        raise HandledError

    before = signal.signal(request.param, handler)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    reached = []

    def work() -> None:
        with held_signals() as stop:
            signal.raise_signal(number)
            reached.append(stop.number)

    with pytest.raises(HandledError):
        work()
    assert reached == [number]
    with pytest.raises(HandledError):
        signal.raise_signal(number)  # the handler is back


def test_a_signal_comes_before_the_error_of_the_build_it_cancelled(number: signal.Signals) -> None:
    def fail() -> None:
        with held_signals():
            signal.raise_signal(number)
            raise ValueError("no plan")

    with pytest.raises(HandledError):
        fail()


def test_what_a_watcher_raises_ends_the_build() -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    library, bundle = load_library("tensorrt_rtx"), Bundle.open(slipstream.shipped_bundle())

    def watch(phase: str, done: float) -> None:
        raise HandledError

    profiles = default_profiles(bundle.manifest, "head")
    with (
        ready_graph(bundle, "head", "fp32", lambda _: True) as graph,
        pytest.raises(HandledError),
    ):
        build_engine(library, graph, profiles, BuildOptions("fp32"), "8.6", watch)


def test_what_a_listener_raises_is_kept() -> None:
    trt = pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")

    def listen(severity: str, message: str) -> None:
        raise HandledError

    logger = logger_of(trt, listen)
    logger.log(trt.ILogger.WARNING, "a message")
    assert isinstance(logger.lost, HandledError)
    assert logger_of(trt).lost is None
