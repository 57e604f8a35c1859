"""The Argoverse 2 reader, on a log written here and on real ones where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drives.info import describe
from drives.readers.argoverse2 import is_argoverse2, read_argoverse2
from drives.readers.synthetic import synthetic_drive
from drives.windows import windows
from runtime.errors import SlipstreamError
from tests.drives.conftest import travelled
from tests.drives.readers.fuzz import LONG, SHORT, survives
from tests.drives.readers.writers import STILL, write_argoverse2

pa = pytest.importorskip("pyarrow")
feather = pytest.importorskip("pyarrow.feather")

PATHS = {"3b3570b4": 50.3, "7fab2350": 74.9, "adcf7d18": 40.4}  # m
POSES = "city_SE3_egovehicle.feather"


@pytest.fixture
def truth():
    return synthetic_drive(2, duration=30.0, noise=0.0)


def test_gives_back_what_was_written(tmp_path, truth):
    drive = read_argoverse2(write_argoverse2(tmp_path / "0123456789", truth))
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-9)
    moved = truth.positions - truth.positions[0]
    np.testing.assert_allclose(drive.positions[:, :2], moved, atol=1e-6)
    np.testing.assert_allclose(drive.headings, truth.headings, atol=1e-9)
    assert np.abs(drive.speeds - truth.speeds).max() < 0.25
    assert drive.name == "av2-01234567"
    assert len(windows(drive)) == len(windows(truth))


def test_agents_stand_in_the_world_and_the_ego_is_none_of_them(tmp_path, truth):
    agents = read_argoverse2(write_argoverse2(tmp_path, truth)).agents
    assert agents is not None
    assert len(agents) == 61
    still = STILL - [*truth.positions[0], 0.0]
    for frame in agents:
        assert frame.ids == ("parked",)
        assert frame.kinds == ("REGULAR_VEHICLE",)
        np.testing.assert_allclose(frame.positions, [still], atol=1e-6)
        assert frame.headings == pytest.approx(0.3)
        np.testing.assert_allclose(frame.sizes, [[4.5, 1.9, 1.6]])
    assert agents[1].time == pytest.approx(0.5)


def test_images_are_named_with_their_times(tmp_path, truth):
    folder = write_argoverse2(tmp_path, truth)
    place = folder / "sensors" / "cameras" / "ring_front_center"
    place.mkdir(parents=True)
    for stamp in (315966253760357000, 315966253660357000):
        (place / f"{stamp}.jpg").touch()
    (place / "notes.jpg").touch()
    images = read_argoverse2(folder).images
    assert images is not None
    assert [each.camera for each in images] == ["ring_front_center"]
    assert images[0].times == pytest.approx([0.0, 0.1])
    assert images[0].paths[0].endswith("315966253660357000.jpg")


def _rewritten(folder: Path, change) -> None:
    table = feather.read_table(str(folder / POSES)).to_pydict()
    change(table)
    feather.write_feather(pa.table(table), str(folder / POSES))


def test_unknown_poses_spoil_only_themselves(tmp_path, truth):
    folder = write_argoverse2(tmp_path, truth, twins=False)

    def change(table):
        table["tx_m"][100] = float("nan")
        table["qw"][101] = None

    _rewritten(folder, change)
    assert list(np.flatnonzero(~read_argoverse2(folder).valid)) == [100, 101]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("qw"), "no qw"),
        (lambda t: t["timestamp_ns"].__setitem__(9, t["timestamp_ns"][4]), "bad time stamp in row"),
        (lambda t: t["qw"].__setitem__(9, 7.0), "row 10 is not an orientation"),
        (lambda t: t.__setitem__("tx_m", [str(x) for x in t["tx_m"]]), "tx_m of string"),
        (lambda t: t["timestamp_ns"].__setitem__(3, None), "1 missing"),
    ],
)
def test_bad_tables_are_named(tmp_path, truth, change, message):
    folder = write_argoverse2(tmp_path, truth, twins=False)
    _rewritten(folder, change)
    with pytest.raises(SlipstreamError, match=message) as caught:
        read_argoverse2(folder)
    assert POSES in str(caught.value)


@pytest.mark.parametrize("cut", [0, 7, 500, -20])
def test_cut_tables_are_refused(tmp_path, truth, cut):
    folder = write_argoverse2(tmp_path, truth)
    (folder / POSES).write_bytes((folder / POSES).read_bytes()[:cut])
    with pytest.raises(SlipstreamError, match="can't be read"):
        read_argoverse2(folder)


def test_labels_without_a_pose_are_refused(tmp_path, truth):
    folder = write_argoverse2(tmp_path, truth)
    other = write_argoverse2(tmp_path / "b", synthetic_drive(2, duration=40.0, noise=0.0))
    (folder / "annotations.feather").write_bytes((other / "annotations.feather").read_bytes())
    with pytest.raises(SlipstreamError, match="labels at stamps of"):
        read_argoverse2(folder)


def test_recognises_a_log(tmp_path, truth):
    assert is_argoverse2(write_argoverse2(tmp_path / "log", truth))
    assert not is_argoverse2(tmp_path)


@pytest.mark.parametrize(
    "inputs", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_damaged_logs_are_refused_or_read(tmp_path, inputs):
    folder = write_argoverse2(tmp_path, synthetic_drive(2, duration=6.0, noise=0.0))
    files = [folder / POSES, folder / "annotations.feather"]
    assert survives(lambda: read_argoverse2(folder), files, 1, inputs) > inputs // 4


@pytest.mark.parametrize("log", PATHS)
def test_recorded(shared_drives, log):
    found = sorted((shared_drives / "av2").glob(f"{log}*"))
    if not found:
        pytest.skip(f"no Argoverse 2 log {log}")
    drive = read_argoverse2(found[0])
    assert drive.path_length == pytest.approx(PATHS[log], rel=5e-3)
    assert travelled(drive.times, drive.speeds) == pytest.approx(drive.path_length, rel=1e-2)
    assert describe(drive).warnings == ()
    assert drive.agents is not None
    assert len(drive.agents) in (156, 157)
    assert all("EGO_VEHICLE" not in frame.kinds for frame in drive.agents)
    # What can't move stays where it is while the vehicle drives past.
    tracks: dict[str, list[np.ndarray]] = {}
    for frame in drive.agents:
        for name, kind, position in zip(frame.ids, frame.kinds, frame.positions, strict=True):
            if kind in ("BOLLARD", "CONSTRUCTION_CONE"):
                tracks.setdefault(name, []).append(position)
    spans = [np.ptp(np.array(track)[:, :2], axis=0).max() for track in tracks.values()]
    assert np.median(spans) < 0.3
