"""Tables of numbers in text and .npy files, read with errors that name file and row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drives.readers.text import read_text
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

_LARGEST = 1 << 30  # bytes of an array


def read_table(
    path: Path, columns: int, *, delimiter: str | None = None, header: bool = False
) -> Floats:
    """Numbers of a text file, one row a line.

    Args:
        columns: how many numbers a row must have.
        delimiter: None for white space.
        header: skip the first line.

    Returns:
        [n, columns]; "nan" and "inf" are numbers.

    Raises:
        SlipstreamError: the file can't be read, or a row has another number of columns or a word
            that is not a number.
    """
    lines = read_text(path).splitlines()
    first = 1 if header else 0
    while lines and not lines[-1].strip():
        lines.pop()
    rows = np.empty((max(len(lines) - first, 0), columns))
    for number, line in enumerate(lines[first:]):
        fields = line.split(delimiter)
        try:
            rows[number] = [float(field) for field in fields]
        except ValueError:
            raise SlipstreamError(
                f"{path} row {number + first + 1} is not a row of this format",
                expected=f"{columns} numbers",
                found=f"{len(fields)} fields: {line[:60]!r}",
                fix="fetch the file again, or remove the row",
            ) from None
    return rows


def read_array(path: Path, width: int | None = None) -> Floats:
    """A float array stored in the .npy format, under any name; pickled objects are refused.

    Args:
        width: number of columns for a two-dimensional array, None for a series.

    Returns:
        [n, width] or [n].

    Raises:
        SlipstreamError: missing file, another format, or another shape.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ValueError(f"{size} bytes, over {_LARGEST}")
        with path.open("rb") as file:
            loaded = np.lib.format.read_array(file, allow_pickle=False)
        if loaded.dtype.kind not in "fiub":
            raise ValueError(f"{loaded.dtype} for numbers")
        with np.errstate(over="ignore", invalid="ignore"):  # wider floats may become infinite
            array: Floats = np.asarray(loaded, dtype=np.float64)
    except Exception as error:  # of a header too: SyntaxError, TokenError, what eval has
        raise SlipstreamError(
            f"{path} can't be read",
            expected="a numeric array in the .npy format, without pickled objects",
            found=(str(error).splitlines() or [type(error).__name__])[0],
            fix="fetch the segment again",
        ) from error
    if width is None and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    wanted = 1 if width is None else 2
    if array.ndim != wanted or (width is not None and array.shape[1] != width):
        raise SlipstreamError(
            f"{path} has another shape than its format",
            expected="[n]" if width is None else f"[n, {width}]",
            found=str(list(array.shape)),
            fix="fetch the segment again",
        )
    return array
