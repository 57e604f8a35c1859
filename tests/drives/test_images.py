"""Pictures behind references: files, videos, bags."""

from __future__ import annotations

import numpy as np
import pytest

from drives.images import read_image
from drives.open import open_drive
from drives.readers.synthetic import synthetic_drive
from runtime.errors import SlipstreamError

pytest.importorskip("av")
pytest.importorskip("PIL")
pytest.importorskip("rosbags")

from tests.drives.readers import bag_writer as make

SHADES = (20, 60, 100, 140, 180, 220)


def picture(shade: int) -> np.ndarray:
    """Grey, with a bright corner that shows which way is up."""
    made = np.full((48, 64, 3), shade, np.uint8)
    made[:12, :16] = 250
    return made


def video(path):
    """Three key frames, two pictures each."""
    import av

    with av.open(str(path), "w", format="mpegts") as container:
        stream = container.add_stream("mpeg2video", rate=20)
        stream.width, stream.height, stream.gop_size = 64, 48, 2
        stream.pix_fmt, stream.bit_rate = "yuv420p", 2_000_000
        for shade in SHADES:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture(shade))))
        container.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("number", [0, 3, 5, 1])
def test_a_picture_of_a_video(tmp_path, number):
    found = read_image(f"{video(tmp_path / 'qcamera.ts')}#frame={number}")
    assert found.shape == (48, 64, 3)
    assert np.abs(found[24:, 32:].astype(int) - SHADES[number]).max() < 12
    assert found[4, 4].min() > 200


def test_a_picture_that_a_video_does_not_have(tmp_path):
    path = video(tmp_path / "qcamera.ts")
    with pytest.raises(SlipstreamError, match="can't be shown") as caught:
        read_image(f"{path}#frame=6")
    assert "6 pictures" in caught.value.found
    (tmp_path / "broken.ts").write_bytes(path.read_bytes()[:300])
    for name in ("broken.ts", "none.ts"):
        with pytest.raises(SlipstreamError, match="can't be shown"):
            read_image(f"{tmp_path / name}#frame=0")


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_a_file(tmp_path, name):
    from PIL import Image

    Image.fromarray(picture(90)).save(tmp_path / name)
    found = read_image(str(tmp_path / name)).astype(int)
    assert np.abs(found - picture(90))[24:, 32:].max() < 3
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:90])
    with pytest.raises(SlipstreamError, match="can't be shown"):
        read_image(str(tmp_path / name))


@pytest.mark.parametrize("encoding", ["rgb8", "bgr8", "rgba8", "mono8"])
def test_a_message_of_a_bag(tmp_path, encoding):
    drive = synthetic_drive(1, duration=2.0)
    bag = make.Bag()
    make.add_odometry(bag, drive)
    pixels = picture(90)
    pixels[..., 0] = 200  # red
    channels = {"rgb8": [0, 1, 2], "bgr8": [2, 1, 0], "rgba8": [0, 1, 2, 2], "mono8": [1]}
    rows = pixels[:, :, channels[encoding]].reshape(48, -1)
    padded = np.pad(rows, ((0, 0), (0, 8)))  # rows may be longer than their pixels
    kind = "sensor_msgs/msg/Image"
    for stamp in make.stamps(drive).tolist()[:3]:
        message = bag.make(
            kind,
            header=bag.header(stamp),
            height=48,
            width=64,
            encoding=encoding,
            is_bigendian=0,
            step=padded.shape[1],
            data=padded.reshape(-1),
        )
        bag.add("/camera", kind, stamp, message)
    folder = bag.write(tmp_path / "bag")
    (camera,) = open_drive(folder).images
    wanted = pixels if encoding != "mono8" else pixels[:, :, [1, 1, 1]]
    np.testing.assert_array_equal(read_image(camera.paths[2]), wanted)
    with pytest.raises(SlipstreamError, match="not in the bag"):
        read_image(f"{folder}#topic=/camera&time=5")


def test_the_video_and_the_bag_of_one_route_show_the_same(shared_drives):
    video = open_drive(shared_drives / "comma_route").images[0]
    bag = open_drive(shared_drives / "ros2_mcap" / "comma_demo_rosbag2_mcap").images[0]
    for number in (0, 600, 1196):
        here = read_image(video.paths[number]).astype(int)
        offset = bag.times - video.times[number]
        there = read_image(bag.paths[int(np.argmin(np.abs(offset)))])
        assert here.shape == (330, 526, 3)
        assert np.abs(here - there).mean() < 3.0  # one JPEG step apart, or one frame
