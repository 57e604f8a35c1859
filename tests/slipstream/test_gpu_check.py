"""The GPU check's verdicts, and what it says where there is no GPU."""

from __future__ import annotations

import json
import sys

import pytest
from rich.console import Console

import slipstream
from runtime.bundle import Bundle
from runtime.engines.backend import Backend
from runtime.engines.compare import Difference
from runtime.tune import Threading
from slipstream.gpu_check import NOTHING_RAN, Part, conclude, main
from slipstream.gpu_passes import stage_seconds

RIGHT = Difference("head", "top_logits", 3, 1e-5, 1e-3)
WRONG = Difference("head", "top_logits", 3, 1e-1, 1e-3)


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([Part("cuda", not_run="no CUDA device")], NOTHING_RAN),
        ([Part("cuda", differences=[RIGHT], verified=0)], 0),
        ([Part("cuda", differences=[RIGHT], verified=0), Part("x", not_run="absent")], 0),
        ([Part("cuda", differences=[RIGHT, WRONG], verified=0)], 1),
        ([Part("cuda", differences=[RIGHT], verified=1)], 1),
        ([Part("cuda", differences=[RIGHT], failed="the pass failed")], 1),
        ([Part("cuda")], 1),  # nothing was compared
    ],
)
def test_only_what_ran_and_passed_passes(parts, code) -> None:
    console = Console(width=200, record=True)
    assert conclude(parts, console) == code
    told = console.export_text()
    assert ("nothing ran on a GPU" in told) == (code == NOTHING_RAN)
    for part in parts:
        assert part.not_run in told
        assert part.failed in told


def test_without_cuda_python_nothing_runs_and_the_exit_code_says_so(
    tmp_path, monkeypatch, capsys
) -> None:
    from runtime.engines import cuda

    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    cuda.cuda_runtime.cache_clear()
    try:
        assert main(["--out", str(tmp_path), "--ways", "cuda,tensorrt:fp16"]) == NOTHING_RAN
    finally:
        cuda.cuda_runtime.cache_clear()
    assert "cuda-python is not installed" in capsys.readouterr().out
    written = json.loads((tmp_path / "gpu-check.json").read_text())
    assert [part["passed"] for part in written] == [False, False]


def test_an_unknown_way_is_refused(tmp_path, capsys) -> None:
    assert main(["--out", str(tmp_path), "--ways", "gpu"]) == 2
    assert "provider is unknown" in capsys.readouterr().err


def test_every_stage_is_timed() -> None:
    graphs = Backend().open(Bundle.open(slipstream.shipped_bundle()), Threading(1))
    stages = stage_seconds(graphs, repeats=1)
    assert {name.split(",")[0] for name in stages} >= {
        "prefill",
        "embed",
        "head",
        "verify",
        "draft",
    }
    assert all(seconds > 0 for seconds in stages.values())
