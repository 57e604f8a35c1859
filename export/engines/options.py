"""What a build may be told, in trtexec's words, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from runtime.engines.profiles import Profile
from runtime.engines.store import Precision
from runtime.errors import SlipstreamError

# trtexec's --memPoolSize names -> MemoryPoolType
POOLS = {
    "workspace": "WORKSPACE",
    "tacticDRAM": "TACTIC_DRAM",
    "tacticSharedMem": "TACTIC_SHARED_MEMORY",
}
_UNITS = {"": 1 << 20, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # as trtexec: MiB


@dataclass(frozen=True)
class BuildOptions:
    """One build's options.

    Attributes:
        level: TensorRT's builder optimization level, 0 to 5; None leaves its default.
        pools: bytes by the names of POOLS.
        tf32: lets fp32 products round their inputs to TF32; off, so that fp32 means fp32.
        timing_cache: file to read and write; full TensorRT only.
        strict_timing: a kernel that the timing cache does not know is an error.
        ignore_memory: build although the estimate does not fit.
    """

    precision: Precision
    level: int | None = None
    pools: dict[str, int] = field(default_factory=dict)
    tf32: bool = False
    timing_cache: Path | None = None
    strict_timing: bool = False
    ignore_memory: bool = False

    def flags(self) -> tuple[str, ...]:
        """The options that change the engine, sorted, for its key."""
        named = [f"{name}={size}" for name, size in self.pools.items()]
        if self.level is not None:
            named.append(f"optimization-level={self.level}")
        if self.tf32:
            named.append("tf32")
        return tuple(sorted(named))


def parse_pools(texts: Sequence[str]) -> dict[str, int]:
    """`workspace:512M` (several with commas; without a unit MiB, as trtexec) to bytes by name.

    Raises:
        SlipstreamError: another form or name.
    """
    pools = {}
    for text in (part for joined in texts for part in joined.split(",") if part):
        match = re.fullmatch(r"(\w+):(\d+(?:\.\d+)?)([BKMG]?)", text)
        if not match or match.group(1) not in POOLS:
            raise SlipstreamError(
                f"--memory-pool {text} is not understood",
                expected=f"NAME:SIZE with a name of {', '.join(POOLS)}, such as workspace:512M",
                found=text,
                fix="slipstream compile --help",
            )
        pools[match.group(1)] = int(float(match.group(2)) * _UNITS[match.group(3)])
    return pools


def change_profiles(profiles: Sequence[Profile], texts: Sequence[str]) -> list[Profile]:
    """Profiles with the ranges that `--profile decode:N=1:8:16,S=1:16:32` gives instead.

    A profile or dimension that a graph does not have is left out: not every graph has all of them.

    Raises:
        SlipstreamError: another form, or min <= opt <= max does not hold.
    """
    changed = {profile.name: dict(profile.dims) for profile in profiles}
    for text in texts:
        name, ranges = _parse_profile(text)
        for dim, sizes in ranges.items():
            if dim in changed.get(name, {}):
                changed[name][dim] = sizes
    try:
        return [Profile(name=name, dims=dims) for name, dims in changed.items()]
    except ValidationError as error:
        first = error.errors()[0]
        raise _bad_profile(", ".join(texts), first["msg"]) from error


def check_profiles(known: Sequence[Profile], texts: Sequence[str]) -> None:
    """Every profile and dimension named by --profile exists in some graph.

    Raises:
        SlipstreamError: one does not.
    """
    dims: dict[str, set[str]] = {}
    for profile in known:
        dims.setdefault(profile.name, set()).update(profile.dims)
    for text in texts:
        name, ranges = _parse_profile(text)
        if name not in dims or not ranges.keys() <= dims[name]:
            expected = "; ".join(f"{n}: {', '.join(sorted(d))}" for n, d in dims.items())
            raise _bad_profile(text, f"profiles and dimensions: {expected}")


def _parse_profile(text: str) -> tuple[str, dict[str, tuple[int, int, int]]]:
    name, _, rest = text.partition(":")
    ranges = {}
    for part in rest.split(","):
        match = re.fullmatch(r"([A-Z])=(\d+)(?::(\d+):(\d+))?", part.strip())
        if not match:
            raise _bad_profile(text, "NAME:DIM=MIN:OPT:MAX,..., such as decode:N=1:8:16,S=1:16:32")
        low = int(match.group(2))
        ranges[match.group(1)] = (low, int(match.group(3) or low), int(match.group(4) or low))
    return name, ranges


def _bad_profile(text: str, expected: str) -> SlipstreamError:
    return SlipstreamError(
        f"--profile {text} does not fit",
        expected=expected,
        found=text,
        fix="slipstream compile BUNDLE --target TARGET --dry-run shows the profiles",
    )
