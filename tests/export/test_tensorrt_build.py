"""Real TensorRT-RTX builds of the shipped bundle for SM86, here, without a GPU."""

from __future__ import annotations

import json
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import slipstream
from export.bundle import export_bundle
from export.engines import memory
from export.engines.builder import build_engine, capabilities_in
from export.engines.compile import Compiled, compile_graph, plan_builds
from export.engines.flavours import Library, choose_library, load_library, parse_target
from export.engines.graphs import ReadyGraph, ready_graph, weight_bytes
from export.engines.options import BuildOptions, parse_pools
from export.graphs.precision import is_cache
from runtime.bundle import Bundle, GraphName, Limits
from runtime.engines.profiles import Profile, default_profiles
from runtime.engines.store import EngineStore, Precision
from runtime.errors import EngineError, SlipstreamError
from runtime.files import sha256

pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed: pip install '.[rtx]'")
GRAPHS: tuple[GraphName, ...] = ("embed", "target", "draft", "head")
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16")
BUNDLE = Bundle.open(slipstream.shipped_bundle())
Engines = dict[tuple[Precision, GraphName], Compiled]


def quiet(phase: str, done: float) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def library() -> Library:
    return load_library("tensorrt_rtx")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EngineStore:
    return EngineStore(tmp_path_factory.mktemp("engines"), BUNDLE.folder)


@pytest.fixture(scope="module")
def phases() -> list[tuple[str, float]]:
    return []


@pytest.fixture(scope="module")
def engines(library: Library, store: EngineStore, phases: list[tuple[str, float]]) -> Engines:
    """Every graph of the bundle in fp32 and fp16."""
    found: Engines = {}
    for precision in PRECISIONS:
        options = BuildOptions(precision, level=2)
        for planned in plan_builds(BUNDLE, library, "8.6", options, store):
            assert not planned.present

            def watch(phase: str, done: float) -> None:
                phases.append((phase, done))

            found[precision, planned.graph] = compile_graph(
                BUNDLE, library, planned, options, store, watch
            )
    return found


def recorded(store: EngineStore, compiled: Compiled) -> list[dict[str, object]]:
    layers: list[dict[str, object]] = json.loads(store.layers(compiled.path) or "{}")["layers"]
    return layers


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_engine_has_the_graph_s_inputs_and_outputs(
    engines: Engines, graph: GraphName, precision: Precision
) -> None:
    sidecar = engines[precision, graph].sidecar
    model = onnx.load(BUNDLE.graph_path(graph), load_external_data=False)
    assert list(sidecar.inputs) == [value.name for value in model.graph.input]
    assert list(sidecar.outputs) == [value.name for value in model.graph.output]
    plan = engines[precision, graph].path.read_bytes()
    for tensor in sidecar.tensors:
        assert tensor.name.encode() in plan  # the file itself names it
        integer = tensor.name in ("tokens", "top_tokens") or tensor.name.endswith("positions")
        low = precision == "fp16" and is_cache(tensor.name)
        assert tensor.dtype == ("int32" if integer else "float16" if low else "float32")
    assert sidecar.profiles == default_profiles(BUNDLE.manifest, graph)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("graph", GRAPHS)
def test_an_engine_s_layers_compute_in_the_precision(
    engines: Engines, store: EngineStore, graph: GraphName, precision: Precision
) -> None:
    layers = recorded(store, engines[precision, graph])
    assert len(layers) == engines[precision, graph].sidecar.layers > 0
    products = [layer for layer in layers if layer["type"] == "gemm"]
    text = json.dumps(layers)
    assert ("Half" in text) == (precision == "fp16" and graph != "embed")
    if graph == "embed":
        return
    assert products
    wanted = "Half" if precision == "fp16" else "Float"
    reads = {
        tensor["dtype"]
        for layer in products
        for tensor in layer["inputs"]  # type: ignore[attr-defined]
    }
    assert reads == {wanted}


