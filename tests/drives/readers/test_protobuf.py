"""The protobuf decoder, on messages encoded by hand and by hypothesis."""

from __future__ import annotations

import struct
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.readers.protobuf import Field, WireError, decode, encode
from tests.drives.readers.wod_writer import part, varint

INNER = {1: Field("name", "text"), 2: Field("values", "float", repeated=True)}
SCHEMA = {
    1: Field("count", "int"),
    2: Field("inner", INNER),
    3: Field("many", INNER, repeated=True),
    4: Field("matrix", "double", repeated=True),
    5: Field("blob", "span"),
    6: Field("ids", "int", repeated=True),
    7: Field("score", "float"),
}
ANY_INT = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.lists(st.floats(width=32, allow_nan=False), max_size=9)


def test_an_example_by_hand():
    # protobuf.dev: field 1 = 150 is 08 96 01; field 2 = "testing" is 12 07 ...
    assert decode(b"\x08\x96\x01", SCHEMA)["count"] == 150
    assert decode(b"\x12\x09\x0a\x07testing", SCHEMA)["inner"]["name"] == "testing"
    # A negative int32 takes ten bytes.
    assert decode(b"\x08" + b"\xff" * 9 + b"\x01", SCHEMA)["count"] == -1


def test_the_same_example_is_written():
    assert encode({"count": 150}, SCHEMA) == b"\x08\x96\x01"
    assert encode({"inner": {"name": "testing"}}, SCHEMA) == b"\x12\x09\x0a\x07testing"
    assert encode({"count": -1}, SCHEMA) == b"\x08" + b"\xff" * 9 + b"\x01"
    assert encode({"count": None, "ids": [], "many": [], "blob": None}, SCHEMA) == b""
    assert encode({"ids": [1, 300]}, SCHEMA) == b"\x32\x03\x01\xac\x02"  # packed


def test_what_is_absent_and_what_is_zero_differ_where_asked():
    schema = {1: Field("count", "int", optional=True), 2: Field("name", "text", optional=True)}
    assert decode(b"", schema) == {"count": None, "name": None}
    assert decode(encode({"count": 0, "name": ""}, schema), schema) == {"count": 0, "name": ""}


@given(ANY_INT, FLOATS, st.lists(ANY_INT, max_size=5), st.binary(max_size=40), st.text(max_size=9))
def test_what_is_written_comes_back(number, floats, ids, blob, text):
    inner = {"name": text, "values": np.array(floats)}
    message = {"count": number, "inner": inner, "many": [inner, inner], "ids": ids, "blob": blob}
    data = encode({**message, "matrix": floats, "score": 0.5}, SCHEMA)
    read = decode(data, SCHEMA)
    assert (read["count"], read["ids"], read["score"]) == (number, ids, 0.5)
    assert data[slice(*read["blob"])] == blob
    assert read["matrix"].tolist() == floats
    for each in (read["inner"], *read["many"]):
        assert each["name"] == text
        assert each["values"].tolist() == floats


def test_an_empty_message_has_the_defaults():
    message = decode(b"", SCHEMA)
    assert message["count"] == 0
    assert message["score"] == 0.0
    assert message["inner"] is message["blob"] is None
    assert message["many"] == message["ids"] == []
    assert message["matrix"].shape == (0,)


@given(ANY_INT, FLOATS, st.lists(ANY_INT, max_size=5), st.binary(max_size=40), st.text(max_size=9))
def test_values_come_back_packed_or_not(number, floats, ids, blob, text):
    unsigned = [each % 2**64 for each in ids]
    packed = np.asarray(floats, "<f4").tobytes()
    loose = b"".join(part(2, float(each)) for each in floats)
    doubles = np.asarray(floats, "<f8").tobytes()
    data = part(3, part(2, packed)) + part(3, loose + part(1, text.encode()))
    data += part(4, doubles) + part(6, b"".join(map(varint, unsigned)))
    data += b"".join(part(6, each) for each in unsigned) + part(5, b"old") + part(5, blob)
    data += part(99, b"unknown") + part(1, number % 2**64)
    message = decode(data, SCHEMA)
    assert message["count"] == number
    assert message["ids"] == ids + ids
    for each in message["many"]:
        np.testing.assert_array_equal(each["values"], floats)
    np.testing.assert_array_equal(message["matrix"], floats)
    assert message["many"][1]["name"] == text
    start, end = message["blob"]
    assert data[start:end] == blob


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x08", "ends within a number"),
        (b"\x08" + b"\xff" * 11, "more than 64 bits"),
        (b"\x12\x7f\x0a", "longer than its message"),
        (b"\x12\x02\x0a\x05", "longer than its message"),
        (b"\x0b", "wire type 3"),
        (b"\x00\x00", "field number 0"),
        (b"\x0a\x00", "count has wire type 2"),
        (b"\x38\x00", "score has wire type 0"),
        (part(2, part(1, b"\xff")), "not UTF-8"),
        (part(3, part(2, b"abc")), "values is cut"),
        (part(6, 1) * 100_001, "over 100000 times"),
    ],
)
def test_malformed_messages_are_refused(data, message):
    with pytest.raises(WireError, match=message):
        decode(data, SCHEMA)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data):
    with suppress(WireError):
        decode(data, SCHEMA)


def test_a_signalling_nan_is_a_nan():
    data = part(2, part(2, b"\x01\x00\xa0\x7f" * 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(decode(data, SCHEMA)["inner"]["values"]).all()


def test_a_double_keeps_its_bits():
    (value,) = decode(part(4, struct.pack("<d", 0.1)), SCHEMA)["matrix"]
    assert value == 0.1
