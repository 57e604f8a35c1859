"""A bundle with replaced graphs: whole, checked, described, and planning."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest

import slipstream
from calibration.bundle import write_bundle
from calibration.cpu import WAYS, How, quantize_for_cpu
from drives.open import open_drive
from drives.windows import windows
from export.engines.graphs import ready_graph
from export.graphs.storage import save_graph
from runtime.bundle import Bundle, Calibration, GraphName
from runtime.calibrated import CalibratedGraph
from runtime.errors import BundleError, SlipstreamError
from runtime.files import sha256
from runtime.settings import DecodeSettings
from slipstream.estimate.bundle_shape import shape_of
from tests.calibration.passes import BUNDLE, feeds_of
from tests.slipstream.command import command

RECORD = Calibration(
    precision="int8",
    graphs={
        "target": CalibratedGraph(way="dynamic", quantized=25, kept=0),
        "head": CalibratedGraph(way="plain", quantized=0, kept=1),
    },
    smooth=0.5,
    source=BUNDLE.key,
    drives=["synthetic"],
    windows=8,
    gates="forced",
    failed=["acceptance length"],
    figures={"ADE@5s change, m": 0.013},
)


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped planner's target in INT8."""
    path = tmp_path_factory.mktemp("int8") / "any.onnx"
    quantize_for_cpu(BUNDLE.graph_path("target"), path, "int8", "dynamic")
    return path


@pytest.fixture(scope="module")
def bundle(int8: Path) -> Path:
    out = int8.parent / "bundle"
    write_bundle(BUNDLE, out, {"target": int8}, {"target": "int8"}, RECORD)
    return out


def test_what_is_replaced_is_new_and_all_else_a_copy(int8: Path, bundle: Path) -> None:
    opened = Bundle.open(bundle)
    old, new = BUNDLE.manifest, opened.manifest
    assert sorted(os.listdir(bundle)) == sorted(os.listdir(BUNDLE.folder))
    for name in os.listdir(bundle):
        same = sha256(bundle / name) == sha256(BUNDLE.folder / name)
        assert same == (name not in ("target.onnx", "bundle.json")), name
    assert new.graphs["target"].precision == "int8"
    assert new.graphs["target"].sha256 == sha256(int8)
    assert {n: g for n, g in new.graphs.items() if n != "target"} == {
        n: g for n, g in old.graphs.items() if n != "target"
    }
    assert new.name == "tiny-int8"
    assert new.provenance.calibration == RECORD
    assert new.provenance.weights == old.provenance.weights
    assert opened.key != BUNDLE.key


def test_it_plans_as_the_old_one_does(bundle: Path) -> None:
    window = windows(open_drive("synthetic"))[20]
    plans = [
        slipstream.load(folder, threads=1).plan(window.observation, DecodeSettings(method="ar"))
        for folder in (BUNDLE.folder, bundle)
    ]
    assert plans[1].trajectory is not None
    gap = np.linalg.norm(np.asarray(plans[1].trajectory) - np.asarray(plans[0].trajectory), axis=1)
    assert gap.max() < 3.0
    assert (plans[0].tokens == plans[1].tokens).mean() > 0.8


