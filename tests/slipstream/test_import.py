"""`import slipstream` is quick and light, and the vehicle's packages never need torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import slipstream
from runtime.bundle import Bundle

ROOT = Path(__file__).resolve().parents[2]


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_takes_less_than_half_a_second() -> None:
    code = "import time; t = time.perf_counter(); import slipstream; print(time.perf_counter() - t)"
    assert min(float(python(code)) for _ in range(3)) < 0.5


def test_the_import_loads_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "matplotlib", "onnxruntime", "onnx", "numpy", "pydantic")
    code = f"import sys, slipstream; print([m for m in {heavy} if m in sys.modules])"
    assert python(code) == "[]"


def test_onnx_runtime_reports_nothing(tmp_path: Path) -> None:
    """It keeps a device's number and its reports in the cache folder, if it is to send any."""
    pytest.importorskip("onnxruntime")
    code = (
        "import slipstream, onnxruntime; "
        "slipstream.load(slipstream.shipped_bundle(), threads=1); print('loaded')"
    )
    asked = {"XDG_CACHE_HOME": str(tmp_path), "CI": "", "GITHUB_ACTIONS": "", "TF_BUILD": ""}
    assert python(code, **asked) == "loaded"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slipstream"]


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".cpu").is_file(), reason="not the environment that make creates"
)
def test_a_folder_of_that_name_is_not_taken_for_the_package(tmp_path: Path) -> None:
    """A clone is called slipstream, and scripts stand beside it."""
    (tmp_path / "slipstream").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-c", "import slipstream; print(slipstream.load)"],
        **{"capture_output": True, "text": True, "cwd": tmp_path, "env": environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_command_line_helps_without_an_engine() -> None:
    code = (
        "import sys, slipstream.cli; "
        "print([m for m in ('torch', 'matplotlib', 'onnxruntime', 'onnx') if m in sys.modules])"
    )
    assert python(code) == "[]"


def test_the_vehicle_needs_no_torch() -> None:
    """Import every module of the packages that drive, with torch made unimportable."""
    code = """
import sys, pkgutil, importlib
sys.modules["torch"] = sys.modules["transformers"] = None
names = []
for package in ("runtime", "planners", "drives", "slipstream"):
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, package + "."):
        training = ("planners.nets", "planners.training", "slipstream.training",
                    "slipstream.compare", "slipstream.tiny", "slipstream.__main__")
        if not found.name.startswith(training):
            importlib.import_module(found.name)
            names.append(found.name)
print(len(names))
"""
    assert int(python(code)) > 30


@pytest.mark.parametrize("name", sorted(slipstream.__all__))
def test_every_public_name_is_there_and_listed(name: str) -> None:
    assert getattr(slipstream, name) is not None
    assert name in dir(slipstream)


def test_public_names_are_the_real_ones() -> None:
    from planners.planner import Planner
    from runtime.settings import DecodeSettings

    assert slipstream.Planner is Planner
    assert slipstream.DecodeSettings is DecodeSettings
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = slipstream.nothing


def test_the_shipped_bundles_are_whole_and_others_are_named() -> None:
    for name, method in (("tiny", "dflash"), ("fast-ddrive", "self")):
        draft = Bundle.open(slipstream.shipped_bundle(name)).manifest.draft
        assert draft is not None
        assert draft.method == method
    assert slipstream.shipped_bundle() == slipstream.shipped_bundle("tiny")
    with pytest.raises(slipstream.SlipstreamError, match="no such planner") as found:
        slipstream.shipped_bundle("../tiny")
    assert found.value.expected == "tiny or fast-ddrive"
