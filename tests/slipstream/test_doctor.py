"""`slipstream doctor` on this machine, and its checks on the files of boards that are not here."""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from slipstream import shipped_bundle
from slipstream.commands.doctor import show, to_json
from slipstream.doctor.files import Files
from slipstream.doctor.findings import examine
from slipstream.doctor.health import check_bundle
from slipstream.doctor.machine import Gpu, Machine, probe
from slipstream.doctor.python import Interpreter, this_interpreter
from tests.slipstream.boards import ORIN, THOR, lay
from tests.slipstream.command import ROOT, command

CUDA = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
CPU = ("CPUExecutionProvider",)


def python_of(version: tuple[int, int, int], **changes: object) -> Interpreter:
    good = Interpreter(
        version=version,
        abi=f"cp{version[0]}{version[1]}",
        machine="aarch64",
        executable="/opt/slipstream/bin/python",
        system_packages=True,
        packages={"onnxruntime-gpu": "1.24.0", "numpy": "2.2.6"},
        modules={"onnxruntime": "1.24.0", "tensorrt": "10.3.0"},
        providers=CUDA,
    )
    return replace(good, **changes)  # type: ignore[arg-type]


@pytest.fixture
def orin(tmp_path: Path) -> Machine:
    return probe(Files(lay(ORIN, tmp_path / "orin")), python_of((3, 10, 12)))


@pytest.fixture
def thor(tmp_path: Path) -> Machine:
    return probe(Files(lay(THOR, tmp_path / "thor")), python_of((3, 12, 3)))