@pytest.mark.parametrize("graph", ["target", "draft"])
def test_norms_and_softmax_stay_in_fp32_in_an_fp16_engine(
    engines: Engines, store: EngineStore, graph: GraphName
) -> None:
    """What comes out of a square root, an exponential or a mean is fp32, or cast in that kernel."""
    found = 0
    for layer in recorded(store, engines["fp16", graph]):
        kernel = re.match(r"__myl_(\w+?)_myl", str(layer["name"]))
        if kernel and re.search("Sqrt|Exp|Mean", kernel.group(1)) and "Cast" not in kernel.group(1):
            found += 1
            assert {tensor["dtype"] for tensor in layer["outputs"]} <= {"Float"}  # type: ignore[attr-defined]
    assert found


def test_the_file_says_which_gpu_it_is_for(engines: Engines) -> None:
    for compiled in engines.values():
        assert capabilities_in(compiled.path) == {"sm86"}
        assert capabilities_in(compiled.path.read_bytes()) == {"sm86"}


def test_a_build_is_measured(engines: Engines, phases: list[tuple[str, float]]) -> None:
    for (precision, graph), compiled in engines.items():
        sidecar = compiled.sidecar
        weights = weight_bytes(BUNDLE, graph, precision)
        assert sidecar.size > weights // 4
        assert sidecar.sha256 == sha256(compiled.path)
        assert sidecar.peak_host_bytes > 0
        assert sidecar.device_bytes is not None
        assert len(sidecar.device_bytes) == len(sidecar.profiles)
        assert sidecar.builder_seconds > 0
        assert not sidecar.warnings
    assert {phase for phase, _ in phases} >= {"Building engine", "Optimizing graph"}
    assert max(done for _, done in phases) == 1.0


def test_fp16_halves_the_target(engines: Engines) -> None:
    whole, half = (engines[p, "target"].sidecar.size for p in PRECISIONS)
    saved = weight_bytes(BUNDLE, "target", "fp32") - weight_bytes(BUNDLE, "target", "fp16")
    assert whole - half > 0.8 * saved


@pytest.mark.usefixtures("engines")
def test_what_is_built_is_found_and_not_built_again(library: Library, store: EngineStore) -> None:
    options = BuildOptions("fp16", level=2)
    assert all(p.present for p in plan_builds(BUNDLE, library, "8.6", options, store))
    for other in (replace(options, level=3), replace(options, tf32=True)):
        assert not any(p.present for p in plan_builds(BUNDLE, library, "8.6", other, store))
    assert not any(p.present for p in plan_builds(BUNDLE, library, "8.9", options, store))
    path, sidecar = store.find(
        graph="head",
        graph_sha256=BUNDLE.manifest.graphs["head"].sha256,
        precision="fp16",
        flavour="tensorrt_rtx",
        version=library.version,
        compute_capability="8.6",
    )
    assert sidecar.key.filename == path.name


def test_a_build_by_another_process_is_waited_for_and_taken(
    library: Library, tmp_path: Path
) -> None:
    store, options = EngineStore(tmp_path / "engines"), BuildOptions("fp16", level=2)
    (planned,) = plan_builds(BUNDLE, library, "8.6", options, store, graphs=["head"])
    first = compile_graph(
        BUNDLE, library, planned, options, EngineStore(tmp_path / "elsewhere"), quiet
    )
    waiting, taken = threading.Event(), []

    def second() -> None:
        taken.append(compile_graph(BUNDLE, library, planned, options, store, quiet, waiting.set))

    thread = threading.Thread(target=second)
    with store.building(planned.key, lambda: None):
        thread.start()
        assert waiting.wait(60)
        store.put(planned.key, first.path.read_bytes(), first.sidecar)
    thread.join(60)
    assert [compiled.built for compiled in taken] == [False]
    assert taken[0].sidecar == first.sidecar


