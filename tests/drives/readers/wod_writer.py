"""E2EDFrame records in TFRecord framing, written from a computed drive."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drives.drive import Drive
from drives.frames import to_ego
from drives.motion import interpolate
from drives.readers.crc32c import masked_crc32c

CLIP = "0123456789abcdef0123456789abcdef"
JPEG = b"\xff\xd8 not really an image \xff\xd9"
RATED = 3  # the frame, counted from 0, that has ratings


def framed(payload: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(payload))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + payload
        + struct.pack("<I", masked_crc32c(payload))
    )


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def part(number: int, content: bytes | int | float) -> bytes:
    """One field: bytes (also messages and packed numbers), an integer, or a float."""
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 5) + struct.pack("<f", content)


def states(**columns: Sequence[float] | np.ndarray | float) -> bytes:
    """EgoTrajectoryStates; y is not packed, as a proto2 writer may do."""
    numbers = {"x": 1, "y": 2, "z": 3, "vx": 4, "vy": 5, "ax": 6, "ay": 7, "score": 8}
    out = b""
    for name, values in columns.items():
        if isinstance(values, float):
            out += part(numbers[name], values)
        elif name == "y":
            out += b"".join(part(numbers[name], float(value)) for value in values)
        else:
            out += part(numbers[name], np.asarray(values, "<f4").tobytes())
    return out


def frame(
    name: str,
    past: bytes,
    future: bytes,
    intent: int,
    rated: Sequence[bytes] = (),
    camera: int = 1,
) -> bytes:
    """E2EDFrame, with a field that no reader needs."""
    image = part(1, camera) + part(2, JPEG)
    context = part(1, name.encode()) + part(2, part(4, 1920))
    inner = part(1, context) + part(2, 0) + part(4, image)
    out = part(1, inner) + part(5, future) + part(6, past) + part(7, intent)
    return out + b"".join(part(8, each) for each in rated)


def records(drive: Drive, indices: Sequence[int], *, clip: str = CLIP) -> list[bytes]:
    """A record for each frame number; frame number 0 is 4 s into the drive."""
    out = []
    for count, index in enumerate(indices):
        now = 4.0 + 0.1 * index
        at = now + np.arange(-15, 21) * 0.25
        state = interpolate(drive.times, drive.positions, drive.headings, drive.speeds, at)
        origin, heading = state.positions[15:16, :2], state.headings[15:16]
        points = to_ego(state.positions[None, :, :2], origin, heading)[0]
        turned = state.headings - heading
        velocity = state.speeds[:, None] * np.stack([np.cos(turned), np.sin(turned)], axis=1)
        velocity = np.concatenate([velocity[1:16], velocity[15:16]])  # each is the next state's
        past = states(
            x=points[:16, 0],
            y=points[:16, 1],
            vx=velocity[:, 0],
            vy=velocity[:, 1],
            ax=np.full(16, 0.5),
            ay=np.zeros(16),
        )
        ahead = points[16:]
        future = states(x=ahead[:, 0], y=ahead[:, 1], z=np.zeros(20))
        rated = [states(score=-1.0)]
        if count == RATED:
            rated = [
                states(x=ahead[:k, 0], y=ahead[:k, 1], score=score)
                for k, score in ((20, 9.0), (16, 4.0), (20, 7.0))
            ]
        intent = 1 + count % 3
        out.append(frame(f"{clip}-{index:03d}", past, future, intent, rated))
    return out


def write_wod_e2e(folder: Path, payloads: Sequence[bytes], shards: int = 2) -> Path:
    """Records scattered over shards that don't end in .tfrecord, in no order."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(shards):
        taken = payloads[shard::shards][::-1]
        name = f"val_202504211843.tfrecord-{shard:05d}-of-{shards:05d}"
        (folder / name).write_bytes(b"".join(framed(each) for each in taken))
    return folder
