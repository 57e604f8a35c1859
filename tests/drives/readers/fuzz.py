"""Damage files in many ways; nothing but a SlipstreamError may come out of a reader."""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from drives.drive import Drive
from drives.info import describe
from drives.windows import windows
from runtime.errors import SlipstreamError

SHORT, LONG = 200, 10_000  # inputs
_WORDS = [
    b"NaN",
    b"-1",
    b"1e999",
    b"null",
    b"[]",
    b'""',
    b"\x00",
    b"\xff\xff\xff\xff\xff",
    b"9" * 40,
]
_SLOWEST = 10.0  # s of the processor for one input
_MOST_MEMORY = 1 << 19  # KiB that all inputs together may add


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one to four changes: flipped, cut, doubled, replaced or spliced."""
    out = bytearray(data)
    for _ in range(random.randint(1, 4)):
        if not out:
            break
        at = random.randrange(len(out))
        size = random.choice((1, 2, 4, 8, 64))
        kind = random.randrange(7)
        if kind == 0:
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            out[at : at + size] = random.randbytes(len(out[at : at + size]))
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + size]
        elif kind == 4:
            out[at:at] = out[at : at + size * 16]
        elif kind == 5:
            word = random.choice(_WORDS)
            out[at : at + len(word)] = word
        else:
            other = random.randrange(len(out))
            out[at : at + size] = out[other : other + size]
    return bytes(out)


def survives(
    read: Callable[[], Drive],
    files: Sequence[Path],
    seed: int,
    inputs: int,
    damage: Callable[[bytes, Random], bytes] = damaged,
) -> int:
    """Read again and again with one of the files damaged.

    Returns:
        how many inputs were refused with an error that says what mends it.
    """
    random = Random(seed)
    whole = {file: file.read_bytes() for file in files}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for number in range(inputs):
        file = random.choice(list(files))
        file.write_bytes(damage(whole[file], random))
        start = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                drive = read()
                describe(drive)
                windows(drive, without_future=True)
        except SlipstreamError as error:
            refused += bool(error.fix)
        except Exception as error:
            raise AssertionError(f"input {number} of seed {seed}: {error!r}") from error
        assert time.process_time() - start < _SLOWEST, f"input {number} of seed {seed}"
        file.write_bytes(whole[file])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < _MOST_MEMORY
    return refused
