"""`slipstream calibrate` as a user runs it: what is written, what is refused, and bad input."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

import slipstream
from calibration.results import CalibrationResults
from runtime.bundle import Bundle
from runtime.calibrated import Calibration
from runtime.errors import SlipstreamError
from slipstream.commands.calibrate import Request, asked_for, results_path, run_calibrate
from tests.slipstream.command import command

BUNDLE = slipstream.shipped_bundle()
SMALL = ("--windows", "2", "--frames", "2", "--threads", "1", "--drive", "synthetic")
HEAD = ("--precision", "int8", "--how", "dynamic", "--graphs", "head", "--keep", "none")
PLANS = ("--max-ade-increase", "9", "--max-tau-drop", "1", "--max-parse-failures", "9")
pytestmark = pytest.mark.timeout(300)


def results(folder: Path) -> CalibrationResults:
    return CalibrationResults.model_validate_json(results_path(folder).read_text())


def record(folder: Path) -> Calibration:
    found = Bundle.open(folder).manifest.provenance.calibration
    assert found is not None
    return found


def test_a_bundle_that_passes_is_written(tmp_path: Path) -> None:
    done = command("calibrate", str(BUNDLE), *SMALL, *HEAD, *PLANS, "--report", "-o", "int8",
                   cwd=tmp_path)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(tmp_path)) == ["int8", "int8.calibration.json"]
    found, bundle = results(tmp_path / "int8"), Bundle.open(tmp_path / "int8")
    assert (found.outcome, found.precision, found.device) == ("passed", "int8", "cpu")
    assert (sum(found.calibrated.values()), found.held_out) == (2, 2)
    assert [each.group for each in found.sensitivity] == ["head"]
    assert found.attempts[0].graphs[0].kept_groups == []
    assert bundle.manifest.name.endswith("-int8")
    assert bundle.manifest.graphs["head"].precision == "int8"
    made = record(tmp_path / "int8")
    assert (made.gates, made.failed, made.drives) == ("passed", [], ["synthetic-0"])
    assert made.windows == 2
    for part in ("SYNTHETIC", "head:head", "1 of 1", "every gate passed", "ADE@5s, both"):
        assert part in done.stdout
    again = command("calibrate", "int8", *SMALL, *HEAD, "-o", "twice", cwd=tmp_path)
    assert (again.returncode, "is quantized already" in again.stderr) == (2, True)


@pytest.mark.parametrize("force", [False, True])
def test_what_fails_is_written_only_by_force(force: bool, tmp_path: Path) -> None:
    words = (*HEAD, *PLANS, "--max-error", "0", *(("--force",) if force else ()))
    done = command("calibrate", str(BUNDLE), *SMALL, *words, "-o", "int8", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0 if force else 1, "")
    found = results(tmp_path / "int8")
    # the head is the only product: kept, nothing would be left, so there is no second attempt
    assert [(each.failed, each.blamed) for each in found.attempts] == [
        (["output error"], "head:head")
    ]
    assert "head:head costs the most" in done.stdout
    assert (tmp_path / "int8").exists() is force
    if force:
        assert (found.outcome, record(tmp_path / "int8").gates) == ("forced", "forced")
        assert record(tmp_path / "int8").failed == ["output error"]
    else:
        assert found.outcome == "refused"
        assert "Nothing is written" in done.stdout


REQUEST = Request(
    bundle=BUNDLE,
    drives=("synthetic",),
    precision="int8",
    out=Path("nowhere/int8"),
    graphs=None,
    how="auto",
    device=None,
    keep=(),
    smooth=None,
    windows=16,
    frames=48,
    held_out=(),
    max_ade_increase=0.02,
    max_tau_drop=0.03,
    max_parse_failures=0,
    max_error=0.1,
    threads=1,
    report=False,
    retry=True,
    force=False,
)


def test_options_are_read_as_they_are_meant() -> None:
    asked = asked_for(REQUEST)
    assert (asked.device, asked.keep, asked.graphs) == ("cpu", ("ends",), ())
    assert asked_for(replace(REQUEST, precision="fp8")).device == "tensorrt"
    half = asked_for(replace(REQUEST, precision="fp16", keep=("block 1 mlp",)))
    assert (half.device, half.keep) == ("tensorrt", ("block 1 mlp",))
    kept = asked_for(replace(REQUEST, keep=("none", "head")))
    assert kept.keep == ("none", "head")
    assert asked_for(replace(REQUEST, keep=("head",))).keep == ("ends", "head")
    assert asked_for(replace(REQUEST, graphs=" target, head")).graphs == ("target", "head")
    assert asked_for(replace(REQUEST, device="tensorrt")).device == "tensorrt"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"precision": "int2"}, "--precision is unknown"),
        ({"precision": "fp32"}, "--precision is unknown"),
        ({"precision": "fp8", "device": "cpu"}, "--for cpu brings nothing in fp8"),
        ({"precision": "fp16", "smooth": 0.5}, "--smooth does nothing for fp16"),
        ({"how": "magic"}, "--how magic is no way to int8"),
        ({"precision": "int4", "how": "dynamic"}, "--how dynamic is no way to int4"),
        ({"device": "tensorrt", "how": "static"}, "--how static is no way to int8 for tensorrt"),
        ({"smooth": 1.5}, "smooth is out of range"),
        ({"windows": 1}, "--windows is out of range"),
        ({"frames": 0}, "--frames is out of range"),
        ({"max_tau_drop": -1.0}, "--max-tau-drop is out of range"),
        ({"threads": 0}, "threads is out of range"),
        ({"graphs": "eye"}, "--graphs names none"),
        ({"bundle": Path("nowhere")}, "nowhere is no bundle"),
        ({"out": BUNDLE}, "is the bundle that is to be quantized"),
        ({"drives": ("nowhere",)}, "nowhere is not a drive"),
        ({"held_out": ("1.5",)}, "--held-out is out of range"),
        ({"held_out": ("0.5", "0.2")}, "--held-out is given as a share and again"),
        ({"held_out": ("synthetic",)}, "is calibrated on as well"),
    ],
)
def test_bad_input_is_told_before_the_work(
    changes: dict[str, object],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SlipstreamError) as caught:
        run_calibrate(replace(REQUEST, **changes))  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert caught.value.fix
    assert os.listdir(tmp_path) == []


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = ("--precision", "int8", "--keep", "block 77 mlp", "-o", "out")
    done = command("calibrate", str(BUNDLE), *SMALL, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "block 77 mlp" in done.stderr
    assert "target:block 3 mlp" in done.stderr
    assert os.listdir(tmp_path) == []
