"""Columns of a Feather (Arrow IPC) table, with their types and lengths checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.readers.extra import library
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LARGEST = 1 << 30  # bytes of a file; a log's tables have some 1 MB
_MOST = 20_000_000  # rows


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, all of one length."""

    columns: Mapping[str, Any]

    def floats(self, *names: str) -> Floats:
        """[n, len(names)]; a missing value is NaN."""
        return np.stack([self.columns[name] for name in names], axis=1)

    def ints(self, name: str) -> Ints:
        """[n]."""
        return np.asarray(self.columns[name], np.int64)

    def texts(self, name: str) -> list[str]:
        """[n]."""
        return list(self.columns[name])


def read_feather(path: Path, columns: Mapping[str, str], fix: str) -> Table:
    """Read some columns.

    Args:
        columns: name -> "int", "float" or "text".
        fix: what mends the file.

    Raises:
        SlipstreamError: pyarrow is not installed; the file is missing, not a whole Feather table,
            or lacks a column; or a column has another type, or missing values where there may be
            none (int, text).
    """
    pa: Any = library("pyarrow", "a Feather table")
    feather: Any = library("pyarrow.feather", "a Feather table")
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise _bad(path, f"at most {_LARGEST} bytes", f"{size} bytes", fix)
        # Not mapped: a file that shrinks meanwhile would end the process.
        table = feather.read_table(pa.BufferReader(path.read_bytes()), memory_map=False)
        missing = [name for name in columns if table.column_names.count(name) != 1]
        if missing:
            raise _bad(
                path, f"the columns {', '.join(columns)}", f"no {', no '.join(missing)}", fix
            )
        table = table.select(list(columns))
        if table.num_rows > _MOST:
            raise _bad(path, f"at most {_MOST} rows", f"{table.num_rows} rows", fix)
        table.validate(full=True)
        read = {name: _column(pa, path, table, name, kind, fix) for name, kind in columns.items()}
    except OSError as error:
        raise _bad(path, "a Feather table", error.strerror or _line(error), fix) from error
    # What pyarrow raises on damaged bytes is not limited to its own exceptions.
    except (pa.ArrowException, ValueError, TypeError, KeyError, IndexError, MemoryError) as error:
        raise _bad(path, "a whole Feather table", _line(error), fix) from error
    return Table(read)


def _column(pa: Any, path: Path, table: Any, name: str, kind: str, fix: str) -> Any:
    column = table[name]
    fits = {
        "int": pa.types.is_integer,
        "float": lambda type_: pa.types.is_floating(type_) or pa.types.is_integer(type_),
        "text": lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_),
    }[kind]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not fits(column.type):
        raise _bad(path, f"column {name} of {kind}", f"{name} of {column.type}", fix)
    if kind != "float" and column.null_count:
        raise _bad(path, f"column {name} without gaps", f"{column.null_count} missing", fix)
    if kind == "text":
        return column.to_pylist()
    target = pa.int64() if kind == "int" else pa.float64()
    numbers = column.cast(target, safe=kind == "int").to_numpy()
    return numbers.astype(np.int64 if kind == "int" else np.float64)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _bad(path: Path, expected: str, found: str, fix: str) -> SlipstreamError:
    return SlipstreamError(f"{path} can't be read", expected=expected, found=found, fix=fix)
