"""Bad bundles, Pythons and places that calibrating meets: one clear error, and nothing stays."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from pydantic import ValidationError

from calibration import modelopt
from calibration.bundle import check_plain, write_bundle
from calibration.candidate import kept_groups
from calibration.modelopt import PYTHON, modelopt_python, require_modelopt
from calibration.stored import check_memory, read_graph
from runtime.bundle import MANIFEST, Bundle, GraphName
from runtime.calibrated import Calibration
from runtime.errors import BundleError, EngineError, SlipstreamError
from runtime.files import check_writable, new_folder, work_folder
from tests.calibration.passes import BUNDLE, feeds_of
from tests.slipstream.command import ROOT

_LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from calibration.stored import read_graph
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 20),) * 2)
read_graph(Path(sys.argv[1]))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Bundle:
    return Bundle.open(shutil.copytree(BUNDLE.folder, tmp_path / "copy"))


def put(bundle: Bundle, graph: GraphName, data: bytes) -> Bundle:
    """The bundle with another graph, its SHA-256 noted as if it were right."""
    bundle.graph_path(graph).write_bytes(data)
    manifest = json.loads((bundle.folder / MANIFEST).read_text())
    manifest["graphs"][graph]["sha256"] = hashlib.sha256(data).hexdigest()
    (bundle.folder / MANIFEST).write_text(json.dumps(manifest))
    return Bundle.open(bundle.folder)


@pytest.mark.parametrize("data", [b"", b"\0garbage\xff" * 99, None])
def test_a_damaged_graph_is_told_before_the_engine(data: bytes | None, copy: Bundle) -> None:
    whole = copy.graph_path("head").read_bytes()
    with pytest.raises(EngineError, match=r"head\.onnx can't be read") as caught:
        check_plain(put(copy, "head", whole[: len(whole) // 2] if data is None else data))
    assert caught.value.fix
    with pytest.raises(EngineError, match=r"nowhere\.onnx can't be read"):
        read_graph(copy.folder / "nowhere.onnx")


def test_too_little_memory_is_not_told_as_damage() -> None:
    """protobuf, ONNX Runtime and Python each say it in words of their own."""
    for error in (RuntimeError("std::bad_alloc"), MemoryError(), ValueError("Arena alloc failed")):
        with pytest.raises(MemoryError):
            check_memory(error)
    check_memory(ValueError("Protobuf parsing failed"))
    done = subprocess.run(
        [sys.executable, "-c", _LITTLE_MEMORY, str(BUNDLE.graph_path("target"))],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stderr.splitlines()[-1].startswith("MemoryError")


def test_a_manifest_that_hides_a_quantized_graph_is_not_believed(copy: Bundle) -> None:
    model = onnx.load(copy.graph_path("head"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "scale"))
    name = model.graph.input[0].name
    model.graph.node.append(helper.make_node("QuantizeLinear", [name, "scale"], ["q"]))
    with pytest.raises(SlipstreamError, match="is quantized already") as caught:
        check_plain(put(copy, "head", model.SerializeToString()))
    assert caught.value.found == "QuantizeLinear nodes in the graph head"


@pytest.mark.parametrize("name", ["draft.onnx", "tokenizer.json", "gone"])
def test_a_source_that_changes_meanwhile_gives_no_bundle(
    name: str, copy: Bundle, tmp_path: Path
) -> None:
    """What is copied then would never open: its SHA-256 is another one."""
    if name == "gone":
        copy.graph_path("draft").unlink()
    else:
        with (copy.folder / name).open("ab") as file:
            file.write(b" ")
    with pytest.raises(BundleError, match="changed while the bundle was quantized") as caught:
        write_bundle(copy, tmp_path / "out", {}, {})
    assert str(copy.folder) in caught.value.what
    assert os.listdir(tmp_path) == ["copy"]


@pytest.mark.parametrize(
    "name", ["", ":", "target:", ":block 1 mlp", "block *", "../target", "b:b"]
)
def test_names_of_groups_are_taken_as_they_are(name: str) -> None:
    parts = {"target": {"block 1 mlp": ("a",)}, "head": {"head": ("b",)}}
    with pytest.raises(SlipstreamError, match="is no group of the bundle's graphs"):
        kept_groups(parts, ["ends", name])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gates": "passed", "failed": ["ADE@5s"]}, "gates passed"),
        ({"gates": "forced", "failed": []}, "gates forced"),
        ({"figures": {"ADE@5s": float("nan")}}, "finite"),
        ({"smooth": float("nan")}, "less than or equal to 1"),
    ],
)
def test_a_record_edited_by_hand_must_still_make_sense(
    changes: dict[str, object], says: str
) -> None:
    good = {"precision": "int8", "graphs": {}, "gates": "passed", "figures": {"ADE@5s": 0.1}}
    assert Calibration.model_validate(good).failed == []
    with pytest.raises(ValidationError, match=says):
        Calibration.model_validate({**good, **changes})


# -- a Python that should have the quantizer, and does not


def python(folder: Path, script: str) -> Path:
    made = folder / "python"
    made.write_text(f"#!/bin/sh\n{script}\n")
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    return made


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("exit 0", "it said nothing"),
        ('echo "$@"', "no modelopt there"),  # says the question back
        ("printf '\\377\\376 broken' >&2; exit 1", "\ufffd\ufffd broken"),
        ("echo 3 False", "no modelopt there"),
        ("exec sleep 60", "no answer within 0.5 s"),
    ],
)
def test_a_python_without_the_quantizer_is_told_before_the_work(
    script: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modelopt, "_ANSWERS_S", 0.5)
    monkeypatch.setenv(PYTHON, str(python(tmp_path, script)))
    with pytest.raises(SlipstreamError, match="has no NVIDIA Model Optimizer") as caught:
        require_modelopt()
    assert found in caught.value.found
    assert PYTHON in caught.value.fix


def test_a_python_that_has_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON, str(python(tmp_path, "echo 3 True")))
    require_modelopt()


def test_what_is_no_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("no program")
    for named, found in ((tmp_path, "a folder"), (tmp_path / "nowhere", "no such file")):
        monkeypatch.setenv(PYTHON, str(named))
        with pytest.raises(SlipstreamError, match="is no Python") as caught:
            require_modelopt()
        assert caught.value.found == found
    monkeypatch.setenv(PYTHON, str(tmp_path / "text"))
    with pytest.raises(SlipstreamError) as caught:
        require_modelopt()
    assert caught.value.found == "Permission denied"


def test_a_relative_python_is_found_from_the_job_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = python(tmp_path, "exit 0")
    assert modelopt_python(Path("python")) == made
    (tmp_path / "link").symlink_to(sys.executable)
    assert modelopt_python(Path("link")) == tmp_path / "link"  # a virtual environment's is a link


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo garbage > quantized.onnx", "no graph"),
        (": > quantized.onnx", "a graph without nodes"),
        ("printf '\\377 no room' >&2; exit 1", "\ufffd no room"),
        ("kill -9 $$", "it said nothing"),
    ],
)
def test_a_quantizer_that_writes_no_graph_is_one_error(
    script: str, found: str, tmp_path: Path
) -> None:
    (tmp_path / "made").mkdir()
    with pytest.raises(SlipstreamError, match="could not be quantized") as caught:
        modelopt.quantize_for_tensorrt(
            BUNDLE.graph_path("head"),
            tmp_path / "made" / "head.onnx",
            "int8",
            feeds=[{"hidden": feeds_of("head")["hidden"]}],
            python=python(tmp_path, script),
        )
    assert found in caught.value.found
    assert os.listdir(tmp_path / "made") == []


# -- where graphs are made


def test_work_stands_on_the_output_s_disk_and_goes(tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "out"
    with work_folder(out) as folder:
        assert folder.parent == out.parent
        (folder / "graph.onnx").write_text("x")
    assert os.listdir(tmp_path) == []  # nothing came of it
    with pytest.raises(RuntimeError), work_folder(out):
        raise RuntimeError
    assert os.listdir(tmp_path) == []
    with work_folder(out), new_folder(out) as made:
        (made / "graph.onnx").write_text("x")
    assert os.listdir(out.parent) == ["out"]


def test_what_a_killed_run_left_goes_at_the_next(tmp_path: Path) -> None:
    out, gone = tmp_path / "out", 2**22 + 1  # no process has that number
    with work_folder(out) as folder:
        left = tmp_path / folder.name.replace(str(os.getpid()), str(gone))
        other = tmp_path / folder.name  # one that is at work
        left.mkdir()
        (left / "target.onnx").write_text("x")
        with work_folder(out):
            assert not left.exists()
            assert other.exists()
    assert os.listdir(tmp_path) == []


def test_a_disk_that_runs_full_is_told_as_the_output_s(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="can't write") as caught, work_folder(tmp_path / "o"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert str(tmp_path / "o") in caught.value.what
    assert "-o" in caught.value.fix
    with pytest.raises(FileNotFoundError), work_folder(tmp_path / "o"):  # no matter of room
        (tmp_path / "nowhere").read_text()


def test_many_write_one_folder_at_once_and_each_is_whole(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for _ in range(10):
            with new_folder(tmp_path / "out") as folder:
                (folder / "a").write_text(name)
                (folder / "b").write_text(name)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, "uvwxyz"))
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "out" / "b").read_text()


def test_the_root_is_no_output_and_no_crash() -> None:
    with pytest.raises(SlipstreamError, match="can't write /"):
        check_writable(Path("/"))