def shown(machine: Machine) -> str:
    out = io.StringIO()
    show(machine, examine(machine), Console(file=out, width=120, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_an_orin_on_jetpack_6(orin: Machine) -> None:
    assert (
        shown(orin)
        == """\
system        Ubuntu 22.04.5 LTS, aarch64
Jetson        NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super (tegra234)
JetPack       6.2 (Jetson Linux 36.4.3)
power         25W (mode 1), clocks scale with load
CPU           unknown, 6 threads
memory        8.0 GB, 5.2 GB free, shared with the GPU
GPU           Orin, compute capability 8.7
CUDA          12.6.11
TensorRT      10.3.0.30, Python module 10.3.0
TensorRT-RTX  none
ONNX Runtime  1.24.0: Tensorrt, CUDA, CPU
Python        3.10.12 (cp310), /opt/slipstream/bin/python

slow: power mode 25W; the fastest is MAXN_SUPER
  sudo nvpmodel -m 2
slow: clocks scale with load, so latency varies
  sudo jetson_clocks
bundles run here"""
    )


def test_a_thor_on_jetpack_7(thor: Machine) -> None:
    bare = replace(
        thor, python=python_of((3, 12, 3), providers=CPU, modules={"onnxruntime": "1.24.0"})
    )
    assert (
        shown(bare)
        == """\
system        Ubuntu 24.04.3 LTS, aarch64
Jetson        NVIDIA Jetson AGX Thor Developer Kit (tegra264)
JetPack       7.0 (Jetson Linux 38.2.0)
power         MAXN (mode 0), clocks pinned
CPU           unknown, 14 threads
memory        131.9 GB, 123.0 GB free, shared with the GPU
GPU           Thor, compute capability 11.0
CUDA          13.0.48
TensorRT      10.13.3, not seen by this Python
TensorRT-RTX  none
ONNX Runtime  1.24.0: CPU
Python        3.12.3 (cp312), /opt/slipstream/bin/python

slow: onnxruntime-gpu finds no CUDA or cuDNN and runs on the CPU alone
  pip install onnxruntime-gpu --index-url https://pypi.jetson-ai-lab.io/sbsa/cu130
missing: TensorRT 10.13.3 has no Python module
  sudo apt-get install -y python3-libnvinfer
bundles run here"""
    )


def test_json_holds_everything(orin: Machine) -> None:
    found = json.loads(to_json(orin, examine(orin)))
    assert found["machine"]["jetson"]["l4t"] == "36.4.3"
    assert found["machine"]["jetson"]["fastest_mode"] == {"number": 2, "name": "MAXN_SUPER"}
    assert found["machine"]["tensorrt"] == "10.3.0.30"
    assert found["compute_capability"] == "8.7"
    assert found["healthy"] is True
    assert [finding["level"] for finding in found["findings"]] == ["slow", "slow"]


@pytest.mark.parametrize(
    ("changes", "level", "what", "fix"),
    [
        (
            {"packages": {"onnxruntime": "1.24.0", "onnxruntime-gpu": "1.24.0"}},
            "fault",
            "both installed",
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu "
            "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
        ({"modules": {}, "providers": ()}, "fault", "no engine", "pip install '.[cpu]'"),
        (
            {"modules": {"onnxruntime": "1.18.0", "tensorrt": "10.3.0"}},
            "fault",
            "1.18.0 is too old",
            "pip install 'onnxruntime>=1.23'",
        ),
        (
            {"modules": {"tensorrt": "10.3.0"}, "broken": {"onnxruntime": "numpy.core failed"}},
            "fault",
            "onnxruntime is installed and does not import: numpy.core failed",
            "pip uninstall -y onnxruntime onnxruntime-gpu && pip install onnxruntime-gpu "
            "--index-url https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
        ({"version": (3, 9, 1)}, "fault", "Python 3.9.1 is not supported", "python3.12 -m venv"),
        (
            {"version": (3, 12, 1), "modules": {"onnxruntime": "1.24.0"}},
            "missing",
            "this is Python 3.12, JetPack's module is for 3.10",
            "python3.10 -m venv --system-site-packages .venv && .venv/bin/pip install '.[cpu]'",
        ),
        (
            {"modules": {"onnxruntime": "1.24.0"}, "system_packages": False},
            "missing",
            "does not see the system's packages",
            "python3.10 -m venv --system-site-packages .venv && .venv/bin/pip install '.[cpu]'",
        ),
        (
            {"packages": {"onnxruntime": "1.24.0"}, "providers": CPU},
            "missing",
            "ONNX Runtime runs on the CPU alone",
            "pip uninstall -y onnxruntime && pip install onnxruntime-gpu --index-url "
            "https://pypi.jetson-ai-lab.io/jp6/cu126",
        ),
    ],
)
def test_each_fault_of_a_python_on_orin_has_its_command(
    orin: Machine, changes: dict[str, object], level: str, what: str, fix: str
) -> None:
    version = changes.pop("version", (3, 10, 12))
    machine = replace(orin, python=python_of(version, **changes))  # type: ignore[arg-type]
    found = [finding for finding in examine(machine) if what in finding.what]
    assert [finding.level for finding in found] == [level]
    assert found[0].fix.startswith(fix)


def test_a_bare_jetson_is_told_to_install_jetpack(tmp_path: Path) -> None:
    files = {name: text for name, text in ORIN.items() if "dpkg" not in name and "cuda" not in name}
    machine = probe(Files(lay(files, tmp_path)), python_of((3, 10, 12)))
    assert machine.jetson is not None
    assert machine.jetson.jetpack == "6.2"  # from the release, without its package
    wanted = {f.what: f.fix for f in examine(machine) if f.level == "missing"}
    assert wanted == dict.fromkeys(
        ("no CUDA toolkit", "no TensorRT"), "sudo apt-get install -y nvidia-jetpack"
    )


@pytest.mark.parametrize(("board", "capability"), [(ORIN, "8.7"), (THOR, "11.0")])
def test_a_container_has_no_device_tree(
    board: dict[str, str], capability: str, tmp_path: Path
) -> None:
    files = {name: text for name, text in board.items() if "device-tree" not in name}
    machine = probe(Files(lay(files, tmp_path)), python_of((3, 10, 12)))
    assert machine.gpu is not None
    assert machine.gpu.compute_capability == capability
    assert machine.unified


def test_an_old_jetpack_is_a_fault(tmp_path: Path) -> None:
    files = {**ORIN, "etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 1\n"}
    del files["var/lib/dpkg/status"]
    machine = probe(Files(lay(files, tmp_path)), python_of((3, 10, 12)))
    assert [f.what for f in examine(machine) if f.level == "fault"] == [
        "JetPack 5.x is not supported: 6 (Orin) and 7 (Orin, Thor) are"
    ]


def test_a_pc_with_a_gpu_that_is_not_used() -> None:
    here = probe(Files(Path("/nonexistent")), python_of((3, 11, 7)))
    python = python_of(
        (3, 11, 7),
        packages={"onnxruntime": "1.24.0"},
        modules={"onnxruntime": "1.24.0"},
        providers=CPU,
    )
    machine = replace(here, gpu=Gpu("NVIDIA RTX A4000", "8.6", 16 << 30, "550.1"), python=python)
    assert [(finding.level, finding.fix) for finding in examine(machine)] == [
        ("missing", "pip uninstall -y onnxruntime && pip install '.[gpu]'"),
        ("missing", "pip install '.[rtx]'"),
    ]


def test_little_memory_is_said(orin: Machine) -> None:
    what = [f.what for f in examine(replace(orin, available=100 << 20))]
    assert "only 100 MB of memory are free" in what


@pytest.mark.parametrize("name", sorted(ORIN))
@pytest.mark.parametrize("odd", [b"", b"\xff\x00\xfe" * 50, b"[" * 5000, b"9" * 5000])
def test_odd_files_never_raise(name: str, odd: bytes, tmp_path: Path) -> None:
    root = lay(ORIN, tmp_path)
    (root / name).write_bytes(odd)
    machine = probe(Files(root), python_of((3, 10, 12)))
    assert "healthy" in to_json(machine, examine(machine))
    assert shown(machine)


def test_folders_in_place_of_files_never_raise(tmp_path: Path) -> None:
    for name in ORIN:
        (tmp_path / name).mkdir(parents=True)
    machine = probe(Files(tmp_path), python_of((3, 10, 12)))
    assert machine.jetson is None
    assert shown(machine)


def test_this_python_is_seen_as_it_is() -> None:
    import onnxruntime

    python = this_interpreter()
    assert python.modules["onnxruntime"] == onnxruntime.__version__
    assert "CPUExecutionProvider" in python.providers
    assert python.packages["numpy"]


def test_the_shipped_bundle_is_healthy_and_an_altered_one_is_not(tmp_path: Path) -> None:
    assert check_bundle(shipped_bundle()) is None
    copy = tmp_path / "bundle"
    shutil.copytree(shipped_bundle(), copy)
    with (copy / "head.onnx").open("ab") as file:
        file.write(b"x")
    broken = check_bundle(copy)
    assert broken is not None
    assert broken.level == "fault"
    assert "head.onnx was altered or cut short" in broken.what


def test_the_command_says_that_bundles_run_here(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command("doctor", "--json", cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # processor time: the wall's depends on what else runs here
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0
    found = json.loads(done.stdout)
    assert found["healthy"], found["findings"]
    assert done.returncode == 0
    assert found["machine"]["cores"] == len(os.sched_getaffinity(0))
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_engines_is_told_so(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('onnxruntime', 'tensorrt', 'tensorrt_rtx'): sys.modules[name] = None\n"
        "sys.argv = ['slipstream', 'doctor', '-q']\n"
        "from slipstream.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "fault: no engine: ONNX Runtime is not installed",
        "  pip install '.[cpu]'",
    ]


def test_quiet_says_only_what_is_wrong(tmp_path: Path) -> None:
    done = command("doctor", "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    done = command("doctor", "--quiet", "--bundle", "nowhere", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("fault: nowhere is no bundle")
