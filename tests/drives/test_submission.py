"""Submissions to the WOD-E2E challenge: written, read by google.protobuf, checked, refused."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from drives.baselines import baseline
from drives.readers.synthetic import synthetic_drive
from drives.readers.wod_e2e import read_window, read_wod_e2e, wod_e2e_frames
from drives.submission import choose, plan_frames, required_frames
from drives.submission_files import check_submission, write_submission
from drives.submission_format import (
    ARCHIVE,
    FOLDER,
    Method,
    Predictions,
    shard_name,
    written_shard,
)
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.readers.fuzz import damaged
from tests.drives.readers.wod_writer import CLIP, frame, records, states, write_wod_e2e
from tests.drives.waymo_messages import submission_class

INDICES = (0, 3, 7, 40, 90)
NAMES = tuple(f"{CLIP}-{index:03d}" for index in INDICES)
METHOD = Method(
    account="someone@example.com",
    name="slipstream",
    parameters="8M",
    authors=("A. Author", "B. Åuthor"),
    affiliation="Example",
    description="plans",
    link="https://example.com",
)


@pytest.fixture
def folder(tmp_path) -> Path:
    truth = synthetic_drive(2, duration=40.0, noise=0.0)
    return write_wod_e2e(tmp_path / "wod", records(truth, INDICES))


@pytest.fixture
def predictions() -> Predictions:
    points = np.random.default_rng(1).uniform(-1.0, 1.0, (5, 20, 2)) + np.arange(1, 21)[:, None]
    return Predictions(NAMES, points)


def parsed(path: Path) -> list[Any]:
    kind = submission_class()
    return [kind.FromString(file.read_bytes()) for file in sorted((path / FOLDER).iterdir())]


@pytest.mark.parametrize("models", [(), ("Qwen2.5-VL-3B",)])
def test_google_protobuf_reads_the_same(tmp_path, predictions, models):
    method = Method(**{**vars(METHOD), "public_models": models})
    write_submission(tmp_path, method, predictions, shards=2)
    shards = parsed(tmp_path)
    assert [len(shard.predictions) for shard in shards] == [3, 2]
    for shard in shards:
        assert len(UnknownFieldSet(shard)) == 0
        assert shard.submission_type == 1
        assert shard.account_name == METHOD.account
        assert shard.unique_method_name == METHOD.name
        assert tuple(shard.authors) == METHOD.authors
        assert shard.affiliation == METHOD.affiliation
        assert shard.description == METHOD.description
        assert shard.method_link == METHOD.link
        assert shard.num_model_parameters == METHOD.parameters
        assert shard.HasField("uses_public_model_pretraining")
        assert shard.uses_public_model_pretraining == bool(models)
        assert tuple(shard.public_model_names) == models
    found = [each for shard in shards for each in shard.predictions]
    assert [each.frame_name for each in found] == list(NAMES)
    read = np.array([[each.trajectory.pos_x, each.trajectory.pos_y] for each in found])
    np.testing.assert_allclose(read.transpose(0, 2, 1), predictions.trajectories, rtol=1e-6)


def test_bytes_are_those_of_google_protobuf(predictions):
    data = written_shard(METHOD, predictions)
    assert submission_class().FromString(data).SerializeToString(deterministic=True) == data


def test_the_archive_holds_the_folder_and_is_repeatable(tmp_path, predictions):
    first = write_submission(tmp_path / "a", METHOD, predictions, shards=3).read_bytes()
    assert write_submission(tmp_path / "b", METHOD, predictions, shards=3).read_bytes() == first
    with tarfile.open(tmp_path / "a" / ARCHIVE) as tar:
        names = [entry.name for entry in tar if entry.isfile()]
    assert names == [f"{FOLDER}/mysubmission.binproto-0000{i}-of-00003" for i in range(3)]
    checked = check_submission(tmp_path / "a", NAMES)
    assert checked.method == METHOD
    assert checked.predictions.frames == NAMES
    assert checked.shards == 3
    np.testing.assert_allclose(checked.predictions.trajectories, predictions.trajectories, 1e-6)
    for place in (tmp_path / "a" / ARCHIVE, tmp_path / "a" / FOLDER):
        assert check_submission(place).predictions.frames == NAMES


def test_an_earlier_submission_is_replaced_and_nothing_else(tmp_path, predictions):
    (tmp_path / "notes.txt").write_text("mine")
    write_submission(tmp_path, METHOD, predictions, shards=5)
    write_submission(tmp_path, METHOD, predictions, shards=1)
    assert check_submission(tmp_path).shards == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == [FOLDER, ARCHIVE, "notes.txt"]


@pytest.mark.parametrize(("frames", "shards"), [(5, 0), (5, 6), (5, 4), (250_000, 2)])
def test_shards_that_would_be_empty_or_too_large(tmp_path, frames, shards):
    many = Predictions(("x-1",) * frames, np.zeros((frames, 20, 2)))
    with pytest.raises(SlipstreamError, match="shared out") as caught:
        write_submission(tmp_path, METHOD, many, shards)
    assert caught.value.fix
    assert not list(tmp_path.iterdir())


def test_every_frame_is_planned_from_its_own_record(folder):
    """The same observations as those of the clip's windows."""
    found = wod_e2e_frames(folder)
    assert tuple(found) == NAMES
    for record, window in zip(found.values(), windows(read_wod_e2e(folder)), strict=True):
        seen, wanted = read_window(record).observation(7), window.observation
        for name in ("positions", "headings", "speeds", "accelerations", "yaw_rates"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(wanted, name))
        assert (seen.intent, seen.frame) == (wanted.intent, 7)
    planned = plan_frames(KinematicPlanner(), found, DecodeSettings())
    assert planned.predictions.frames == NAMES
    assert planned.predictions.trajectories.shape == (5, 20, 2)
    assert planned.fallbacks == ()


