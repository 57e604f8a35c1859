"""The number of parameters that a submission states: what the checkpoint holds, counted once."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import slipstream
from export.checkpoint import Checkpoint
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from slipstream.commands.parameters import in_words, parameter_count

BUNDLE = slipstream.shipped_bundle()
TARGET = BUNDLE.parent / "target"

pytestmark = pytest.mark.skipif(
    not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}"
)


def test_it_is_the_checkpoint_s_own() -> None:
    if not (TARGET / "config.json").is_file():
        pytest.skip(f"no checkpoint at {TARGET}")
    held = Checkpoint.open(TARGET).tensors.values()
    count = sum(math.prod(each.shape) for each in held)
    assert parameter_count(Bundle.open(BUNDLE)) == count


def test_a_head_of_its_own_is_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = Bundle.open(BUNDLE)
    tied = parameter_count(bundle)
    model = onnx.load(bundle.graph_path("head"))
    (weight,) = (each for each in model.graph.initializer if each.name.startswith("head"))
    values = numpy_helper.to_array(weight).copy()
    values[0, 0] += 1
    weight.raw_data = np.ascontiguousarray(values).tobytes()
    copy = tmp_path / "bundle"
    shutil.copytree(BUNDLE, copy)
    onnx.save(model, copy / "head.onnx")
    paths = bundle.manifest.graphs
    monkeypatch.setattr(Bundle, "graph_path", lambda self, name: copy / paths[name].file)
    assert parameter_count(bundle) == tied + math.prod(weight.dims)
    (copy / "head.onnx").write_bytes(b"no graph")
    with pytest.raises(SlipstreamError, match=r"head\.onnx can't be read"):
        parameter_count(bundle)


@pytest.mark.parametrize(
    ("count", "words"),
    [(3, "1K"), (7_540_800, "7541K"), (12_400_000, "12M"), (8_200_000_000, "8200M")],
)
def test_in_words(count: int, words: str) -> None:
    assert in_words(count) == words
