"""Protocol Buffers messages by field number, for the few messages that recorded drives need.

Encoding: protobuf.dev/programming-guides/encoding. Fields that a schema does not name are skipped;
of a field that is not repeated the last value counts (embedded messages are not merged).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

Scalar = Literal["int", "float", "double", "text", "span"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIRE = {"int": _VARINT, "float": _FIXED32, "double": _FIXED64, "text": _BYTES, "span": _BYTES}
_TYPES: dict[str, np.dtype[Any]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MOST = 100_000  # occurrences of a field in a message; more would fill the memory
_DEFAULTS: dict[str, Any] = {"int": 0, "float": 0.0, "double": 0.0, "text": "", "span": None}


class WireError(ValueError):
    """The bytes are not a message of the schema."""


@dataclass(frozen=True)
class Field:
    """One field of a message.

    Attributes:
        name: key of the decoded value.
        kind: a scalar kind or the schema of an embedded message. `int` is int32, int64 or enum;
            `span` stands for bytes that are not copied: (start, end) in the decoded buffer.
        repeated: a list of values; an array for float and double, packed or not.
        optional: None where it is absent, instead of proto2's default.
    """

    name: str
    kind: Scalar | Schema
    repeated: bool = False
    optional: bool = False


Schema: TypeAlias = Mapping[int, Field]
Message: TypeAlias = dict[str, Any]


def decode(data: bytes, schema: Schema, start: int = 0, end: int | None = None) -> Message:
    """A message as a dictionary: every name of the schema, with proto2's defaults where absent.

    An embedded message that is absent is None.

    Args:
        data: a buffer that holds the message from `start` to `end`.

    Raises:
        WireError: truncated or malformed bytes, or a known field of another wire type.
    """
    stop = len(data) if end is None else end
    found: dict[int, list[Any]] = {number: [] for number in schema}
    for number, wire, value in _fields(data, start, stop):
        if number in schema:
            found[number].extend(_values(data, schema[number], wire, value))
            if len(found[number]) > _MOST:
                raise WireError(f"{schema[number].name} is repeated over {_MOST} times")
    return {field.name: _collected(field, found[number]) for number, field in schema.items()}


def encode(message: Message, schema: Schema) -> bytes:
    """A message's bytes: fields by rising number, repeated numbers packed, None left away.

    Args:
        message: name -> value, as `decode` gives it; a `span` is bytes.
    """
    out = bytearray()
    for number, field in sorted(schema.items()):
        value = message.get(field.name)
        if value is None or (field.repeated and not len(value)):
            continue
        kind = field.kind
        wire = _WIRE[kind] if isinstance(kind, str) else _BYTES
        if field.repeated and wire != _BYTES:
            packed = b"".join(_scalar(each, kind) for each in value)
            out += _tag(number, _BYTES) + _counted(packed)
            continue
        for each in value if field.repeated else (value,):
            out += _tag(number, wire) + _scalar(each, kind)
    return bytes(out)


def _tag(number: int, wire: int) -> bytes:
    return _written(number << 3 | wire)


def _scalar(value: Any, kind: Scalar | Schema) -> bytes:
    if not isinstance(kind, str):
        return _counted(encode(value, kind))
    if kind in _TYPES:
        return np.asarray(value, _TYPES[kind]).tobytes()
    if kind == "int":
        return _written(int(value) & 0xFFFFFFFFFFFFFFFF)
    return _counted(value.encode() if kind == "text" else bytes(value))


def _counted(content: bytes) -> bytes:
    return _written(len(content)) + content


def _written(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, Any]]:
    """(field number, wire type, integer or (start, end) of the value's bytes)."""
    while position < end:
        tag, position = _varint(data, position, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        if wire == _VARINT:
            value, position = _varint(data, position, end)
            yield number, wire, value
            continue
        if wire == _BYTES:
            length, position = _varint(data, position, end)
        elif wire in _SIZES:
            length = _SIZES[wire]
        else:
            raise WireError(f"field {number} has wire type {wire}")
        if length > end - position:
            raise WireError(f"field {number} is longer than its message")
        yield number, wire, (position, position + length)
        position += length


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise WireError("the message ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise WireError("a number of more than 64 bits")


def _values(data: bytes, field: Field, wire: int, value: Any) -> list[Any]:
    """One occurrence of a field: its value, or the values packed into it."""
    kind = field.kind
    wanted = _WIRE[kind] if isinstance(kind, str) else _BYTES
    packed = wire == _BYTES and field.repeated and wanted != _BYTES
    if wire != wanted and not packed:
        raise WireError(f"{field.name} has wire type {wire}, not {wanted}")
    if not isinstance(kind, str):
        return [decode(data, kind, *value)]
    if kind in _TYPES:
        start, end = value
        if (end - start) % _TYPES[kind].itemsize:
            raise WireError(f"{field.name} is cut")
        with np.errstate(invalid="ignore"):  # a signalling NaN
            return [np.frombuffer(data[start:end], _TYPES[kind]).astype(np.float64)]
    if kind == "int":
        return [_signed(each) for each in (_packed(data, *value) if packed else [value])]
    if kind == "text":
        try:
            return [data[slice(*value)].decode()]
        except UnicodeDecodeError:
            raise WireError(f"{field.name} is not UTF-8") from None
    return [value]


def _packed(data: bytes, position: int, end: int) -> Iterator[int]:
    while position < end:
        value, position = _varint(data, position, end)
        yield value


def _signed(value: int) -> int:
    return int(struct.unpack("<q", struct.pack("<Q", value))[0])


def _collected(field: Field, values: list[Any]) -> Any:
    if field.repeated and isinstance(field.kind, str) and field.kind in _TYPES:
        return np.concatenate(values) if values else np.empty(0)
    if field.repeated:
        return values
    if not values:
        return _DEFAULTS[field.kind] if isinstance(field.kind, str) and not field.optional else None
    last = values[-1]
    return float(last[-1]) if isinstance(last, np.ndarray) else last
