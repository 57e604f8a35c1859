"""The decode loop on memory that it can't touch, with real ONNX Runtime sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import slipstream
from drives.open import open_drive
from drives.windows import windows
from planners.planner import Planner
from planners.prompt import prompt_text
from runtime.cache import TwoPartCache
from runtime.decode import Decoder
from runtime.engines.base import TensorSpec
from runtime.engines.layout import Layout
from runtime.errors import EngineError
from runtime.proof.cache import cache_check
from runtime.proof.cases import Case
from runtime.settings import DecodeSettings, Sampling
from tests.runtime.engines.opaque import OpaqueDevice, QueuedEngine, opaque_graphs

SAMPLED = Sampling(temperature=0.7)
SETTINGS = [
    DecodeSettings("ar-scaffold"),
    DecodeSettings("dflash", block=8),
    DecodeSettings("dflash", block=8, rollouts=5, sampling=SAMPLED),
    DecodeSettings("dflash", accept="block", block=8, rollouts=3, sampling=SAMPLED),
    DecodeSettings("ddtree", block=8, nodes=12, rollouts=3, sampling=SAMPLED),
    DecodeSettings("spectr", block=4, paths=3, rollouts=2, sampling=SAMPLED),
]


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.load(slipstream.shipped_bundle(), threads=1)


@pytest.fixture(scope="module")
def cases(planner: Planner) -> list[Case]:
    chosen = windows(open_drive("synthetic")).windows[5:40:17]
    return [
        Case(
            window.observation.frame,
            np.asarray(planner.tokenizer.encode(prompt_text(window.observation)), np.int64),
            planner.scaffold,
            planner.language.fork_section,
        )
        for window in chosen
    ]


def name(settings: DecodeSettings) -> str:
    return f"{settings.method}-{settings.rule}-{settings.rollouts}"


@pytest.mark.parametrize("settings", SETTINGS, ids=name)
def test_the_decoder_gives_the_same_tokens(planner, cases, settings) -> None:
    device = OpaqueDevice()
    host = Decoder(planner.decoder.graphs, None)
    opaque = Decoder(opaque_graphs(planner.bundle, device), None)
    for case in cases:
        each = replace(settings, frame=case.frame)
        wanted = host.decode(case.prompt, case.scaffold, each, case.fork_at)
        found = opaque.decode(case.prompt, case.scaffold, each, case.fork_at)
        np.testing.assert_array_equal(found.tokens, wanted.tokens)
        opaque.cache.check_integrity()
        assert found.stats.cache_bytes == wanted.stats.cache_bytes
        assert wanted.stats.device_bytes == 0
        assert found.stats.device_bytes >= found.stats.cache_bytes
    assert device.copies > 0


def test_its_caches_are_those_of_fresh_passes(planner, cases) -> None:
    settings = DecodeSettings("dflash", block=8, rollouts=3, sampling=SAMPLED)
    graphs = opaque_graphs(planner.bundle, OpaqueDevice())
    check = cache_check(graphs, cases[0], settings, "rollouts 3")
    assert check.passed, check
    assert check.figure is not None
    assert check.figure > 0.0  # something was compared


def test_a_handle_has_no_elements() -> None:
    buffer = OpaqueDevice().zeros((4, 2), np.dtype(np.float32))
    with pytest.raises(TypeError):
        buffer[0]  # type: ignore[index]
    assert not hasattr(buffer, "__array__")
    assert not hasattr(buffer, "__array_interface__")


def test_memory_does_not_grow_from_frame_to_frame(planner, cases) -> None:
    device = OpaqueDevice()
    decoder = Decoder(opaque_graphs(planner.bundle, device), None)
    settings = DecodeSettings("dflash", block=8, rollouts=4, sampling=SAMPLED)
    held = []
    for i in range(6):
        case = cases[i % len(cases)]
        decoder.decode(case.prompt, case.scaffold, replace(settings, frame=i % 3), case.fork_at)
        held.append(device.nbytes)
    assert held[-1] == held[-3]


@pytest.mark.parametrize("kv_heads", [1, 3])
def test_rows_that_are_not_aligned_are_left_out_and_masked(kv_heads) -> None:
    """Rows of 32 and 96 bytes: a pass may only begin at every eighth row of a single rollout."""
    from runtime.bundle import AttentionDims

    dims = AttentionDims(layers=1, heads=kv_heads, kv_heads=kv_heads, head_dim=8)
    device = OpaqueDevice()
    cache, twin = TwoPartCache(dims, 96, 96, device), TwoPartCache(dims, 96, 96)
    rng = np.random.default_rng(kv_heads)

    def run(rows: int) -> None:
        n = cache.rollouts
        holds = rng.random((n, rows)) < 0.6
        ours, theirs = cache.reserve(rows), twin.reserve(rows)
        for mine, his in zip(ours, theirs, strict=True):
            assert mine.address % device.alignment == 0
            content = rng.normal(size=his.shape).astype(np.float32)
            his[...] = content
            device.copy(device.to_device(content), mine)
        cache.commit(holds)
        twin.commit(holds)
        compare()

    def compare() -> None:
        from runtime.proof.cache import valid_rows

        cache.check_integrity()
        for n in range(cache.rollouts):
            for mine, his in zip(valid_rows(cache, n), valid_rows(twin, n), strict=True):
                np.testing.assert_array_equal(mine, his)

    for rows in (5, 3, 7):
        run(rows)
    assert cache.trunk.used > twin.trunk.used
    cache.fork(4)
    twin.fork(4)
    for rows in (3, 1, 6):
        run(rows)
    for kept in ([0, 2, 3], [1, 2]):
        cache.keep(np.asarray(kept))
        twin.keep(np.asarray(kept))
        compare()
        run(5)
    for _ in range(6):  # until a branch is full and compacted
        run(16)


def test_a_gather_is_its_definition() -> None:
    device = OpaqueDevice()
    rng = np.random.default_rng(0)
    for _ in range(100):
        a, b, w = rng.integers(1, 7, 3)
        n, c = rng.integers(1, 6, 2)
        array = rng.normal(size=(a, b, w)).astype(np.float32)
        other = rng.normal(size=(b, a, w)).astype(np.float32)
        rows, more = rng.integers(0, a * b, (n, c)), rng.integers(0, a * b, (n, 2))
        if rng.random() < 0.5:
            rows.sort(axis=int(rng.integers(2)))
        parts = [(device.to_device(array), rows), (device.to_device(other), more)]
        found = device.to_host(device.gather(parts))
        wanted = np.concatenate([array.reshape(-1, w)[rows], other.reshape(-1, w)[more]], axis=1)
        np.testing.assert_array_equal(found, wanted)


def test_a_gather_of_nothing_copies_nothing() -> None:
    device = OpaqueDevice()
    before = device.copies
    found = device.gather([(device.zeros((3, 2, 5), np.dtype(np.float32)), np.zeros((1, 0), int))])
    assert found.shape == (1, 0, 5)
    assert device.copies == before


def test_regular_gathers_are_few_copies() -> None:
    device = OpaqueDevice()
    cache = device.zeros((40, 8, 3), np.dtype(np.float32))  # [T, N, row]
    counts: dict[str, int] = {}

    def count(what: str, rows: np.ndarray) -> None:
        before = device.copies
        device.gather([(cache, rows)])
        counts[what] = device.copies - before

    time, all_rows = np.arange(30)[:, None] * 8, np.arange(320).reshape(40, 8)
    count("everything", all_rows)
    count("a chain of each rollout", np.arange(8)[:, None] * 40 + np.arange(5))
    count("neighbouring rollouts stay", time + np.asarray([2, 3, 4]))
    count("scattered rollouts stay", time + np.asarray([0, 3, 4, 7]))
    assert counts == {
        "everything": 1,
        "a chain of each rollout": 1,
        "neighbouring rollouts stay": 1,
        "scattered rollouts stay": 3,
    }


def write_double(path) -> None:
    import onnx
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "double",
        [value("x", TensorProto.FLOAT, ["N", 2])],
        [value("y", TensorProto.FLOAT, ["N", 2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.save_model(model, path)


@pytest.fixture
def double(tmp_path) -> Callable[[], QueuedEngine]:
    path = tmp_path / "double.onnx"
    write_double(path)
    return lambda: QueuedEngine(path, OpaqueDevice(), ["CPUExecutionProvider"])


def test_a_pass_sees_the_host_array_as_it_was_when_the_pass_was_asked_for(double) -> None:
    engine = double()
    device = engine.device
    kept = device.zeros((3, 1, 2), np.dtype(np.float32))
    for i in range(3):
        fed = np.full((1, 2), i, np.float32)
        engine.run({"x": fed}, {"y": device.view(kept, 2 * i, (1, 2))}) if i == 0 else engine.run(
            {"x": fed}, {}
        )
        fed[:] = 99.0  # the caller goes on while the pass waits
    assert device.to_host(engine.run({"x": fed}, {})["y"]).tolist() == [[198.0, 198.0]]
    assert device.to_host(kept)[0].tolist() == [[0.0, 0.0]]


def test_floats_are_cast_on_the_way_and_integers_are_not(double) -> None:
    engine = double()
    half = np.asarray([[1.5, 2.5]], np.float16)
    assert engine.device.to_host(engine.run({"x": half}, {})["y"]).tolist() == [[3.0, 5.0]]
    with pytest.raises(EngineError, match="input x has the wrong dtype"):
        engine.run({"x": np.ones((1, 2), np.int32)}, {})


def test_wrong_buffers_are_named(double) -> None:
    engine = double()
    device = engine.device
    good = np.ones((2, 2), np.float32)
    cases = [
        ("input x is missing", {}, {}),
        ("input x has the wrong rank", {"x": good[0]}, {}),
        ("input x has the wrong shape", {"x": np.ones((2, 3), np.float32)}, {}),
        ("output y does not fit", {"x": good}, {"y": device.zeros((3, 2), good.dtype)}),
        ("output y does not fit", {"x": good}, {"y": device.zeros((2, 2), np.dtype(np.int32))}),
        ("output z is unknown", {"x": good}, {"z": device.zeros((2, 2), good.dtype)}),
        ("input x has the wrong dtype", {"x": device.zeros((2, 2), np.dtype(np.float16))}, {}),
    ]
    for message, fed, into in cases:
        with pytest.raises(EngineError, match=message):
            engine.run(fed, into)
    assert device.to_host(engine.run({"x": good}, {})["y"]).tolist() == [[2.0, 2.0]] * 2


def test_a_layout_of_sums() -> None:
    f32 = np.dtype(np.float32)
    layout = Layout(
        "graph.onnx",
        {"a": TensorSpec("a", f32, ("T", 2)), "b": TensorSpec("b", f32, ("T+S", "S"))},
        {"c": TensorSpec("c", f32, ("S", 2))},
    )
    assert layout.output_shapes({"a": (3, 2), "b": (5, 2)}) == {"c": (2, 2)}
    with pytest.raises(EngineError, match="input b has the wrong shape"):
        layout.output_shapes({"a": (3, 2), "b": (6, 2)})