def test_a_sidecar_tells_how_to_build_it_again(library: Library, tmp_path: Path) -> None:
    options = BuildOptions("fp16", level=1, pools={"workspace": 1 << 28}, tf32=True)
    store = EngineStore(tmp_path)
    (planned,) = plan_builds(
        BUNDLE, library, "8.6", options, store, graphs=["head"], profiles=["decode:N=1:2:4"]
    )
    compiled = compile_graph(BUNDLE, library, planned, options, store, quiet)
    compiled.path.write_bytes(b"")
    with pytest.raises(EngineError) as told:
        EngineStore(tmp_path).check(compiled.path)
    assert told.value.fix == (
        f"slipstream compile {BUNDLE.folder} --target sm86 --precision fp16 --flavour tensorrt-rtx "
        "--graph head --profile=decode:N=1:2:4,S=1:24:65 --memory-pool=workspace:268435456B "
        f"--optimization-level=1 --tf32 --engines {tmp_path}"
    )


def test_activations_stay_near_the_scores(
    library: Library, target: Path, drafter: Path, tmp_path: Path
) -> None:
    """A size in a graph that TensorRT has to guess is taken as the largest that it could be."""
    limits = Limits(trunk=192, branch=32, rollouts=4, max_position=256)
    export_bundle(target, drafter, tmp_path / "bundle", limits=limits, check_parity=False)
    bundle, options = Bundle.open(tmp_path / "bundle"), BuildOptions("fp32")
    store = EngineStore(tmp_path / "engines")
    (planned,) = plan_builds(bundle, library, "8.6", options, store, graphs=["target"])
    sizes = compile_graph(bundle, library, planned, options, store, quiet).sidecar.device_bytes
    assert sizes is not None
    heads = bundle.manifest.target.heads
    for profile, size in zip(planned.profiles, sizes, strict=True):
        n, s, p, t = (profile.dims[dim][2] for dim in "NSPT")
        scores = 4 * n * heads * s * (p + t + s)
        assert size < (20 << 20) + 8 * scores  # products have some memory of their own


def test_a_graph_with_older_operators_builds_as_well(library: Library) -> None:
    """What a Jetson's older parser is given."""
    with ready_graph(BUNDLE, "draft", "fp16", lambda operator: False) as graph:
        kinds = {node.op_type for node in onnx.load(graph.path).graph.node}
        assert not kinds & {"RMSNormalization", "RotaryEmbedding"}
        built, _ = build_engine(
            library,
            graph,
            default_profiles(BUNDLE.manifest, "draft"),
            BuildOptions("fp16", level=0),
            "8.6",
            quiet,
        )
    assert built.layers
    assert not graph.path.exists()


def quantized_head(folder: Path) -> Bundle:
    """The shipped bundle with Q/DQ nodes around the head's product."""
    shutil.copytree(BUNDLE.folder, folder)
    path = folder / BUNDLE.manifest.graphs["head"].file
    model = onnx.load(path)
    graph = model.graph
    (product,) = [node for node in graph.node if node.op_type == "MatMul"]
    for name, value in (("scale", np.float32(0.05)), ("zero", np.int8(0))):
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    at = list(graph.node).index(product)
    for number, tensor in enumerate(list(product.input)):
        for kind, source, out in (
            ("QuantizeLinear", tensor, f"q{number}"),
            ("DequantizeLinear", f"q{number}", f"dq{number}"),
        ):
            graph.node.insert(at, helper.make_node(kind, [source, "scale", "zero"], [out]))
            at += 1
        product.input[number] = f"dq{number}"
        graph.node[at].input[number] = f"dq{number}"
    onnx.save(model, path)
    entry = BUNDLE.manifest.graphs["head"].model_copy(update={"sha256": sha256(path)})
    graphs = BUNDLE.manifest.graphs | {"head": entry}
    manifest = BUNDLE.manifest.model_copy(update={"graphs": graphs})
    (folder / "bundle.json").write_text(manifest.model_dump_json())
    return Bundle.open(folder)


def test_int8_takes_its_types_from_the_graph(
    tmp_path: Path, library: Library, store: EngineStore
) -> None:
    bundle, options = quantized_head(tmp_path / "bundle"), BuildOptions("int8")
    (planned,) = plan_builds(bundle, library, "8.6", options, store, graphs=["head"])
    compiled = compile_graph(bundle, library, planned, options, store, quiet)
    assert "Int8" in json.dumps(recorded(store, compiled))
    (plain,) = plan_builds(BUNDLE, library, "8.6", options, store, graphs=["head"])
    with pytest.raises(EngineError, match="says nowhere what to quantize") as error:
        compile_graph(BUNDLE, library, plain, options, store, quiet)
    assert "QuantizeLinear" in error.value.expected