def test_one_clip_of_several(folder, tmp_path):
    truth = synthetic_drive(2, duration=40.0, noise=0.0)
    other = records(truth, (5,), clip="f" * 32)
    both = write_wod_e2e(tmp_path / "both", records(truth, (0, 3)) + other)
    assert len(wod_e2e_frames(both)) == 3
    assert list(wod_e2e_frames(both / ("f" * 32))) == [f"{'f' * 32}-005"]


def test_a_frame_that_is_there_twice_is_refused(tmp_path):
    truth = synthetic_drive(2, duration=40.0, noise=0.0)
    twice = write_wod_e2e(tmp_path / "wod", records(truth, (0, 0)))
    with pytest.raises(SlipstreamError, match="twice"):
        wod_e2e_frames(twice)


def test_frames_without_a_future_are_planned(tmp_path):
    past = states(
        x=np.linspace(-40.0, 0.0, 16), y=np.zeros(16), vx=np.full(16, 10.0), vy=np.zeros(16),
        ax=np.zeros(16), ay=np.zeros(16),
    )  # fmt: skip
    shards = write_wod_e2e(tmp_path, [frame(f"{CLIP}-{i:03d}", past, b"", 1) for i in (8, 149)])
    planned = plan_frames(KinematicPlanner(), wod_e2e_frames(shards), DecodeSettings())
    ahead = planned.predictions.trajectories[:, :, 0]
    np.testing.assert_allclose(ahead, 2.5 * np.arange(1, 21)[None].repeat(2, 0), rtol=1e-6)


def test_a_frame_without_a_plan_gets_the_baseline_and_is_named(folder):
    found = wod_e2e_frames(folder)
    planned = plan_frames(KinematicPlanner(lose_frame=2), found, DecodeSettings())
    assert planned.fallbacks == (NAMES[2],)
    seen = read_window(found[NAMES[2]]).observation(2)
    np.testing.assert_array_equal(planned.predictions.trajectories[2], baseline("ctra", [seen])[0])


def test_required_frames(tmp_path, folder):
    found = wod_e2e_frames(folder)
    listed = tmp_path / "frames.json"
    listed.write_text(json.dumps({CLIP: 7}))
    assert required_frames(listed) == (NAMES[2],)
    (tmp_path / "frames.txt").write_text(f"{NAMES[3]}\n{NAMES[0]}\n\n")
    wanted = required_frames(tmp_path / "frames.txt")
    assert tuple(choose(found, wanted, "there")) == (NAMES[3], NAMES[0])
    with pytest.raises(SlipstreamError, match="lacks frames") as caught:
        choose(found, ("other-001",), "there")
    assert "other-001" in caught.value.found


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "[[1, 2]]", "{", "[" * 100_000, "\0"),
        *('{"a": "b"}', '{"a": 1.5}', '{"a": true}', '{"a": [1]}', '{"a": 1, "a": 2}'),
    ],
)
def test_lists_that_are_none(tmp_path, text):
    (tmp_path / "frames.json").write_text(text)
    with pytest.raises(SlipstreamError, match=r"list of frames|can't be read") as caught:
        required_frames(tmp_path / "frames.json")
    assert "test_sequence_frames" in caught.value.fix


def _points(x: np.ndarray) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        message.predictions[1].trajectory.pos_x[:] = list(x)

    return change


def _set(**values: Any) -> Callable[[Any], None]:
    def change(message: Any) -> None:
        for name, value in values.items():
            setattr(message, name, value)

    return change


