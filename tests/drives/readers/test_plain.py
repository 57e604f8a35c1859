"""The plain format: written and read again, its units, and everything that may be wrong in it."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drives.drive import ImageReferences
from drives.info import describe
from drives.open import open_drive
from drives.readers.plain import KNOWN, Sidecar, is_plain, read_plain, write_plain
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from planners.observation import Intent
from runtime.errors import SlipstreamError
from tests.drives.readers.fuzz import LONG, SHORT, survives

pytest.importorskip("pyarrow")

SUFFIXES = (".csv", ".parquet")
SIDECAR = {
    "format": "slipstream-drive",
    "version": 1,
    "name": "yard",
    "licence": "CC0",
    "rate_hz": 10.0,
    "frame": "enu",
}


def write(folder: Path, columns: dict, **sidecar) -> Path:
    """A CSV table by hand, as a user would."""
    rows = [",".join(columns)]
    rows += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / "yard.csv").write_text("\n".join(rows) + "\n")
    told = {key: value for key, value in {**SIDECAR, **sidecar}.items() if value is not None}
    (folder / "yard.json").write_text(json.dumps(told))
    return folder / "yard.csv"


def line(count: int = 120) -> dict:
    """10 m/s along x, 10 Hz."""
    at = [round(0.1 * i, 6) for i in range(count)]
    return {"time": at, "x": [10 * t for t in at], "y": [0.0] * count, "heading": [0.0] * count}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_gives_back_what_was_written(tmp_path, suffix):
    truth = synthetic_drive(2, duration=30.0)
    names = [f"/img/{i}.png" for i in range(0, 300, 3)]
    images = (ImageReferences("front", truth.times[:300:3], tuple(names)),)
    intents = np.arange(len(truth.times)) // 20 % 4
    positions = np.column_stack([truth.positions, 0.01 * truth.times])
    positions[40] = np.nan
    truth = replace(
        truth, positions=positions, intents=intents, images=images, clock_start=1.7e9, dataset="d"
    )
    write_plain(truth, tmp_path / f"drive{suffix}")
    drive = open_drive(tmp_path / f"drive{suffix}")
    for field in ("times", "positions", "headings", "speeds", "intents"):
        np.testing.assert_array_equal(getattr(drive, field), getattr(truth, field), err_msg=field)
    for field in ("name", "source", "licence", "synthetic", "clock_start", "dataset", "recording"):
        assert getattr(drive, field) == getattr(truth, field), field
    assert drive.images[0].camera == "front"
    assert drive.images[0].paths == images[0].paths
    np.testing.assert_array_equal(drive.images[0].times, images[0].times)
    assert describe(drive).unknown == 1


def test_a_table_by_hand(tmp_path):
    columns = line() | {"intent": ["left"] * 60 + [""] * 60}
    columns["image.front"] = [f"front/{i}.jpg" if i % 2 else "" for i in range(120)]
    drive = open_drive(write(tmp_path, columns, source="a yard"))
    assert (drive.name, drive.licence, drive.source) == ("yard", "CC0", "a yard")
    np.testing.assert_allclose(drive.speeds[2:], 10.0, atol=1e-9)
    assert set(drive.intents[:60]) == {Intent.LEFT}
    assert set(drive.intents[60:]) == {Intent.UNKNOWN}
    (camera,) = drive.images
    assert camera.paths[0] == str(tmp_path / "front" / "1.jpg")
    assert len(camera.paths) == 60
    assert len(windows(drive)) > 0


def test_speeds_that_are_not_recorded_know_nothing_of_later(tmp_path):
    truth = synthetic_drive(3, duration=30.0)
    columns = {"time": truth.times, "x": truth.positions[:, 0], "y": truth.positions[:, 1]}
    columns["heading"] = truth.headings
    whole = read_plain(write(tmp_path, columns))
    half = read_plain(write(tmp_path, {name: each[:150] for name, each in columns.items()}))
    np.testing.assert_array_equal(half.speeds, whole.speeds[:150])


def test_north_east_down_is_the_same_motion(tmp_path):
    truth = synthetic_drive(4, duration=20.0, noise=0.0)
    columns = {
        "time": truth.times,
        "x": truth.positions[:, 1],
        "y": truth.positions[:, 0],
        "z": np.full(len(truth.times), -3.0),
        "heading": 0.5 * np.pi - truth.headings,
        "speed": truth.speeds,
    }
    drive = read_plain(write(tmp_path, columns, frame="ned"))
    np.testing.assert_allclose(drive.positions[:, :2], truth.positions[:, :2], atol=1e-9)
    np.testing.assert_allclose(drive.positions[:, 2], 3.0)
    turned = drive.headings - truth.headings
    np.testing.assert_allclose(turned, turned[0], atol=1e-9)
    assert np.cos(turned[0]) == pytest.approx(1.0)


def test_a_lever_arm_is_taken_off(tmp_path):
    drive = read_plain(write(tmp_path, line(), lever_arm=1.5))
    assert drive.positions[0, 0] == pytest.approx(-1.5)


def test_wrapped_headings_are_unwrapped(tmp_path):
    turn = (np.arange(120) * 0.1 + np.pi) % (2 * np.pi) - np.pi
    drive = read_plain(write(tmp_path, line() | {"heading": turn}))
    assert np.abs(np.diff(drive.headings)).max() < 0.11


BAD_TABLES = {
    "missing column": ({"heading": None}, "does not have the columns"),
    "unknown column": ({"velocity": [1.0] * 120}, "does not have the columns"),
    "a word": ({"x": ["east"] * 120}, "row 2 has no number for x"),
    "times reversed": ({"time": list(range(120, 0, -1))}, "bad time stamp in row 3"),
    "a time missing": ({"time": [0.0, "", *range(2, 120)]}, "bad time stamp in row 3"),
    "milliseconds": ({"time": [100.0 * i for i in range(120)]}, "not sampled as its sidecar says"),
    "degrees": ({"heading": [(3.6 * i) % 360 for i in range(120)]}, "no radians"),
    "centimetres far away": ({"x": [1e9] * 120}, "row 1 is not a position"),
    "an endless speed": ({"speed": [1e9] * 120}, "row 1 is not a speed"),
    "an unknown intent": ({"intent": ["up"] * 120}, "row 2 has no intent"),
    "a number of no intent": ({"intent": [4] * 120}, "row 2 has no intent"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables(tmp_path, kind):
    change, says = BAD_TABLES[kind]
    columns = {name: cells for name, cells in (line() | change).items() if cells is not None}
    with pytest.raises(SlipstreamError, match=says):
        read_plain(write(tmp_path, columns))


BAD_SIDECARS = {
    "another format": {"format": "other"},
    "a later version": {"version": 2},
    "no licence": {"licence": None},
    "no rate": {"rate_hz": None},
    "a rate of nothing": {"rate_hz": 0.0},
    "another frame": {"frame": "utm"},
    "an arm in millimetres": {"lever_arm": 1500.0},
    "a field too many": {"units": "feet"},
    "a rate in words": {"rate_hz": "10"},
    "a version of truth": {"version": True},
    "motion that is somehow computed": {"synthetic": "no"},
    "a clock beyond all years": {"clock_start": 1e308},
    "a clock of nothing": {"clock_start": float("nan")},
}


@pytest.mark.parametrize("kind", BAD_SIDECARS)
def test_bad_sidecars(tmp_path, kind):
    with pytest.raises(SlipstreamError, match=r"yard\.json does not describe a drive") as caught:
        read_plain(write(tmp_path, line(), **BAD_SIDECARS[kind]))
    assert next(iter(BAD_SIDECARS[kind])) in caught.value.found


def test_a_field_of_the_sidecar_that_is_given_twice(tmp_path):
    path = write(tmp_path, line())
    sidecar = path.with_suffix(".json")
    sidecar.write_text('{"name": "other", ' + sidecar.read_text()[1:])
    with pytest.raises(SlipstreamError, match=r"yard\.json does not describe a drive") as caught:
        read_plain(path)
    assert "'name' is there twice" in caught.value.found


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    """Spreadsheets and editors of Windows begin what they call UTF-8 with one."""
    path = write(tmp_path, line())
    for file in (path, path.with_suffix(".json")):
        file.write_text(file.read_text(), encoding="utf-8-sig")
    assert is_plain(path)
    assert len(read_plain(path).times) == 120
    path.with_suffix(".json").unlink()
    assert is_plain(path)


def test_other_files_that_are_no_table(tmp_path):
    path = write(tmp_path, line())
    (tmp_path / "yard.json").unlink()
    assert is_plain(path)
    with pytest.raises(SlipstreamError, match="no sidecar"):
        read_plain(path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert not is_plain(tmp_path / "other.csv")
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:50], "1,2", *rows[50:]]))
    (tmp_path / "yard.json").write_text(json.dumps(SIDECAR))
    with pytest.raises(SlipstreamError, match="row 51 is not a row"):
        read_plain(path)
    path.write_text("")
    with pytest.raises(SlipstreamError, match="does not have the columns"):
        read_plain(path)
    with pytest.raises(SlipstreamError, match=r"\.csv or \.parquet"):
        write_plain(synthetic_drive(1, duration=2.0), tmp_path / "drive.xlsx")


def test_a_damaged_page_of_a_parquet_table_is_found(tmp_path):
    path = tmp_path / "drive.parquet"
    write_plain(synthetic_drive(1, duration=20.0), path)
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.raises(SlipstreamError, match=r"can't be read"):
        read_plain(path)
    path.write_bytes(data[:-40])
    with pytest.raises(SlipstreamError, match=r"can't be read"):
        read_plain(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_reads_and_cuts_two_thousand_frames_a_second(tmp_path, suffix):
    path = tmp_path / f"drive{suffix}"
    write_plain(synthetic_drive(1, duration=600.0), path)
    start = time.process_time()  # the processor's time: a busy machine must not decide
    drive = read_plain(path)
    windows(drive, 0.1)
    assert len(drive.times) / (time.process_time() - start) > 2000


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damage_is_refused(tmp_path, suffix):
    path = tmp_path / f"drive{suffix}"
    write_plain(synthetic_drive(1, duration=12.0), path)
    files = [path, path.with_suffix(".json")]
    assert survives(lambda: read_plain(path), files, 9, SHORT // 2) > SHORT // 10


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_much_damage_is_refused(tmp_path, suffix):
    path = tmp_path / f"drive{suffix}"
    write_plain(synthetic_drive(1, duration=12.0), path)
    files = [path, path.with_suffix(".json")]
    assert survives(lambda: read_plain(path), files, 10, LONG // 2) > LONG // 10


def test_the_examples_of_the_documentation(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "drives.md").read_text()
    blocks = re.findall(r"```(csv|json|python)\n(.*?)```", text, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["csv", "json", "python"]
    for kind, block in blocks[:2]:
        (tmp_path / f"yard.{kind}").write_text(block)
    drive = open_drive(tmp_path / "yard.csv")
    assert drive.name == "yard-2024-05-03"
    assert drive.intents.tolist() == [Intent.STRAIGHT, Intent.STRAIGHT, Intent.LEFT]
    assert len(drive.images[0].paths) == 2
    monkeypatch.chdir(tmp_path)
    exec(blocks[2][1], {})
    assert len(windows(open_drive(tmp_path / "straight.parquet"))) > 0


def test_the_documentation_names_every_column_and_field():
    text = (Path(__file__).parents[3] / "docs" / "drives.md").read_text()
    for name in (*KNOWN, *Sidecar.model_fields):
        assert f"`{name}`" in text, name