def test_a_pool_that_is_too_small_is_named(library: Library, store: EngineStore) -> None:
    options = BuildOptions("fp32", pools=parse_pools(["workspace:1M"]))
    (planned,) = plan_builds(BUNDLE, library, "8.6", options, store, graphs=["head"])
    with pytest.raises(EngineError, match="does not fit the memory pool") as error:
        compile_graph(BUNDLE, library, planned, options, store, quiet)
    assert "--memory-pool workspace:" in error.value.fix
    assert not store.path(planned.key).exists()


def test_a_graph_that_can_t_be_parsed_is_named_with_its_node(
    tmp_path: Path, library: Library
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="nothing", domain="made.up")
    path = tmp_path / "made-up.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y])), path)
    graph = ReadyGraph(path, 4, {"x": ["N"], "y": ["N"]})
    profile = Profile(name="decode", dims={"N": (1, 1, 2)})
    with pytest.raises(EngineError, match=r"made-up.onnx can't be parsed") as error:
        build_engine(library, graph, [profile], BuildOptions("fp32"), "8.6", quiet)
    assert "NoSuchOperator" in error.value.found


def test_memory_that_does_not_suffice_is_refused_before_the_build(
    monkeypatch: pytest.MonkeyPatch, library: Library, store: EngineStore
) -> None:
    assert memory.check("target", 1 << 30, None) == memory.BASE_BYTES + (4 << 30)
    with pytest.raises(EngineError, match="would not fit this machine's memory") as error:
        memory.check("target", 1 << 30, 2 << 30)
    assert error.value.expected.startswith("4.8 GiB")
    assert error.value.found == "2.0 GiB available"
    assert "--ignore-memory" in error.value.fix
    monkeypatch.setattr(memory, "available", lambda: 1 << 20)
    options = BuildOptions("fp32")
    (planned,) = plan_builds(BUNDLE, library, "8.6", options, store, graphs=["embed"])
    with pytest.raises(EngineError, match="would not fit"):
        compile_graph(BUNDLE, library, planned, options, store, quiet)
    compile_graph(BUNDLE, library, planned, replace(options, ignore_memory=True), store, quiet)
    assert store.path(planned.key).is_file()


def test_this_machine_has_memory_and_a_process_a_peak() -> None:
    free = memory.available()
    assert free is None or free > 1 << 20
    memory.reset_peak()
    assert memory.peak() > 1 << 20


@pytest.mark.parametrize(
    ("target", "capability"),
    [("orin", "8.7"), ("Thor", "11.0"), ("sm86", "8.6"), ("SM_120", "12.0"), ("7.5", "7.5")],
)
def test_targets_by_name_and_by_number(target: str, capability: str) -> None:
    assert parse_target(target) == capability


@pytest.mark.parametrize(
    "target", ["", "sm", "rtx4090", "86", "sm8.6", "sm\uff11\uff12", "\uff18.6"]
)
def test_other_targets_are_refused(target: str) -> None:
    with pytest.raises(SlipstreamError, match="is unknown"):
        parse_target(target)


def test_a_jetson_s_engine_is_built_on_that_jetson() -> None:
    with pytest.raises(EngineError, match="this is no sm87") as error:
        choose_library(None, "8.7", "fp16")
    assert error.value.fix == (
        "on the Jetson Orin, with the bundle copied there: "
        "slipstream compile BUNDLE --target orin --precision fp16 --flavour tensorrt"
    )
    with pytest.raises(EngineError, match="does not build for sm110"):
        choose_library("tensorrt_rtx", "11.0", "fp16")


@pytest.mark.parametrize(("capability", "precision"), [("7.5", "bf16"), ("8.6", "fp8")])
def test_a_gpu_without_the_precision_is_refused(capability: str, precision: Precision) -> None:
    with pytest.raises(EngineError, match=f"has no {precision}"):
        choose_library("tensorrt_rtx", capability, precision)