BROKEN: dict[str, tuple[Callable[[Any], None], str]] = {
    "19 points": (_points(np.zeros(19)), "20 x and 20 y"),
    "NaN": (_points(np.full(20, np.nan)), "ego frame"),
    "infinite": (_points(np.full(20, np.inf)), "ego frame"),
    "map frame": (_points(np.full(20, 4000.0)), "ego frame"),
    "no trajectory": (lambda m: m.predictions[1].ClearField("trajectory"), "20 x and 20 y"),
    "twice": (_set(), "one prediction for each frame"),
    "no name": (lambda m: m.predictions[1].ClearField("frame_name"), "frame_name"),
    "type": (lambda m: m.ClearField("submission_type"), "submission_type"),
    "account": (_set(account_name="me"), "e-mail"),
    "method": (_set(unique_method_name=" "), "unique name"),
    "parameters": (_set(num_model_parameters="7.5M"), "integer"),
    "pretraining": (lambda m: m.ClearField("uses_public_model_pretraining"), "pretraining"),
    "models": (_set(uses_public_model_pretraining=True), "public_model_names"),
    "nothing": (lambda m: m.ClearField("predictions"), "every frame"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_every_broken_rule_is_found(tmp_path, predictions, name):
    change, expected = BROKEN[name]
    message = submission_class().FromString(written_shard(METHOD, predictions))
    change(message)
    if name == "twice":
        message.predictions[2].frame_name = message.predictions[1].frame_name
    (tmp_path / shard_name(0, 1)).write_bytes(message.SerializeToString())
    with pytest.raises(SlipstreamError) as caught:
        check_submission(tmp_path)
    assert expected in caught.value.expected
    assert caught.value.fix


@pytest.mark.parametrize(
    "names",
    [
        ("part0", "part1"),
        (shard_name(0, 3), shard_name(1, 3)),
        (shard_name(0, 2), shard_name(0, 2).replace("my", "your")),
        (shard_name(0, 2), shard_name(1, 2), "._x"),
    ],
)
def test_names_that_the_server_does_not_find(tmp_path, predictions, names):
    for name in names:
        (tmp_path / name).write_bytes(written_shard(METHOD, predictions))
    with pytest.raises(SlipstreamError, match="rule") as caught:
        check_submission(tmp_path)
    assert "mysubmission.binproto-00000-of-00001" in caught.value.expected


def test_shards_that_disagree(tmp_path, predictions):
    write_submission(tmp_path, METHOD, predictions, shards=2)
    other = submission_class().FromString((tmp_path / FOLDER / shard_name(1, 2)).read_bytes())
    other.unique_method_name = "another"
    (tmp_path / FOLDER / shard_name(1, 2)).write_bytes(other.SerializeToString())
    with pytest.raises(SlipstreamError, match="different shards"):
        check_submission(tmp_path)
    (tmp_path / ARCHIVE).unlink()
    with pytest.raises(SlipstreamError, match="rule") as caught:
        check_submission(tmp_path)
    assert "in all shards" in caught.value.expected


def _header(kind: bytes, size: int) -> bytes:
    """A tar member's header whose size may be more than is there."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT)


BOMBS = {
    "names without end": lambda: (_header(b"L", 4) + b"abc".ljust(512, b"\0")) * 3000,
    "attributes without end": lambda: (_header(b"x", 6) + b"6 a=b\n".ljust(512, b"\0")) * 3000,
    "a size out of all proportion": lambda: _header(b"x", 1 << 40) + bytes(2048),
    "zeros": lambda: _header(b"x", 1 << 29) + bytes(1 << 29),
}


@pytest.mark.parametrize("name", BOMBS)
def test_archives_that_would_burst(tmp_path, name):
    """512 MiB of zeros are refused while half of them are unpacked."""
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(BOMBS[name](), 1))
    with pytest.raises(SlipstreamError, match="can't be read as a submission"):
        check_submission(tmp_path / "a.tar.gz")


def test_an_archive_that_lacks_its_end(tmp_path, predictions):
    """The checksum stands there."""
    archive = write_submission(tmp_path, METHOD, predictions)
    archive.write_bytes(archive.read_bytes()[:-6])
    with pytest.raises(SlipstreamError, match="can't be read as a submission"):
        check_submission(archive)


@pytest.mark.parametrize(("wanted", "what"), [((*NAMES, "x-1"), "lacks"), (NAMES[:4], "too many")])
def test_other_frames_than_required(tmp_path, predictions, wanted, what):
    write_submission(tmp_path, METHOD, predictions)
    with pytest.raises(SlipstreamError, match=what):
        check_submission(tmp_path, wanted)


@pytest.mark.parametrize(
    "change",
    [
        *({"account": "me"}, {"account": ""}, {"name": ""}, {"parameters": "8m"}),
        *({"name": "a\udcff"}, {"authors": ("a", "\udcff")}),
    ],
)
def test_what_the_challenge_does_not_take(change):
    with pytest.raises(SlipstreamError, match="does not take") as caught:
        Method(**{**vars(METHOD), **change})
    assert caught.value.fix


@pytest.mark.parametrize("packed", [False, True])
def test_damage_is_refused_or_read(tmp_path, predictions, packed):
    write_submission(tmp_path / "whole", METHOD, predictions)
    whole = tmp_path / "whole"
    path = whole / ARCHIVE if packed else whole / FOLDER / shard_name(0, 1)
    data, random, refused = path.read_bytes(), Random(3), 0
    for _ in range(300):
        path.write_bytes(damaged(data, random))
        try:
            check_submission(path if packed else path.parent)
        except SlipstreamError as error:
            refused += bool(error.fix)
    assert refused > 100


def test_what_is_no_submission(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(SlipstreamError) as caught:
            check_submission(path)
        assert caught.value.fix
