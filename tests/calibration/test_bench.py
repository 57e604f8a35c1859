"""`slipstream bench`: the shipped planner as a user measures it, and what the command refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import slipstream
from calibration.bundle import write_bundle
from calibration.cpu import quantize_for_cpu
from calibration.ways import ends
from drives.results import Figure
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from slipstream.commands.bench import RESULT, precisions_of
from slipstream.commands.bench_results import Bench
from slipstream.commands.bench_table import verdicts
from tests.calibration.passes import BUNDLE
from tests.slipstream.command import command

WAYS = ["int8 dynamic", "int8 static", "int8 weights", "int4 weights"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What it prints, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("bench")
    options = ("--frames", "3", "--threads", "1", "--keep", "none", "-o", "out")
    done = command("bench", str(slipstream.shipped_bundle()), *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout, folder


def test_passes_and_frames_are_compared_in_every_way(run: tuple[str, Path]) -> None:
    said, folder = run
    assert sorted(path.name for path in folder.rglob("*")) == [RESULT, "out"]
    bench = Bench.model_validate_json((folder / "out" / RESULT).read_text())
    graphs = {graph.graph: graph for graph in bench.graphs}
    assert set(graphs) == {"embed", "target", "draft", "head"}
    assert (graphs["target"].products, graphs["target"].quantized) == (25, 25)
    assert (graphs["embed"].passes, graphs["embed"].products) == ([], 0)
    kinds = {(name, each.kind) for name, graph in graphs.items() for each in graph.passes}
    assert {("target", "prefill"), ("target", "verify"), ("draft", "draft")} <= kinds
    for graph in (graphs["target"], graphs["draft"]):
        assert list(graph.shares) == ["fp32", *WAYS]
        assert graph.bytes["int4 weights"] < graph.bytes["int8 dynamic"] < graph.bytes["fp32"]
        for each in graph.passes:
            assert each.ms > 0.1
            assert all(0.05 < ratio < 3 for ratio in each.ratios.values())
    by_name = {each.precision: each for each in bench.precisions}
    assert list(by_name) == ["fp32", "int8", "int4"]
    assert by_name["fp32"].ratio.value == 1.0
    assert by_name["fp32"].plan_gap_m == 0.0
    assert set(by_name["fp32"].ways.values()) == {"fp32"}
    for each in (by_name["int8"], by_name["int4"]):
        assert all(way == "fp32" or way.startswith(each.precision) for way in each.ways.values())
        assert each.unusable <= 3
        taken = {g for g, way in each.ways.items() if way != "fp32"}
        assert (each.bytes < by_name["fp32"].bytes) == bool(taken)
    for part in ("SYNTHETIC", "target, prefill", "int8: a frame takes", "all quantized"):
        assert part in said
    assert (bench.keep, bench.frames, bench.recorded, bench.decoder) == ("none", 3, 5, "dflash")


# a processor with fast products of 8 bits is what this is for; others may find no way faster
@pytest.mark.skipif(
    "vnni" not in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""),
    reason="no VNNI: int8 need not be faster than fp32 here",
)
def test_eight_bits_are_faster_where_the_processor_has_vnni(run: tuple[str, Path]) -> None:
    bench = Bench.model_validate_json((run[1] / "out" / RESULT).read_text())
    shares = {graph.graph: graph.shares for graph in bench.graphs}
    assert shares["target"]["int8 dynamic"] < 0.8  # measured 0.47
    assert next(p for p in bench.precisions if p.precision == "int8").ways["target"] != "fp32"


def test_what_is_kept_are_head_first_and_last_blocks() -> None:
    kept = ends(BUNDLE)
    assert len(kept["head"]) == 1
    assert len(kept["target"]) == 2 * 11  # 5 weight products and 6 of attention in a block
    assert kept["embed"] != ()


def test_a_verdict_says_which_graphs_stay_and_whether_it_is_sure(run: tuple[str, Path]) -> None:
    bench = Bench.model_validate_json((run[1] / "out" / RESULT).read_text())

    def said(low: float | None, high: float | None, way: str) -> str:
        int8 = bench.precisions[1].model_copy(
            update={
                "ratio": Figure(value=0.7, low=low, high=high),
                "ways": {"target": way, "draft": "fp32", "embed": "fp32"},
            }
        )
        return verdicts(bench.model_copy(update={"precisions": [bench.precisions[0], int8]}))[0]

    assert said(0.6, 0.8, "int8 dynamic") == (
        "int8: a frame takes 0.70x of fp32 [0.60, 0.80]; target dynamic; no way is faster than "
        "fp32 for draft."
    )
    assert "[0.60, 1.20], no difference; " in said(0.6, 1.2, "int8 static")
    assert said(None, None, "fp32") == (
        "int8: a frame takes 0.70x of fp32; no way is faster than fp32 for target, draft."
    )


def test_precisions_are_said_once_and_only_those_of_a_cpu() -> None:
    assert precisions_of("fp32,int8,int4") == ("int8", "int4")
    assert precisions_of("int4, int8,int4") == ("int8", "int4")
    for text in ("", "fp32", "fp8", "int8,fp16", "int8,"):
        with pytest.raises(SlipstreamError, match="--precisions"):
            precisions_of(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--precisions", "nvfp4"), "--precisions can't be measured on a CPU"),
        (("--threads", "0"), "threads is out of range"),
        (("--frames", "none"), "--frames can't be used"),
        (("--smooth", "2"), "smooth is out of range"),
        (("-o", "mine.txt/out"), "can't write"),
        ((), "nowhere is no bundle"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = command("bench", "nowhere", "-o", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.startswith("slipstream: ")
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_quantized_bundle_and_too_many_rollouts_are_refused(tmp_path: Path) -> None:
    quantize_for_cpu(BUNDLE.graph_path("head"), tmp_path / "q.onnx", "int8", "dynamic")
    write_bundle(BUNDLE, tmp_path / "int8", {"head": tmp_path / "q.onnx"}, {"head": "int8"})
    done = command("bench", "int8", "-o", "out", cwd=tmp_path)
    assert (done.returncode, "is quantized already" in done.stderr) == (2, True)
    shutil.copytree(BUNDLE.folder, tmp_path / "plain")
    Bundle.open(tmp_path / "plain")
    for many in ("0", "999"):
        done = command(
            "bench", "plain", "-o", "out", "--threads", "1", "--rollouts", many, cwd=tmp_path
        )
        assert (done.returncode, "rollouts" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists()
