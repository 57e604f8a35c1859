"""Tables of the plain format: columns out of CSV and Parquet files, and into them."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from drives.readers.extra import library
from drives.readers.text import read_text
from runtime.errors import SlipstreamError

IMAGE = "image."  # and a camera's name: a column of file names
_MOST_ROWS = 50_000_000  # 30 days at 20 Hz; a damaged footer may claim any number


def read_columns(path: Path, known: Collection[str]) -> dict[str, Any]:
    """Name -> cells of a .csv (text) or .parquet file (numbers [n]; image columns are text).

    Of a Parquet file only the `known` and the image columns are read, others stay empty.

    Raises:
        SlipstreamError: a damaged file, a row of another length, a column that is no numbers.
    """
    return _read_csv(path) if path.suffix == ".csv" else _read_parquet(path, known)


def write_columns(columns: Mapping[str, Any], suffix: str) -> bytes:
    """A table as the bytes of a .csv or .parquet file; NaN is an empty cell in CSV."""
    return _csv(columns).encode() if suffix == ".csv" else _parquet(columns)


def _read_csv(path: Path) -> dict[str, list[str]]:
    try:
        rows = list(csv.reader(io.StringIO(read_text(path)), strict=True))
    except csv.Error as error:
        raise _damaged(path, str(error)) from error
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    header = [cell.strip() for cell in rows[0]] if rows else []
    if len(set(header)) < len(header):
        raise _damaged(path, "a column that is there twice")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise SlipstreamError(
                f"{path} row {number} is not a row of this table",
                expected=f"{len(header)} cells",
                found=f"{len(row)} cells",
                fix="write the table again, or remove the row",
            )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(header)}


def _read_parquet(path: Path, known: Collection[str]) -> dict[str, Any]:
    parquet = library("pyarrow.parquet", "a Parquet table")
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as file:
            there = file.schema_arrow.names
            names = [name for name in there if name in known or name.startswith(IMAGE)]
            if file.metadata.num_rows > _MOST_ROWS:
                raise _damaged(path, f"{file.metadata.num_rows} rows")
            columns = _parquet_columns(path, file.read(columns=names, use_threads=False))
            return {**columns, **{name: [] for name in there if name not in names}}
    except SlipstreamError:
        raise
    except Exception as error:  # pyarrow raises its own, OSError, ValueError, KeyError ...
        raise _damaged(path, (str(error) or type(error).__name__).splitlines()[0][:200]) from error


def _parquet_columns(path: Path, table: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in table.column_names:
        if name.startswith(IMAGE):
            values = table.column(name).to_pylist()
            columns[name] = [value if isinstance(value, str) else "" for value in values]
        else:
            try:
                values = table.column(name).cast("float64").to_numpy()
            except Exception as error:
                raise _damaged(path, f"column {name} of type {table.column(name).type}") from error
            columns[name] = values
    return columns


def _csv(columns: Mapping[str, Any]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    lists = [
        ["" if value != value else value for value in np.asarray(column).tolist()]
        for column in columns.values()
    ]
    writer.writerows(zip(*lists, strict=True))
    return text.getvalue()


def _parquet(columns: Mapping[str, Any]) -> bytes:
    arrow = library("pyarrow", "a Parquet table")
    parquet = library("pyarrow.parquet", "a Parquet table")
    buffer = io.BytesIO()
    parquet.write_table(arrow.table(dict(columns)), buffer, write_page_checksum=True)
    return buffer.getvalue()


def _damaged(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} can't be read",
        expected="a CSV table with one header line, or a Parquet file",
        found=found,
        fix="write the table again",
    )
