"""ROS 2 bags: what is read from written ones, from the public route, and from damaged ones."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drives.info import describe
from drives.open import open_drive
from drives.readers.rosbag2 import is_rosbag2, read_rosbag2
from drives.readers.synthetic import synthetic_drive
from planners.observation import Intent
from runtime.errors import SlipstreamError
from tests.drives.readers.fuzz import LONG, SHORT, survives

pytest.importorskip("rosbags")

from tests.drives.readers import bag_writer as make

MCAP = "bag.mcap"


@pytest.fixture(scope="module")
def truth():
    return synthetic_drive(4, duration=20.0, noise=0.0)


@pytest.fixture
def bag():
    return make.Bag()


def same(drive, truth):
    np.testing.assert_allclose(drive.times, truth.times, atol=1e-8)
    np.testing.assert_allclose(drive.positions[:, :2], truth.positions[:, :2], atol=1e-9)
    np.testing.assert_allclose(
        drive.headings - drive.headings[0], truth.headings - truth.headings[0], atol=1e-9
    )


@pytest.mark.parametrize("mcap", [True, False])
def test_gives_back_what_was_written(tmp_path, truth, bag, mcap):
    make.add_odometry(bag, truth)
    folder = bag.write(tmp_path / "bag", mcap=mcap)
    drive = read_rosbag2(folder)
    same(drive, truth)
    np.testing.assert_allclose(drive.speeds, truth.speeds, atol=1e-12)
    assert drive.name == "bag"
    assert drive.clock_start == pytest.approx(make.START_NS * 1e-9)
    assert (drive.intents, drive.images, drive.warnings) == (None, None, ())
    (file,) = (each for each in folder.iterdir() if each.suffix in (".mcap", ".db3"))
    np.testing.assert_array_equal(read_rosbag2(file).positions, drive.positions)
    (folder / "metadata.yaml").unlink()
    np.testing.assert_array_equal(read_rosbag2(folder).positions, drive.positions)


def test_zero_stamps_and_an_empty_twist_are_met_and_told(tmp_path, truth, bag):
    make.add_odometry(bag, truth, twist=False, stamped=False)
    drive = read_rosbag2(bag.write(tmp_path / "bag"))
    same(drive, truth)
    moving = truth.speeds > 1.0
    assert np.abs(drive.speeds - truth.speeds)[moving][10:].max() < 0.3
    assert "stamps of /odom are all zero" in drive.warnings[0]
    assert "twist of the odometry is all zero" in drive.warnings[1]
    assert describe(drive).warnings[:2] == drive.warnings


def test_poses_with_speeds_of_the_vehicle(tmp_path, truth, bag):
    make.add_poses(bag, truth)
    make.add_velocity_reports(bag, replace(truth, times=truth.times + 0.03))
    drive = read_rosbag2(bag.write(tmp_path / "bag"))
    same(drive, truth)
    inner = slice(1, -1)
    wanted = np.interp(truth.times, truth.times + 0.03, truth.speeds)
    np.testing.assert_allclose(drive.speeds[inner], wanted[inner], atol=1e-6)
    assert "speeds from /vehicle/status" in drive.source


def test_poses_alone_give_causal_speeds(tmp_path, truth, bag):
    make.add_poses(bag, truth)
    whole = read_rosbag2(bag.write(tmp_path / "whole"))
    short = make.Bag()
    part = replace(
        truth,
        times=truth.times[:120],
        positions=truth.positions[:120],
        headings=truth.headings[:120],
        speeds=truth.speeds[:120],
    )
    make.add_poses(short, part)
    half = read_rosbag2(short.write(tmp_path / "half"))
    np.testing.assert_array_equal(half.speeds, whole.speeds[:120])


def test_intents_by_name_hold_from_their_message_on(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    words = ["none/off"] * len(truth.times)
    words[50:80] = ["laneChangeLeft/starting"] * 30
    words[100:110] = ["turnRight"] * 10
    words[120:125] = ["GO_STRAIGHT"] * 5
    make.add_words(bag, truth, words)
    drive = read_rosbag2(bag.write(tmp_path / "bag"))
    assert set(drive.intents[50:80]) == {Intent.LEFT}
    assert set(drive.intents[100:110]) == {Intent.RIGHT}
    assert set(drive.intents[120:125]) == {Intent.STRAIGHT}
    assert np.sum(drive.intents != 0) == 45


def test_a_general_type_gives_intents_only_when_asked(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    make.add_words(bag, truth, ["left"] * len(truth.times), "/diagnostics")
    folder = bag.write(tmp_path / "bag")
    assert read_rosbag2(folder).intents is None
    drive = open_drive(f"{folder}#intent=/diagnostics")
    assert set(drive.intents) == {Intent.LEFT}


def test_one_of_several_topics_is_the_users_choice(tmp_path, truth, bag):
    make.add_odometry(bag, truth, "/odom")
    moved = replace(truth, positions=truth.positions + 5.0)
    make.add_odometry(bag, moved, "/lidar/odom")
    folder = bag.write(tmp_path / "bag")
    with pytest.raises(SlipstreamError, match="several topics") as caught:
        read_rosbag2(folder)
    assert "--topic pose=/lidar/odom" in caught.value.fix or "pose=/odom" in caught.value.fix
    same(open_drive(f"{folder}#pose=/lidar/odom"), moved)
    same(read_rosbag2(folder, topics={"pose": "/odom"}), truth)
    with pytest.raises(SlipstreamError, match="can't give the pose from /nowhere"):
        read_rosbag2(folder, topics={"pose": "/nowhere"})
    with pytest.raises(SlipstreamError, match="colour is not what a topic can be for"):
        read_rosbag2(folder, topics={"colour": "/odom"})


def test_a_type_that_is_not_known(tmp_path, truth, bag):
    make.add_words(bag, truth, ["x"] * len(truth.times), "/odom")
    folder = bag.write(tmp_path / "bag")
    with pytest.raises(SlipstreamError, match="no topic with poses") as caught:
        read_rosbag2(folder)
    assert "/odom (std_msgs/msg/String)" in caught.value.found
    with pytest.raises(SlipstreamError, match="can't give the pose") as caught:
        read_rosbag2(folder, topics={"pose": "/odom"})
    assert "type std_msgs/msg/String" in caught.value.found


def test_images_are_named_and_not_held(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    make.add_images(bag, truth, 50_000)
    folder = bag.write(tmp_path / "bag")
    (camera,) = read_rosbag2(folder).images
    assert camera.camera == "/camera"
    np.testing.assert_allclose(camera.times, truth.times, atol=1e-8)
    logged = make.stamps(truth)[3] + make.LATE_NS
    assert camera.paths[3] == f"{folder}#topic=/camera&time={logged}"


@pytest.mark.parametrize("folder", [True, False])
def test_a_topic_with_two_publishers_is_read_whole(tmp_path, truth, bag, folder):
    make.add_odometry(bag, truth)
    path = bag.write(tmp_path / "bag", publishers=2)
    same(read_rosbag2(path if folder else path / MCAP), truth)


def test_a_lever_arm_moves_the_poses_to_the_rear_axle(tmp_path, truth, bag):
    ahead = 1.5 * np.stack([np.cos(truth.headings), np.sin(truth.headings)], axis=1)
    make.add_odometry(bag, replace(truth, positions=truth.positions[:, :2] + ahead))
    same(read_rosbag2(bag.write(tmp_path / "bag"), lever_arm=1.5), truth)


def test_a_wrong_checksum_is_found(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    file = bag.write(tmp_path / "bag") / MCAP
    make.set_checksums(file)
    same(read_rosbag2(file), truth)
    make.set_checksums(file, wrong=0)
    with pytest.raises(SlipstreamError, match="checksum"):
        read_rosbag2(file)


# the last bytes of an SQLite page may be unused: then nothing is lost
@pytest.mark.parametrize(
    ("mcap", "keep"),
    [
        (True, 0.0),
        (True, 0.4),
        (True, 0.9),
        (True, 0.999),
        (False, 0.0),
        (False, 0.4),
        (False, 0.9),
    ],
)
def test_truncated_bags(tmp_path, truth, bag, mcap, keep):
    make.add_odometry(bag, truth)
    folder = bag.write(tmp_path / "bag", mcap=mcap)
    file = folder / (MCAP if mcap else "bag.db3")
    data = file.read_bytes()
    file.write_bytes(data[: int(keep * len(data))])
    with pytest.raises(SlipstreamError, match=r"can't be read|has lost messages"):
        read_rosbag2(folder)


def test_messages_that_the_index_counts_but_the_file_lacks(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    folder = bag.write(tmp_path / "bag")
    text = (folder / "metadata.yaml").read_text()
    (folder / "metadata.yaml").write_text(text.replace("201", "202"))
    with pytest.raises(SlipstreamError, match="lost messages of /odom"):
        read_rosbag2(folder)


def test_times_that_go_back_are_refused(tmp_path, truth, bag):
    make.add_odometry(bag, truth)
    again = replace(truth, times=truth.times + 1e-3)
    make.add_odometry(bag, again)
    for number, (_, topic, kind, raw) in enumerate(bag.rows):
        bag.rows[number] = (make.START_NS + number, topic, kind, raw)  # logged one after another
    with pytest.raises(SlipstreamError, match="bad time stamp"):
        read_rosbag2(bag.write(tmp_path / "bag"))


def test_orientations_that_were_never_set(tmp_path, truth, bag):
    make.add_poses(bag, truth)
    zero = bag.make("geometry_msgs/msg/Quaternion", x=0.0, y=0.0, z=0.0, w=0.0)
    kind = "geometry_msgs/msg/PoseStamped"
    message = bag.store.deserialize_cdr(bag.rows[5][3], kind)
    message.pose.orientation = zero
    bag.rows[5] = (*bag.rows[5][:3], bytes(bag.store.serialize_cdr(message, kind)))
    with pytest.raises(SlipstreamError, match="row 6 is not an orientation"):
        read_rosbag2(bag.write(tmp_path / "bag"))


@pytest.mark.parametrize("field", ["positions", "speeds"])
def test_numbers_of_no_vehicle(tmp_path, truth, bag, field):
    values = getattr(truth, field).copy()
    values[30] = 1e300
    make.add_odometry(bag, replace(truth, **{field: values}))
    with pytest.raises(SlipstreamError, match=f"row 31 is not a {field[:-1]}"):
        read_rosbag2(bag.write(tmp_path / "bag"))


def test_what_is_no_bag(tmp_path):
    assert not is_rosbag2(tmp_path)
    with pytest.raises(SlipstreamError, match="not a ROS 2 bag"):
        read_rosbag2(tmp_path)
    (tmp_path / "metadata.yaml").write_text("rosbag2_bagfile_information: 3\n")
    with pytest.raises(SlipstreamError, match="can't be read as a ROS 2 bag"):
        read_rosbag2(tmp_path)


def test_the_public_route(shared_drives):
    drive = open_drive(shared_drives / "ros2_mcap" / "comma_demo_rosbag2_mcap")
    assert len(drive.times) == 579
    assert drive.path_length == pytest.approx(1511.0, rel=5e-3)
    assert describe(drive).cameras == {"/camera/front/image/compressed": 300}
    assert describe(drive).commands == {"unknown": 459, "left": 60, "right": 60}
    assert describe(drive).warnings == ()


def written(path: Path, seconds: float, image: int) -> Path:
    bag = make.Bag()
    drive = synthetic_drive(5, duration=seconds)
    make.add_odometry(bag, drive)
    make.add_images(bag, drive, image)
    return bag.write(path)


_MEASURE = """
import resource, sys
from pathlib import Path
from drives.readers.rosbag2 import read_rosbag2
read_rosbag2(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
drive = read_rosbag2(Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, len(drive.images[0].paths))
"""


def test_memory_does_not_grow_with_the_bag(tmp_path):
    """A bag of 100 MB after one of 4 MB: the peak rises by a few chunks, not by the bag."""
    small = written(tmp_path / "small", 10.0, 40_000)
    large = written(tmp_path / "large", 40.0, 250_000)
    assert sum(file.stat().st_size for file in large.iterdir()) > 95_000_000
    run = [sys.executable, "-c", _MEASURE, str(small), str(large)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    grown, images = map(int, done.stdout.split())
    assert images == 401
    assert grown < 12_000  # KiB


@pytest.mark.slow
def test_memory_stays_the_same_for_a_bag_of_a_gigabyte(tmp_path):
    drive = synthetic_drive(5, duration=60.0)
    small = make.write_streamed(tmp_path / "small", drive, 0.06, image=100_000)
    large = make.write_streamed(tmp_path / "large", drive, 1.0)
    assert sum(file.stat().st_size for file in large.iterdir()) > 1_000_000_000
    run = [sys.executable, "-c", _MEASURE, str(small), str(large)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    grown, images = map(int, done.stdout.split())
    assert images == 2 * 601
    assert grown < 16_000  # KiB: some chunks of one image each


@pytest.mark.parametrize("name", [MCAP, "bag.db3", "metadata.yaml"])
def test_damage_is_refused(tmp_path, name):
    folder = damageable(tmp_path, name)
    refused = survives(lambda: read_rosbag2(folder), [folder / name], 7, SHORT // 3)
    assert refused > SHORT // 20


@pytest.mark.slow
@pytest.mark.parametrize("name", [MCAP, "bag.db3", "metadata.yaml"])
def test_much_damage_is_refused(tmp_path, name):
    folder = damageable(tmp_path, name)
    assert survives(lambda: read_rosbag2(folder), [folder / name], 8, LONG // 3) > LONG // 20


def damageable(tmp_path: Path, name: str) -> Path:
    bag = make.Bag()
    drive = synthetic_drive(6, duration=3.0)
    make.add_odometry(bag, drive)
    make.add_images(bag, drive, 40, every=5)
    return bag.write(tmp_path / "bag", mcap=name != "bag.db3")
