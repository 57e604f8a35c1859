"""The nuScenes reader, on tables written here and on real ones where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from drives.info import describe
from drives.readers import json_index, json_records
from drives.readers.nuscenes import is_nuscenes, nuscenes_scenes, read_nuscenes
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.conftest import travelled
from tests.drives.readers.fuzz import LONG, SHORT, damaged, survives
from tests.drives.readers.writers import STILL, write_nuscenes

SCENES = {"scene-0103": (118.3, 40, 2090), "scene-0916": (93.7, 41, 2424)}  # m, samples, boxes


@pytest.fixture
def truth():
    return synthetic_drive(2, duration=30.0, noise=0.0)


@pytest.fixture
def root(tmp_path, truth):
    other = synthetic_drive(3, duration=10.0, noise=0.0)
    return write_nuscenes(tmp_path / "nuscenes", {"scene-0001": truth, "scene-0002": other})


def test_gives_back_what_was_written(root, truth):
    drive = read_nuscenes(root / "scene-0001")
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-6)
    moved = truth.positions - truth.positions[0]
    np.testing.assert_allclose(drive.positions[:, :2], moved, atol=1e-6)
    np.testing.assert_allclose(drive.headings, truth.headings, atol=1e-9)
    assert np.abs(drive.speeds - truth.speeds).max() < 0.25
    assert (drive.dataset, drive.recording) == ("nuScenes", "scene-0001")
    assert "nowhere" in drive.source
    assert len(windows(drive)) == len(windows(truth))
    assert read_nuscenes(root, scene="scene-0002").duration == pytest.approx(10.0)


def test_agents_stand_in_the_world(root, truth):
    agents = read_nuscenes(root / "scene-0001").agents
    assert agents is not None
    assert len(agents) == 61
    for frame in agents:
        assert frame.kinds == ("vehicle.car",)
        np.testing.assert_allclose(frame.positions, [STILL - [*truth.positions[0], 0.0]], atol=1e-6)
        assert frame.headings == pytest.approx(0.3)
        np.testing.assert_allclose(frame.sizes, [[4.5, 1.9, 1.6]])  # length, width, height
    assert agents[1].time == pytest.approx(0.5)


def test_the_test_split_has_no_labels(root):
    (root / "v1.0-mini" / "sample_annotation.json").unlink()
    assert read_nuscenes(root / "scene-0001").agents is None


def test_images_that_are_there_are_named(root):
    assert read_nuscenes(root / "scene-0001").images is None
    file = json.loads((root / "v1.0-mini" / "sample_data.json").read_text())[7]["filename"]
    (root / file).parent.mkdir(parents=True)
    (root / file).touch()
    images = read_nuscenes(root / "scene-0001").images
    assert images is not None
    assert [each.camera for each in images] == ["CAM_FRONT"]
    assert images[0].times == pytest.approx([0.302])
    assert images[0].paths == (str(root / file),)


def test_several_scenes_are_listed(root):
    assert nuscenes_scenes(root) == ("scene-0001", "scene-0002")
    with pytest.raises(SlipstreamError, match="2 scenes") as caught:
        read_nuscenes(root)
    assert "scene-0001, scene-0002" in caught.value.expected
    assert str(root / "scene-0001") in caught.value.fix
    with pytest.raises(SlipstreamError, match="no scene-0003"):
        read_nuscenes(root / "scene-0003")


def test_one_scene_needs_no_name(tmp_path, truth):
    assert read_nuscenes(write_nuscenes(tmp_path, {"scene-0009": truth})).name == "scene-0009"


def test_recognises_root_tables_and_scene(root, tmp_path):
    assert is_nuscenes(root)
    assert is_nuscenes(root / "v1.0-mini")
    assert is_nuscenes(root / "scene-0001")
    assert not is_nuscenes(tmp_path)
    assert not is_nuscenes(tmp_path / "nothing" / "scene-0001")
    (root / "maps").mkdir()
    assert not is_nuscenes(root / "maps")


def test_two_sets_of_tables_need_a_name(root, truth):
    write_nuscenes(root, {"scene-0001": truth}, "v1.0-trainval")
    with pytest.raises(SlipstreamError, match="several sets"):
        read_nuscenes(root)
    assert len(nuscenes_scenes(root / "v1.0-trainval")) == 1


@pytest.mark.parametrize(
    "table",
    [
        *("scene", "sample", "sample_data", "ego_pose", "sensor", "calibrated_sensor"),
        *("instance", "category", "log"),
    ],
)
def test_missing_and_cut_tables_are_named(root, table):
    path = root / "v1.0-mini" / f"{table}.json"
    whole = path.read_text()
    for text in (whole[: len(whole) // 2], whole[:-1], whole + "]", "{}", "[3]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(SlipstreamError, match=table):
            read_nuscenes(root / "scene-0001")
    path.unlink()
    with pytest.raises(SlipstreamError, match=r"nuScenes|" + table):
        read_nuscenes(root / "scene-0001")


def _changed(root: Path, table: str, row: int, **values: object) -> None:
    path = root / "v1.0-mini" / f"{table}.json"
    rows = json.loads(path.read_text())
    rows[row] |= values
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize(
    ("table", "values", "message"),
    [
        ("ego_pose", {"rotation": [3.0, 0.0, 0.0, 0.0]}, "is not an orientation"),
        ("ego_pose", {"rotation": [1.0, 0.0, 0.0]}, "4 numbers rotation"),
        ("ego_pose", {"translation": "here"}, "3 numbers translation"),
        ("ego_pose", {"token": "lost"}, "lacks poses"),
        ("sample_data", {"timestamp": 1.5}, "a whole number timestamp"),
        ("sample_data", {"timestamp": 1533151603612404}, "bad time stamp"),
        ("sample_data", {"calibrated_sensor_token": "lost"}, "a calibrated sensor"),
        ("sample_annotation", {"size": [float("nan"), 1.0, 1.0]}, "finite numbers"),
        ("sample_annotation", {"instance_token": "lost"}, "lacks instances"),
    ],
)
def test_bad_records_are_named(root, table, values, message):
    _changed(root, table, 0, **values)
    with pytest.raises(SlipstreamError, match=message) as caught:
        read_nuscenes(root / "scene-0001")
    assert ".json" in caught.value.what


def test_unknown_poses_spoil_only_themselves(root):
    _changed(root, "ego_pose", 20, translation=[float("nan"), 0.0, 0.0])
    assert list(np.flatnonzero(~read_nuscenes(root / "scene-0001").valid)) == [10]


def test_without_a_lidar_another_sensor_gives_the_poses(root, truth):
    path = root / "v1.0-mini" / "sensor.json"
    path.write_text(path.read_text().replace("LIDAR_TOP", "RADAR_FRONT"))
    path = root / "v1.0-mini" / "sample_data.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps(rows[1:]))  # the camera now has one more
    drive = read_nuscenes(root / "scene-0001")
    assert "CAM_FRONT" in drive.source
    assert drive.clock_start == pytest.approx(1533151603.514402)
    assert drive.path_length == pytest.approx(truth.path_length, rel=1e-6)


def test_files_outside_of_the_data_root_are_no_images(root, tmp_path):
    (tmp_path / "secret.jpg").touch()
    _changed(root, "sample_data", 1, filename="../secret.jpg")
    assert read_nuscenes(root / "scene-0001").images is None


def test_tables_are_streamed(root, monkeypatch):
    """Pieces far smaller than the file, cut anywhere, give the same records."""
    path = root / "v1.0-mini" / "ego_pose.json"
    whole = [record.values for record in json_records.records(path, "")]
    assert whole == json.loads(path.read_text())
    monkeypatch.setattr(json_records, "_LONGEST", 2000)
    for piece in (1999, 4096):
        monkeypatch.setattr(json_records, "_PIECE", piece)
        assert [record.values for record in json_records.records(path, "")] == whole


@pytest.mark.parametrize(
    ("change", "by_bytes"),
    [
        ({}, True),
        ({"more": {"size": 3}}, False),  # objects in objects
        ({"more": {"token": "within"}}, True),  # likewise, found when its bytes are no JSON
        ({"more": "} { {"}, False),  # braces that are none
        ({"more": ', "token": "x"'}, True),  # written with escapes
    ],
)
def test_tables_are_searched_or_parsed_with_the_same_result(root, monkeypatch, change, by_bytes):
    path = root / "v1.0-mini" / "ego_pose.json"
    rows = json.loads(path.read_text())
    rows[3] |= change
    path.write_text(json.dumps(rows))
    status = path.stat()
    index = json_index._indexed(path, "token", status.st_size, status.st_mtime_ns)
    assert (index is not None) == by_bytes
    wanted = {rows[each]["token"] for each in (0, 3, 17)} | {"nowhere"}
    found = json_index.records_with(path, "token", wanted, "")
    assert [record.values for record in found] == [rows[0], rows[3], rows[17]]
    drive = read_nuscenes(root / "scene-0001")
    monkeypatch.setattr(json_index, "_indexed", lambda *_: None)
    np.testing.assert_array_equal(read_nuscenes(root / "scene-0001").positions, drive.positions)


def test_a_table_that_changes_is_searched_again(root):
    path = root / "v1.0-mini" / "ego_pose.json"
    before = read_nuscenes(root / "scene-0001").positions
    rows = json.loads(path.read_text())
    for row in rows:
        row["translation"][0] *= 2.0
    path.write_text(json.dumps(rows))
    assert not np.array_equal(read_nuscenes(root / "scene-0001").positions, before)


def _worse(data: bytes, random: Random) -> bytes:
    """Also swaps a value for one of another type, so that the JSON often stays whole."""
    if random.random() < 0.5:
        return damaged(data, random)
    words = [
        b"null",
        b"NaN",
        b"-1",
        b"1e999",
        b"[]",
        b"{}",
        b'"x"',
        b"true",
        b"9" * 30,
        b"[[[[]]]]",
    ]
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    key, colon, _ = lines[at].partition(b": ")
    comma = b"," if lines[at].endswith(b",") else b""
    lines[at] = (key + colon if colon else b"") + random.choice(words) + comma
    return b"\n".join(lines)


@pytest.mark.parametrize(
    "inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_damaged_tables_are_refused_or_read(tmp_path, inputs):
    drive = synthetic_drive(2, duration=3.0, noise=0.0)
    root = write_nuscenes(tmp_path, {"scene-0001": drive})
    files = sorted((root / "v1.0-mini").glob("*.json"))
    assert survives(lambda: read_nuscenes(root), files, 2, inputs, _worse) > inputs // 4


@pytest.mark.parametrize("scene", SCENES)
def test_recorded(shared_drives, scene):
    root = shared_drives / "nuscenes"
    if not root.is_dir():
        pytest.skip("no nuScenes tables")
    path, samples, boxes = SCENES[scene]
    drive = read_nuscenes(root / scene)
    assert drive.path_length == pytest.approx(path, rel=5e-3)
    assert travelled(drive.times, drive.speeds) == pytest.approx(drive.path_length, rel=1e-2)
    assert describe(drive).warnings == ()
    assert drive.agents is not None
    assert len(drive.agents) == samples
    assert sum(len(frame.ids) for frame in drive.agents) == boxes
