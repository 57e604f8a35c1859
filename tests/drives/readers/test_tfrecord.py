"""TFRecord framing: every byte of a file counts."""

from __future__ import annotations

import struct

import pytest

from drives.readers.crc32c import masked_crc32c
from drives.readers.tfrecord import is_tfrecord, read_record, scan
from runtime.errors import SlipstreamError
from tests.drives.readers.wod_writer import framed

PAYLOADS = [b"first", b"", b"x" * 200]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "val.tfrecord-00000-of-00001"
    path.write_bytes(b"".join(map(framed, PAYLOADS)))
    return path


def _all(path):
    return [read_record(record) for record, _ in scan(path)]


def test_records_come_back_in_order(file):
    assert _all(file) == PAYLOADS
    assert [head for _, head in scan(file, 3)] == [b"fir", b"", b"xxx"]
    assert [record.number for record, _ in scan(file)] == [0, 1, 2]
    assert is_tfrecord(file)


def test_any_flipped_bit_is_noticed(file):
    whole = file.read_bytes()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1 << at % 8
        file.write_bytes(broken)
        with pytest.raises(SlipstreamError, match=r"CRC|record"):
            _all(file)


def test_any_truncation_but_between_records_is_noticed(file):
    whole = file.read_bytes()
    ends = [0, len(framed(PAYLOADS[0])), len(framed(PAYLOADS[0]) + framed(PAYLOADS[1]))]
    for size in range(len(whole)):
        file.write_bytes(whole[:size])
        if size in ends:
            assert _all(file) == PAYLOADS[: ends.index(size)]
            continue
        with pytest.raises(SlipstreamError, match="ends within record"):
            _all(file)


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, 5000])
def test_a_length_beyond_the_file_is_refused_before_it_is_read(tmp_path, length):
    header = struct.pack("<Q", length)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(header + struct.pack("<I", masked_crc32c(header)) + b"short")
    with pytest.raises(SlipstreamError, match=r"too long|ends within"):
        _all(path)


def test_no_file_and_other_files(tmp_path):
    with pytest.raises(SlipstreamError, match="can't be read"):
        _all(tmp_path / "none")
    assert not is_tfrecord(tmp_path / "none")
    (tmp_path / "text").write_text("not a record at all")
    assert not is_tfrecord(tmp_path / "text")
