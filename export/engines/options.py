"""What a build may be told, in trtexec's words, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from runtime.bundle import Bundle, Limits
from runtime.engines.profiles import Profile
from runtime.engines.store import Precision
from runtime.errors import SlipstreamError

# trtexec's --memPoolSize names -> MemoryPoolType
POOLS = {
    "workspace": "WORKSPACE",
    "tacticDRAM": "TACTIC_DRAM",
    "tacticSharedMem": "TACTIC_SHARED_MEMORY",
}
_MOST_BYTES, _MOST_ROWS = (1 << 63) - 1, (1 << 31) - 1  # what TensorRT takes
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

    def typed(self) -> list[str]:
        """The options that change the engine, as `slipstream compile` takes them."""
        words = [f"--memory-pool={name}:{size}B" for name, size in self.pools.items()]
        if self.level is not None:
            words.append(f"--optimization-level={self.level}")
        if self.timing_cache is not None:
            words.append(f"--timing-cache={self.timing_cache.absolute()}")
        return [*words, *["--tf32"] * self.tf32]


def parse_pools(texts: Sequence[str]) -> dict[str, int]:
    """`workspace:512M` (several with commas; without a unit MiB, as trtexec) to bytes by name.

    Raises:
        SlipstreamError: another form or name, a name twice, or no size that TensorRT takes.
    """
    pools: dict[str, int] = {}
    for text in (part for joined in texts for part in joined.split(",") if part):
        match = re.fullmatch(r"(\w+):([0-9]+(?:\.[0-9]+)?)([BKMG]?)", text)
        if not match or match.group(1) not in POOLS:
            raise SlipstreamError(
                f"--memory-pool {_short(text)} is not understood",
                expected=f"NAME:SIZE with a name of {', '.join(POOLS)}, such as workspace:512M",
                found=_short(text),
                fix="slipstream compile --help",
            )
        size = float(match.group(2)) * _UNITS[match.group(3)]
        if not 1 <= size < _MOST_BYTES:
            raise SlipstreamError(
                f"--memory-pool {_short(text)} is out of range",
                expected="at least 1 byte and less than 8 EiB",
                found=_short(text),
                fix="give a size such as workspace:512M, or leave the option out",
            )
        if match.group(1) in pools:
            raise SlipstreamError(
                f"--memory-pool names {match.group(1)} twice",
                expected="one size for each pool",
                found=", ".join(map(_short, texts)),
                fix=f"give {match.group(1)} once",
            )
        pools[match.group(1)] = int(size)
    return pools


def check_graphs(bundle: Bundle, graphs: Sequence[str]) -> None:
    """Every graph named by --graph is one of the bundle's, and named once.

    Raises:
        SlipstreamError: one is not.
    """
    known = bundle.manifest.graphs
    for i, graph in enumerate(graphs):
        if graph in known and graph not in graphs[:i]:
            continue
        what = f"--graph names {graph} twice" if graph in known else f"has no graph {graph}"
        raise SlipstreamError(
            what if graph in known else f"{bundle.folder} {what}",
            expected=f"each once at most of {', '.join(known)}",
            found=", ".join(graphs),
            fix="leave --graph out for all of them",
        )


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


def check_profiles(known: Sequence[Profile], texts: Sequence[str], limits: Limits) -> None:
    """Every profile and dimension named by --profile exists in some graph, is named once, and keeps
    within the bundle's limits.

    Raises:
        SlipstreamError: one does not.
    """
    dims: dict[str, set[str]] = {}
    for profile in known:
        dims.setdefault(profile.name, set()).update(profile.dims)
    named: set[tuple[str, str]] = set()
    for text in texts:
        name, ranges = _parse_profile(text)
        if name not in dims or not ranges.keys() <= dims[name]:
            expected = "; ".join(f"{n}: {', '.join(sorted(d))}" for n, d in dims.items())
            raise _bad_profile(text, f"profiles and dimensions: {expected}")
        for dim, (_, _, high) in ranges.items():
            if (name, dim) in named:
                raise _bad_profile(", ".join(texts), f"one range for {name}:{dim}")
            named.add((name, dim))
            if high > (most := _most(dim, limits)):
                raise _bad_profile(text, f"{dim} up to {most}, by the bundle's limits")


def _most(dim: str, limits: Limits) -> int:
    """The largest size of a dimension that a bundle of these limits can have a use for."""
    rows = max(limits.max_position, limits.rollouts * limits.branch)  # the head sees all at once
    known = {"N": limits.rollouts, "P": limits.trunk, "T": limits.branch}
    return min(known.get(dim, rows), _MOST_ROWS)


def _parse_profile(text: str) -> tuple[str, dict[str, tuple[int, int, int]]]:
    name, _, rest = text.partition(":")
    ranges: dict[str, tuple[int, int, int]] = {}
    for part in rest.split(","):
        match = re.fullmatch(r"([A-Z])=([0-9]+)(?::([0-9]+):([0-9]+))?", part.strip())
        if not match:
            raise _bad_profile(text, "NAME:DIM=MIN:OPT:MAX,..., such as decode:N=1:8:16,S=1:16:32")
        dim, *sizes = match.groups()
        if dim in ranges:
            raise _bad_profile(text, f"one range for {dim}")
        if any(len(size) > len(str(_MOST_ROWS)) for size in sizes if size):
            raise _bad_profile(text, f"sizes up to {_MOST_ROWS}")
        low = int(sizes[0])
        ranges[dim] = (low, int(sizes[1] or low), int(sizes[2] or low))
    return name, ranges


def _bad_profile(text: str, expected: str) -> SlipstreamError:
    return SlipstreamError(
        f"--profile {_short(text)} does not fit",
        expected=expected,
        found=_short(text),
        fix="slipstream compile BUNDLE --target TARGET --dry-run shows the profiles",
    )


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:197]}..."
