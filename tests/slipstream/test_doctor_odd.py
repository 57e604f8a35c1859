"""`slipstream doctor` on machines that say odd things."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from slipstream.commands.doctor import show, to_json
from slipstream.doctor.files import Files, whole
from slipstream.doctor.findings import examine
from slipstream.doctor.machine import Machine, probe
from slipstream.doctor.python import Interpreter, this_interpreter
from tests.slipstream.boards import ORIN, lay

DPKG = "Package: nvidia-jetpack\nStatus: install ok installed\nVersion: {}\n\n"


@pytest.fixture(scope="module")
def python() -> Interpreter:
    return this_interpreter()


def shown(machine: Machine) -> str:
    out = io.StringIO()
    show(machine, examine(machine), Console(file=out, width=120, emoji=False))
    assert "healthy" in to_json(machine, examine(machine))
    return out.getvalue()


@pytest.mark.parametrize(
    "text", ["", None, ".", "-5", "1.5", "²", "٣", "9" * 19, "9" * 5000, "7\n"]
)
def test_only_plain_digits_are_a_number(text: str | None) -> None:
    assert whole(text) is None
    assert whole("0042") == 42


@pytest.mark.parametrize("digits", ["9" * 5000, "²", "٣٣"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("var/lib/nvpmodel/status", "pmode:{}"),
        ("etc/nvpmodel.conf", "< POWER_MODEL ID={} NAME=MAXN >\n< POWER_MODEL ID=1 NAME={}W >"),
        ("proc/meminfo", "MemTotal: {} kB\nMemAvailable: {} kB"),
        ("var/lib/dpkg/status", DPKG),
        ("etc/nv_tegra_release", "# R{} (release), REVISION: {}.{}, GCID: 1"),
        ("etc/os-release", "PRETTY_NAME=[/{}]"),
    ],
)
def test_odd_numbers_in_files_never_raise(
    name: str, text: str, digits: str, tmp_path: Path, python: Interpreter
) -> None:
    root = lay(ORIN, tmp_path)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text.replace("{}", digits), encoding="utf-8")
    assert shown(probe(Files(root), python))


@pytest.mark.parametrize("version", [".", "...", ".6", "~", "9" * 5000 + ".1"])
def test_an_odd_version_of_jetpack_leaves_the_releases(
    version: str, tmp_path: Path, python: Interpreter
) -> None:
    root = lay(ORIN, tmp_path)
    (root / "var/lib/dpkg/status").write_text(DPKG.format(version), encoding="utf-8")
    jetson = probe(Files(root), python).jetson
    assert jetson is not None
    assert (jetson.jetpack, jetson.jetpack_major) == ("6.2", 6)


def test_pipes_in_place_of_files_are_not_waited_for(tmp_path: Path, python: Interpreter) -> None:
    for name in ORIN:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tmp_path / name)
    assert probe(Files(tmp_path), python).jetson is None


@pytest.mark.parametrize(
    ("line", "name", "memory"),
    [
        (b"\xff\xfe", None, None),
        (b"\xff, 8.6, 5, 550", "\ufffd", 5 << 20),
        ("RTX, 8.6, ², 5".encode(), "RTX", None),
        (b"RTX, 8.6, " + b"9" * 5000 + b", 5", "RTX", None),
        (b"[/RTX], 8.6, 16, 5", "[/RTX]", 16 << 20),
        (b"", None, None),
    ],
)
def test_odd_words_of_nvidia_smi_never_raise(
    line: bytes,
    name: str | None,
    memory: int | None,
    tmp_path: Path,
    python: Interpreter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "words").write_bytes(line + b"\n")
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat '{tmp_path / 'words'}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    machine = probe(Files(), python)
    if machine.jetson is not None:
        pytest.skip("a Jetson's GPU is not asked for by nvidia-smi")
    gpu = machine.gpu
    assert (gpu and gpu.name, gpu and gpu.memory) == (name, memory)
    assert (name or "none") in shown(machine)
