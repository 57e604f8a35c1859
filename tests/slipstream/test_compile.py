"""`slipstream compile` and `slipstream engines`, as a user runs them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

import slipstream
from tests.slipstream.command import command

BUNDLE = str(slipstream.shipped_bundle())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the head's engine for sm86 in fp16."""
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    folder = tmp_path_factory.mktemp("compiled")
    done = compile_head(folder)
    assert done.returncode == 0, done.stderr
    assert "activations up to" in done.stdout
    return folder


def compile_head(folder: Path, *more: str) -> CompletedProcess[str]:
    options = ("--target", "sm86", "--precision", "fp16", "--graph", "head", "--engines", "engines")
    return command("compile", BUNDLE, *options, *more, cwd=folder)


def engine_of(folder: Path) -> Path:
    (path,) = (folder / "engines").glob("*.engine")
    return path


def test_a_second_compile_finds_the_engine(folder: Path) -> None:
    before = engine_of(folder).stat().st_mtime_ns
    again = compile_head(folder)
    assert again.returncode == 0
    assert "head: is there already" in again.stdout
    assert engine_of(folder).stat().st_mtime_ns == before


def test_the_list_and_the_inspection_need_no_gpu(folder: Path) -> None:
    listed = command("engines", "list", "--engines", "engines", cwd=folder)
    assert listed.returncode == 0
    row = next(line for line in listed.stdout.splitlines() if "sm86" in line).split()
    assert row[1:5] == ["head", "tiny", "fp16", "sm86"]
    found = command("engines", "inspect", row[0], "--engines", "engines", "--layers", cwd=folder)
    assert found.returncode == 0, found.stderr
    assert "GPU: sm86 (the file: sm86)" in found.stdout
    assert "input: hidden float32 [N, S, " in found.stdout
    assert "output: logsumexp float32 [N, S]" in found.stdout
    assert "profile: decode:N=1:" in found.stdout
    assert "[gemm]" in found.stdout
    assert " Half" in found.stdout


@pytest.mark.parametrize(
    ("damage", "what"), [(lambda raw: raw[:-1], "is truncated"), (lambda raw: b"", "is empty")]
)
def test_a_damaged_engine_is_refused_listed_and_pruned(
    folder: Path, tmp_path: Path, damage: Callable[[bytes], bytes], what: str
) -> None:
    shutil.copytree(folder / "engines", tmp_path / "engines")
    path = engine_of(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    refused = command("engines", "inspect", str(path), cwd=tmp_path)
    assert refused.returncode == 2
    assert what in refused.stderr
    mend = refused.stderr.split("to mend it:")[1]
    assert f"slipstream compile {BUNDLE} --target sm86 --precision fp16" in mend
    listed = command("engines", "list", "--engines", "engines", cwd=tmp_path)
    assert what in listed.stdout
    dry = command("engines", "prune", "--dry-run", "--engines", "engines", cwd=tmp_path)
    assert "1 would be removed" in dry.stdout
    assert path.exists()
    pruned = command("engines", "prune", "--engines", "engines", cwd=tmp_path)
    assert what in pruned.stdout
    assert not list((tmp_path / "engines").iterdir())


def test_prune_leaves_what_the_bundle_still_has(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "engines", tmp_path / "engines")
    prune = ("engines", "prune", "--engines", "engines")
    kept = command(*prune, "--bundle", BUNDLE, "--old-versions", cwd=tmp_path)
    assert "0 removed" in kept.stdout
    assert "1 removed" in command(*prune, "--all", cwd=tmp_path).stdout


def test_a_dry_run_builds_nothing(folder: Path, tmp_path: Path) -> None:
    plan = compile_head(tmp_path, "--dry-run", "--profile", "decode:N=1:2:4")
    assert plan.returncode == 0, plan.stderr
    assert "head: would be built" in plan.stdout
    assert "--profile decode:N=1:2:4,S=1:" in plan.stdout
    assert not (tmp_path / "engines").exists()


def test_on_a_cpu_there_is_nothing_to_build(tmp_path: Path) -> None:
    done = command("compile", BUNDLE, "--target", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "nothing to build" in done.stdout
    assert "target: loads in" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "what", "fix"),
    [
        (["--target", "orin"], "this is no sm87", "on the Jetson Orin"),
        (["--target", "thor", "--flavour", "tensorrt-rtx"], "sm110", "on the Jetson Thor"),
        (["--target", "gtx"], "--target gtx is unknown", "--help"),
        (["--target", "sm86", "--precision", "fp12"], "--precision is unknown", "--help"),
        (["--target", "sm86", "--flavour", "trt"], "--flavour is unknown", "--help"),
        (["--target", "sm75", "--precision", "bf16"], "sm75 has no bf16", "fp16"),
        (["--target", "sm75", "--precision", "fp32"], "no fp32 matrices on sm75", "fp16"),
        (["--target", "sm86", "--precision", "int8"], "nowhere what to quantize", "fp16"),
        (["--target", "sm86", "--timing-cache", "t"], "no use for --timing-cache", "tensorrt"),
        (["--target", "sm86", "--memory-pool", "ws:1"], "--memory-pool ws:1", "--help"),
        (["--target", "sm86", "--profile", "decode"], "--profile decode", "--dry-run"),
        (["--target", "sm86", "--profile", "x:S=1"], "--profile x:S=1", "--dry-run"),
        (["--target", "sm86", "--profile", "decode:S=3:2:1"], "S=3:2:1", "--dry-run"),
        (["--target", "sm86", "--optimization-level", "6"], "out of range", "--help"),
        (["--target", "sm86", "--graph", "vision"], "has no graph vision", "--graph"),
        (["--target", "cpu", "--precision", "fp16"], "not for --target cpu", "--target"),
    ],
)
def test_bad_arguments_are_one_message_and_leave_nothing(
    tmp_path: Path, arguments: list[str], what: str, fix: str
) -> None:
    if {"sm86", "thor", "fp32"} & set(arguments):
        pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not installed")
    refused = command("compile", BUNDLE, "--engines", "engines", *arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("slipstream: ")
    assert what in refused.stderr
    assert fix in refused.stderr.split("to mend it:")[1]
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())
