"""`slipstream submission`: the shipped planner's plans as files of the challenge, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import slipstream
from drives.readers.synthetic import synthetic_drive
from drives.submission_files import check_submission
from drives.submission_format import ARCHIVE, FOLDER
from runtime.errors import SlipstreamError
from slipstream.cli import app
from tests.drives.readers.wod_writer import CLIP, records, write_wod_e2e
from tests.slipstream.command import command

BUNDLE = slipstream.shipped_bundle()
NAMES = tuple(f"{CLIP}-{index:03d}" for index in (0, 30, 60))
WHO = ("--account", "someone@example.com", "--method-name", "tiny")

pytestmark = pytest.mark.skipif(
    not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}"
)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    drive = synthetic_drive(2, duration=40.0, noise=0.0)
    return write_wod_e2e(tmp_path / "wod", records(drive, (0, 30, 60)))


def test_from_shards_to_an_archive_that_passes_the_check(tmp_path: Path, shards: Path) -> None:
    (tmp_path / "frames.json").write_text(json.dumps({CLIP: 30}))
    plan = ("submission", str(BUNDLE), "--drive", str(shards), "-o", "out", "--threads", "1", *WHO)
    done = command(*plan, "--shards", "3", "--authors", "A. One, B. Two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the challenge wants those of its list" in done.stdout
    assert "server has not seen it" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [FOLDER, ARCHIVE]
    checked = check_submission(tmp_path / "out", NAMES)
    assert checked.shards == 3
    assert checked.method.authors == ("A. One", "B. Two")
    assert checked.method.parameters == "7541K" or BUNDLE.name != "tiny"
    lost = "without a plan" in done.stdout
    assert lost or "no fallback was needed" in done.stdout

    again = command(*plan, "--required", "frames.json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert check_submission(tmp_path / "out").predictions.frames == NAMES[1:2]
    assert "its list" not in again.stdout
    read = command("submission", "--check", "out", "--required", "frames.json", cwd=tmp_path)
    assert read.returncode == 0, read.stderr
    assert "the format holds" in read.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "needs --drive"),
        (("--drive", "wod"), "needs -o"),
        (("--drive", "wod", "-o", "out"), "--account"),
        (("--drive", "wod", "-o", "out", *WHO, "--parameters", "lots"), "--parameters"),
        (("--drive", "wod", "-o", "out", *WHO, "--shards", "4"), "shared out"),
        (("--drive", "wod", "-o", "out", *WHO, "--decoder", "best"), "decoder is out of range"),
        (("--drive", "none", "-o", "out", *WHO), "no WOD-E2E shard"),
        (("--drive", "wod", "-o", "out", *WHO, "--required", "other.json"), "lacks frames"),
        (("--check", "wod"), "breaks a rule"),
    ],
)
def test_what_is_refused_before_anything_is_written(
    tmp_path: Path,
    shards: Path,
    options: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps({"nowhere": 1}))
    done = CliRunner().invoke(app, ["submission", str(BUNDLE), *options])
    assert isinstance(done.exception, SlipstreamError)
    assert message in str(done.exception)
    assert done.exception.fix
    assert not (tmp_path / "out").exists()