def test_weights_beside_a_graph_come_along(int8: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.onnx"
    save_graph(onnx.load(int8), large, external_above=0)
    manifest = write_bundle(BUNDLE, tmp_path / "out", {"target": large}, {"target": "int8"})
    assert set(manifest.graphs["target"].external) == {"target.onnx.data"}
    assert manifest.name == "tiny"
    assert manifest.provenance.calibration is None
    Bundle.open(tmp_path / "out")
    assert slipstream.load(tmp_path / "out", threads=1).bundle.manifest == manifest
    shutil.move(tmp_path / "out", tmp_path / "elsewhere")
    # and from such a bundle, when another graph is replaced
    again = write_bundle(
        Bundle.open(tmp_path / "elsewhere"),
        tmp_path / "again",
        {"head": BUNDLE.graph_path("head")},
        {"head": "fp32"},
    )
    assert again.graphs["target"] == manifest.graphs["target"]
    Bundle.open(tmp_path / "again")


def test_old_manifests_still_load_and_unknown_precisions_do_not(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(BUNDLE.folder, folder)
    raw = json.loads((folder / "bundle.json").read_text())
    raw["provenance"].pop("calibration", None)
    (folder / "bundle.json").write_text(json.dumps(raw))
    assert Bundle.open(folder).manifest.provenance.calibration is None
    for precision in ("int4", "fp8", "nvfp4"):
        raw["graphs"]["target"]["precision"] = precision
        (folder / "bundle.json").write_text(json.dumps(raw))
        assert Bundle.open(folder).manifest.graphs["target"].precision == precision
    raw["graphs"]["target"]["precision"] = "int3"
    (folder / "bundle.json").write_text(json.dumps(raw))
    with pytest.raises(BundleError, match="precision is not valid"):
        Bundle.open(folder)


def test_a_graph_with_another_contract_is_refused(int8: Path, tmp_path: Path) -> None:
    model = onnx.load(int8)
    model.graph.output[0].name = "other"
    for node in model.graph.node:
        for index, name in enumerate(node.output):
            if name == "hidden":
                node.output[index] = "other"
    onnx.save_model(model, tmp_path / "other.onnx")
    out = tmp_path / "out"
    with pytest.raises(SlipstreamError, match="can't stand for the graph target: its outputs"):
        write_bundle(BUNDLE, out, {"target": tmp_path / "other.onnx"}, {"target": "int8"})
    with pytest.raises(SlipstreamError, match="can't stand for the graph head: its inputs"):
        write_bundle(BUNDLE, out, {"head": int8}, {"head": "int8"})
    with pytest.raises(SlipstreamError, match="has no graph vision"):
        write_bundle(BUNDLE, out, {"vision": int8}, {"vision": "int8"})
    assert not out.exists()


def test_the_source_and_other_folders_are_left_alone(int8: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(BUNDLE.folder, folder)
    with pytest.raises(SlipstreamError, match="is the bundle that is to be quantized"):
        write_bundle(Bundle.open(folder), folder, {"target": int8}, {"target": "int8"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for out in (tmp_path / "mine", tmp_path / "mine" / "notes.txt"):
        with pytest.raises(SlipstreamError, match="not replaced by a bundle"):
            write_bundle(BUNDLE, out, {"target": int8}, {"target": "int8"})
    assert sorted(os.listdir(tmp_path)) == ["bundle", "mine"]
    write_bundle(BUNDLE, folder, {"target": int8}, {"target": "int8"})  # an earlier bundle
    assert Bundle.open(folder).manifest.graphs["target"].precision == "int8"


def test_inspect_says_what_was_quantized(bundle: Path, tmp_path: Path) -> None:
    done = command("inspect", str(bundle), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in (
        "int8, smoothed with 0.5 on 8 windows of synthetic",
        "target: dynamic, 25 of 25 weight products",
        "head: plain, 0 of 1 weight products",
        "not passed, written all the same: acceptance length",
        "ADE@5s change, m 0.013",
    ):
        assert part in done.stdout
    found = json.loads(command("inspect", str(bundle), "--json", cwd=tmp_path).stdout)
    assert found["graphs"]["target"]["precision"] == "int8"
    assert found["graphs"]["target"]["weights"]["int8"] > 7_000_000


def test_inspect_knows_four_bits_by_their_node(tmp_path: Path) -> None:
    quantize_for_cpu(BUNDLE.graph_path("target"), tmp_path / "q.onnx", "int4", "weights")
    write_bundle(BUNDLE, tmp_path / "out", {"target": tmp_path / "q.onnx"}, {"target": "int4"})
    found = json.loads(command("inspect", "out", "--json", cwd=tmp_path).stdout)
    weights = found["graphs"]["target"]["weights"]
    assert 3_600_000 < weights["int4"] < 3_800_000
    assert "int8" not in weights


@pytest.mark.parametrize(("precision", "how"), [(p, how) for p in WAYS for how in WAYS[p]])
def test_an_estimate_sees_the_same_matrices(
    precision: Literal["int8", "int4"], how: How, tmp_path: Path
) -> None:
    graphs: dict[GraphName, Path] = {}
    for graph in ("target", "draft"):
        graphs[graph] = path = tmp_path / f"{graph}.onnx"
        source = BUNDLE.graph_path(graph)
        quantize_for_cpu(source, path, precision, how, feeds=[feeds_of(graph)])
    write_bundle(BUNDLE, tmp_path / "out", graphs, dict.fromkeys(graphs, precision))
    found, wanted = shape_of(Bundle.open(tmp_path / "out")), shape_of(BUNDLE)
    assert (found.target, found.draft) == (wanted.target, wanted.draft)
    assert found.stored < 0.62 * wanted.stored


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_graphs_for_cpus_are_not_given_to_tensorrt(bundle: Path, precision: str) -> None:
    opened = Bundle.open(bundle)
    with (
        pytest.raises(SlipstreamError, match="was quantized for CPUs"),
        ready_graph(opened, "target", precision, lambda _: True),  # type: ignore[arg-type]
    ):
        pass
