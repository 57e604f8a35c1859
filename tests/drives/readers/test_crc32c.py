"""CRC-32C against published vectors and the plain bitwise definition."""

from __future__ import annotations

import numpy as np
import pytest

from drives.readers.crc32c import crc32c, masked_crc32c


def _bitwise(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # RFC 3720, B.4, this and the next three
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_vectors(data, crc):
    assert crc32c(data) == crc


@pytest.mark.parametrize(
    "size", [1, 3, 4, 63, 64, 65, 255, 256, 257, 511, 512, 513, 1000, 4097, 70001]
)
def test_every_length_equals_the_definition(size):
    data = np.random.default_rng(size).bytes(size)
    assert crc32c(data) == _bitwise(data)
    assert crc32c(memoryview(data)) == crc32c(bytearray(data)) == _bitwise(data)


def test_the_mask_is_that_of_tfrecord():
    # Rotated right by 15, plus 0xa282ead8, of the checksum of an 8 byte length.
    crc = _bitwise(b"\x10" + bytes(7))
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    assert masked_crc32c(b"\x10" + bytes(7)) == (rotated + 0xA282EAD8) % 2**32
