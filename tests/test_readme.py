"""Every command of the README, on fewer frames and with outputs in a temporary folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import slipstream
from drives.fetch import fetch, is_cached
from runtime.errors import SlipstreamError
from runtime.proof.results import PROOF, Proof

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# the same targets on fewer frames; `make test` is what runs this test
FEWER = {"demo": "DEMO=--frames 1", "bench": "BENCH=--frames 1 --sweep-frames 1"}
MOST_FRAMES = 1
# so few make every check, but may miss a planted fault: exit code 1
FEW_SAMPLES = ("--samples", "64")
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (slipstream.shipped_bundle() / "bundle.json").is_file(), reason="no shipped bundle"
    ),
]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", README, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", body, flags=re.MULTILINE) for indent, body in found]


def commands() -> list[str]:
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def run(words: list[str]) -> None:
    done = started(words)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"


def started(words: list[str]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def drive() -> str:
    """kitti-00, or the computed drive where the package index can't be reached."""
    try:
        fetch("kitti-00")
    except SlipstreamError:
        assert not is_cached("kitti-00")
        return "synthetic"
    return "kitti-00"


def test_the_commands_run_in_their_order(tmp_path: Path, drive: str) -> None:
    ran = 0
    for command in commands():
        program, *words = shlex.split(command)
        if program != "slipstream" or (words[1:2] == ["fetch"] and drive == "synthetic"):
            continue
        if words[0] in ("compile", "engines") and find_spec("tensorrt_rtx") is None:
            continue
        placed = [re.sub(r"^out/", f"{tmp_path}/", word) for word in words]
        placed = [drive if word == "kitti-00" else word for word in placed]
        for place in [i + 1 for i, word in enumerate(placed) if word == "--frames"]:
            placed[place] = str(min(int(placed[place]), MOST_FRAMES))
        if words[0] == "verify":
            done = started([program, *placed, *FEW_SAMPLES])
            assert "Traceback" not in done.stderr
            assert done.returncode in (0, 1), done.stderr
            proof = Proof.model_validate_json((tmp_path / "verify" / PROOF).read_text())
            assert [check for check in proof.checks if not check.passed] == []
            assert done.returncode == (0 if proof.passed else 1), done.stderr
        else:
            run([program, *placed])
        ran += 1
    assert ran >= 7
    assert (tmp_path / "run" / "index.html").is_file()
    assert (tmp_path / "verify" / PROOF).is_file()


@pytest.mark.slow
def test_the_proof_is_whole(tmp_path: Path, drive: str) -> None:
    """With as many frames and draws as the page says, every planted fault is caught."""
    (command,) = [each for each in commands() if each.startswith("slipstream verify ")]
    placed = {"out/bundle": str(slipstream.shipped_bundle()), "kitti-00": drive}
    words = [placed.get(word, word) for word in shlex.split(command)]
    run([*words[:-1], str(tmp_path / "verify")])


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".cpu").is_file(), reason="not the environment that make creates"
)
def test_the_make_targets_run(tmp_path: Path) -> None:
    targets = [shlex.split(command)[1] for command in commands() if command.startswith("make ")]
    assert set(targets) == {"test", *FEWER}
    for target, fewer in FEWER.items():
        run(["make", target, fewer, f"OUT={tmp_path}"])
    assert (tmp_path / "demo" / "index.html").is_file()
    assert (tmp_path / "bench" / "frame.json").is_file()


def test_the_python_example_runs_without_torch(tmp_path: Path) -> None:
    (example,) = blocks("python")
    blocked = "import sys\nsys.modules['torch'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + example], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[") >= 20
