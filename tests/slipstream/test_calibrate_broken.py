"""`slipstream calibrate` and `bench` in careless hands: told before an engine is loaded."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

import slipstream
from calibration.modelopt import PYTHON
from calibration.overlap import check_apart
from drives.readers.plain import write_plain
from runtime.errors import SlipstreamError
from slipstream.commands import bench
from slipstream.commands.calibrate import results_path, run_calibrate
from slipstream.commands.calibrate_data import CalibrationData
from tests.slipstream import test_calibrate

BUNDLE = slipstream.shipped_bundle()
REQUEST = replace(test_calibrate.REQUEST, out=Path("out"))
BENCH = bench.Request(
    bundle=BUNDLE,
    precisions="fp32,int8",
    drive="synthetic",
    frames="3",
    out=Path("out"),
    threads=1,
    rollouts=1,
    keep="ends",
    smooth=None,
)


def _too_late(*arguments: object) -> NoReturn:
    pytest.fail("an engine was loaded before the command was looked at")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slipstream, "load", _too_late)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"graphs": ""}, "--graphs names no graph"),
        ({"graphs": " , "}, "--graphs names no graph"),
        ({"graphs": "../target"}, "--graphs names none"),
        ({"graphs": "tar*"}, "--graphs names none"),
        ({"graphs": "embed"}, "would be int8"),
        ({"graphs": "head"}, "would be int8"),  # kept, as an end
        ({"graphs": "head", "precision": "fp16", "keep": ("head",)}, "would be fp16"),
        ({"keep": ("",)}, "--keep '' is no group"),
        ({"keep": ("target:block 99 mlp",)}, "is no group"),
        ({"precision": "nvfp4"}, "can't be quantized to nvfp4"),
        ({"precision": "int8", "device": "tensorrt"}, "is no Python"),
        ({"precision": "fp8"}, "is no Python"),
        ({"drives": ("synthetic", "synthetic:0")}, "--drive names synthetic-0 twice"),
        ({"held_out": ("synthetic:1", "synthetic:1")}, "--held-out names synthetic-1 twice"),
        ({"held_out": ("nan",)}, "--held-out is out of range"),
        ({"out": Path("/")}, "/ is not replaced by a bundle"),
        ({"out": Path("..")}, ".. is not replaced by a bundle"),
        ({"out": Path("a" * 250)}, "can't write"),
    ],
)
def test_it_is_told_at_once(
    changes: dict[str, object], says: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PYTHON, str(here / "nowhere"))
    with pytest.raises(SlipstreamError) as caught:
        run_calibrate(replace(REQUEST, **changes))  # type: ignore[arg-type]
    assert says in str(caught.value)
    assert caught.value.fix
    assert os.listdir(here) == []


def test_a_folder_that_is_named_by_a_dot_has_its_figures_beside_it(here: Path) -> None:
    assert results_path(Path(".")) == here.with_name(f"{here.name}.calibration.json")
    assert results_path(here / "a" / "..").parent == here.parent
    assert results_path(Path("x/y")) == Path("x/y.calibration.json")
    (here / "mine").write_text("mine")
    with pytest.raises(SlipstreamError, match="is not replaced by a bundle"):
        run_calibrate(replace(REQUEST, out=Path(".")))
    assert os.listdir(here) == ["mine"]


@pytest.mark.parametrize("part", [slice(None), slice(1200, None)], ids=["whole", "half"])
def test_the_same_recording_under_another_name_does_not_judge(part: slice, here: Path) -> None:
    drive = slipstream.open_drive("synthetic")
    cut = {name: getattr(drive, name)[part] for name in ("positions", "headings", "speeds")}
    times = drive.times[part] - drive.times[part][0]
    write_plain(replace(drive, name="copy", times=times, intents=None, **cut), here / "copy.csv")
    for changes in ({"held_out": ("copy.csv",)}, {"drives": ("synthetic", "copy.csv")}):
        with pytest.raises(SlipstreamError, match="synthetic-0 and copy hold the same recording"):
            CalibrationData.of(changes.get("drives", ("synthetic",)), changes.get("held_out", ()))
    assert sorted(os.listdir(here)) == ["copy.csv", "copy.json"]


def test_other_drives_hold_other_recordings() -> None:
    check_apart([slipstream.open_drive(f"synthetic:{seed}") for seed in range(3)])


def test_a_folder_where_the_figures_go_is_in_the_way(here: Path) -> None:
    (here / "out.calibration.json").mkdir()
    with pytest.raises(SlipstreamError, match=r"can't write .*out\.calibration\.json"):
        run_calibrate(REQUEST)


def test_a_bundle_that_only_claims_to_be_fp32_is_refused(here: Path) -> None:
    shutil.copytree(BUNDLE, here / "liar")
    manifest = json.loads((here / "liar" / "bundle.json").read_text())
    manifest["graphs"]["head"]["precision"] = "int8"
    (here / "liar" / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(SlipstreamError, match="is quantized already"):
        run_calibrate(replace(REQUEST, bundle=here / "liar"))
    with pytest.raises(SlipstreamError, match="is quantized already"):
        bench.run_bench(replace(BENCH, bundle=here / "liar"))
    assert os.listdir(here) == ["liar"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rollouts": 0}, "--rollouts is out of range"),
        ({"rollouts": 10**6}, "--rollouts is out of range"),
        ({"precisions": ""}, "--precisions can't be measured"),
        ({"precisions": "int8,*"}, "--precisions can't be measured"),
        ({"frames": "9000000:9000001"}, "--frames can't be used"),
        ({"smooth": float("nan")}, "smooth is out of range"),
    ],
)
def test_a_bench_is_told_at_once(changes: dict[str, object], says: str, here: Path) -> None:
    with pytest.raises(SlipstreamError, match=says):
        bench.run_bench(replace(BENCH, **changes))  # type: ignore[arg-type]
    assert os.listdir(here) == []
