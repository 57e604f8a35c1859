"""`slipstream doctor` on bundles whose hashes are right and whose graphs are not."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from runtime.bundle import Bundle
from runtime.engines.onnx import OnnxEngine
from runtime.errors import EngineError
from slipstream import shipped_bundle
from slipstream.doctor import health
from slipstream.doctor.health import check_bundle


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(shipped_bundle(), tmp_path / "bundle")
    return tmp_path / "bundle"


def replace_graph(folder: Path, name: str, model: onnx.ModelProto) -> None:
    """Put a graph in a bundle as an exporter would, with its hash."""
    onnx.save(model, folder / f"{name}.onnx")
    manifest = json.loads((folder / "bundle.json").read_text())
    digest = hashlib.sha256((folder / f"{name}.onnx").read_bytes()).hexdigest()
    manifest["graphs"][name]["sha256"] = digest
    (folder / "bundle.json").write_text(json.dumps(manifest))


def test_every_graph_of_a_healthy_bundle_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: set[str] = set()

    class Noted(health.FiniteEngine):
        def run(self, feeds, into):  # type: ignore[no-untyped-def]
            ran.add(self.path.stem)
            return super().run(feeds, into)

    monkeypatch.setattr(health, "FiniteEngine", Noted)
    assert check_bundle(shipped_bundle()) is None
    assert ran == set(Bundle.open(shipped_bundle()).manifest.graphs)


@pytest.mark.parametrize("graph", ["embed", "target", "draft", "head"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_graph_that_computes_no_numbers_is_a_fault(copy: Path, graph: str, bad: float) -> None:
    model = onnx.load(copy / f"{graph}.onnx")
    output = next(out for out in model.graph.output if out.type.tensor_type.elem_type == 1)
    for node in model.graph.node:
        node.output[:] = ["clean" if name == output.name else name for name in node.output]
        node.input[:] = ["clean" if name == output.name else name for name in node.input]
    model.graph.initializer.append(numpy_helper.from_array(np.float32(bad), "bad"))
    model.graph.node.append(helper.make_node("Add", ["clean", "bad"], [output.name]))
    replace_graph(copy, graph, model)
    fault = check_bundle(copy)
    assert fault is not None
    assert f"{graph}.onnx computes no finite numbers here" in fault.what
    assert "slipstream export" in fault.fix


def test_an_embedding_of_int64_tokens_is_a_fault(copy: Path) -> None:
    model = onnx.load(copy / "embed.onnx")
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    replace_graph(copy, "embed", model)
    fault = check_bundle(copy)
    assert fault is not None
    assert "embed.onnx: input tokens has the wrong dtype" in fault.what
    assert "slipstream export" in fault.fix
    engine = OnnxEngine(copy / "embed.onnx", threads=1)
    with pytest.raises(EngineError, match=r"to mend it: .*slipstream export"):
        engine.run({"tokens": np.zeros((1, 1), np.int32)}, {})


def test_a_missing_input_is_a_fault(copy: Path) -> None:
    model = onnx.load(copy / "target.onnx")
    extra = helper.make_tensor_value_info("extra", TensorProto.FLOAT, [1])
    model.graph.input.append(extra)
    replace_graph(copy, "target", model)
    fault = check_bundle(copy)
    assert fault is not None
    assert "input extra is missing" in fault.what


def test_a_bundle_without_a_language_is_a_fault(copy: Path) -> None:
    manifest = json.loads((copy / "bundle.json").read_text())
    (copy / "bundle.json").write_text(json.dumps({**manifest, "language": None}))
    fault = check_bundle(copy)
    assert fault is not None
    assert "names no language" in fault.what
