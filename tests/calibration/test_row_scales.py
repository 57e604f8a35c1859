"""Rows that are scaled one by one: equal in fp32, and each row what it would be alone."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

from calibration.bundle import write_bundle
from calibration.cpu import WAYS, How, quantize_for_cpu
from calibration.fold import folded
from calibration.products import weight_products
from calibration.row_scales import unit_rows, with_row_scales
from export.graphs.storage import save_graph
from runtime.bundle import Bundle
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.graphs import Graphs
from runtime.proof.cache import cache_check
from runtime.proof.cases import outputs
from runtime.proof.identity import identity_check
from runtime.proof.results import Check
from runtime.settings import DecodeSettings
from slipstream.commands.verify import cases_of
from tests.calibration.passes import Arrays, difference, run
from tests.calibration.recorded import graph, planner, recording, windows

TARGET = graph("target")


def first_row(feeds: Arrays) -> Arrays:
    """The same pass with its first new row alone, which sees no other one."""
    rows = feeds["embeddings"].shape[1]
    alone = {name: feeds[name][:, :1] for name in ("embeddings", "positions")}
    bias = feeds["branch_bias"]
    cached = bias.shape[2] - rows
    assert (bias[:, 0, cached + 1 :] < -1e4).all()
    alone["branch_bias"] = bias[:, :1, : cached + 1]
    return {**feeds, **{name: np.ascontiguousarray(array) for name, array in alone.items()}}


def test_nothing_changes_in_fp32(tmp_path: Path) -> None:
    model = folded(onnx.load(TARGET))
    products = weight_products(model)
    some = products[::2]
    save_graph(with_row_scales(model, some), tmp_path / "scaled.onnx")
    onnx.checker.check_model(tmp_path / "scaled.onnx", full_check=True)
    for kind in ("prefill", "verify", "single"):
        feeds = recording().feeds("target", kind)[0]  # type: ignore[arg-type]
        wanted, found = run(TARGET, feeds), run(tmp_path / "scaled.onnx", feeds)
        assert max(difference(found[name], wanted[name]) for name in wanted) < 1e-5
    scaled = onnx.load(tmp_path / "scaled.onnx")
    read = {node.name: node.input[0] for node in scaled.graph.node}
    for product in products:
        unit = product in some
        assert read[product.node] == (unit_rows(product.rows_in) if unit else product.rows_in)


def test_a_row_of_zeros_stays_one(tmp_path: Path) -> None:
    model = folded(onnx.load(graph("head")))
    save_graph(with_row_scales(model, weight_products(model)), tmp_path / "head.onnx")
    hidden = np.random.default_rng(0).standard_normal((1, 3, 320)).astype(np.float32)
    hidden[0, 1] = 0.0
    out = run(tmp_path / "head.onnx", {"hidden": hidden})["top_logits"]
    assert (out[0, 1] == 0.0).all()
    assert np.isfinite(out).all()


@pytest.mark.parametrize("how", WAYS["int8"])
def test_a_row_does_not_depend_on_those_beside_it(how: How, tmp_path: Path) -> None:
    """With one scale for a whole pass it would by a few per cent, and drafts would change plans."""
    path = tmp_path / "target.onnx"
    quantize_for_cpu(TARGET, path, "int8", how, feeds=recording().feeds("target")[:3])
    feeds = recording().feeds("target", "verify")[0]
    many, one = run(path, feeds)["hidden"][:, :1], run(path, first_row(feeds))["hidden"]
    assert difference(one, many) < 1e-5
    assert difference(one, run(TARGET, first_row(feeds))["hidden"]) > 1e-3  # it is quantized


def with_target(path: Path, folder: Path) -> Graphs:
    """The shipped bundle's graphs with another target, as an int8 bundle."""
    write_bundle(planner().bundle, folder, {"target": path}, {"target": "int8"})
    return Graphs(Bundle.open(folder), lambda each: OnnxEngine(each, threads=1))


def proved(graphs: Graphs) -> tuple[list[Check], Check]:
    """Greedy drafts against `ar`, and the caches after every round, as `slipstream verify` does."""
    drafted = DecodeSettings(method="dflash", block=24)
    cases = cases_of(planner(), windows()[100::400])
    greedy = []
    for case in cases:
        decoder = Decoder(graphs, None)
        plain = outputs(decoder, [case], DecodeSettings(method="ar"))
        greedy.append(identity_check(decoder, [case], plain, drafted, "block 24"))
    return greedy, cache_check(graphs, cases[0], drafted, "block 24")


def test_drafts_stay_lossless_in_int8(tmp_path: Path) -> None:
    quantize_for_cpu(TARGET, tmp_path / "target.onnx", "int8", "dynamic")
    greedy, caches = proved(with_target(tmp_path / "target.onnx", tmp_path / "int8"))
    assert all(check.passed for check in greedy)
    assert caches.passed
    assert (caches.figure or 0.0) < 0.1


def test_with_one_scale_for_a_pass_they_would_not(tmp_path: Path) -> None:
    """The library's own dynamic quantization, which nothing here writes."""
    save_graph(folded(onnx.load(TARGET)), tmp_path / "folded.onnx")
    library = import_module("onnxruntime.quantization")
    library.quantize_dynamic(
        tmp_path / "folded.onnx",
        tmp_path / "target.onnx",
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=library.QuantType.QInt8,
    )
    _, caches = proved(with_target(tmp_path / "target.onnx", tmp_path / "int8"))
    assert not caches.passed
    assert (caches.figure or 0.0) > 0.4  # measured 0.7 to 2.2
