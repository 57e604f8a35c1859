"""Optimization profiles: the range of every dynamic dimension, for prefill and for decoding.

A profile names the graph contract's dimensions (N, S, P, T, B, C), not tensors: the shapes of all
tensors follow, `T+S` included, and so they can't contradict one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, model_validator

from runtime.bundle import GraphName, Manifest
from runtime.cache import BUCKET
from runtime.fits import ALONE, MAX_NODES

Dim = int | str
Range = tuple[int, int, int]  # min, opt, max


class Profile(BaseModel):
    """One optimization profile: min, opt and max of each dynamic dimension."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    dims: dict[str, Range]

    @model_validator(mode="after")
    def _ordered(self) -> Profile:
        for dim, (low, best, high) in self.dims.items():
            if not 0 < low <= best <= high:
                raise ValueError(f"{dim}={low}:{best}:{high} is not 0 < min <= opt <= max")
        return self

    @property
    def text(self) -> str:
        """`decode:N=1:8:16,S=1:16:64`, dimensions sorted."""
        ranges = (f"{dim}=" + ":".join(map(str, self.dims[dim])) for dim in sorted(self.dims))
        return f"{self.name}:" + ",".join(ranges)

    def shapes(
        self, shape: Sequence[Dim]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """min, opt and max of a tensor's shape; a sum such as `T+S` is the sum of its parts.

        Raises:
            KeyError: a dimension that the profile does not name.
        """
        low, best, high = (tuple(self._size(dim, i) for dim in shape) for i in range(3))
        return low, best, high

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes of dimensions lie within the profile; others than its own don't count."""
        return all(
            low <= sizes[dim] <= high for dim, (low, _, high) in self.dims.items() if dim in sizes
        )

    def _size(self, dim: Dim, which: int) -> int:
        if isinstance(dim, int):
            return dim
        return sum(self.dims[part][which] for part in dim.split("+"))


def text_of(profiles: Sequence[Profile]) -> str:
    """Profiles as one canonical text, for an engine's key."""
    return ";".join(profile.text for profile in profiles)


def default_profiles(manifest: Manifest, graph: GraphName) -> list[Profile]:
    """Profiles that the decoder's passes fit, from the bundle's limits.

    `prefill` is the one rollout before the fork with many rows, `decode` a block or a tree of all
    rollouts. The head also sees the open rows of all rollouts as those of one: `rows`.
    """
    limits = manifest.limits
    block = manifest.draft.block if manifest.draft else 1
    prompt = min(limits.max_position, limits.trunk)
    widest = min(limits.branch, max(block, MAX_NODES + 1))
    usual = min(widest, block)
    rollouts = (1, limits.rollouts, limits.rollouts)
    one = (1, 1, 1)
    trunk = (1, limits.trunk, limits.trunk)
    branch = (1, min(limits.branch, 2 * BUCKET), limits.branch)
    prefill: dict[str, Range] = {"N": one, "S": (1, min(prompt, 256), prompt)}
    decode: dict[str, Range] = {"N": rollouts, "S": (1, usual, widest)}
    match graph:
        case "embed" | "draft_embed":
            dims = {"prefill": prefill, "decode": decode}
            if manifest.draft and manifest.draft.stepwise:  # its first pass embeds what waited
                dims["decode"] = {"N": rollouts, "S": (1, usual, limits.branch)}
        case "fuse":
            one_more: Range = (1, usual, limits.branch)
            dims = {
                "prefill": {"N": one, "C": prefill["S"]},
                "decode": {"N": rollouts, "C": one_more},
            }
        case "head" | "draft_head":
            most = limits.rollouts * widest
            if manifest.draft and manifest.draft.of_target:  # before the fork its passes are wider
                most = max(most, min(prompt, ALONE))
            rows = (1, limits.rollouts * usual, most)
            dims = {"rows": {"N": one, "S": rows}, "decode": decode}
        case "vision":  # the rig's shapes are fixed
            dims = {"rig": {}}
        case "target":
            dims = {
                "prefill": {**prefill, "P": trunk, "T": one},
                "decode": {**decode, "P": trunk, "T": branch},
            }
            if manifest.target.deepstack:  # rows of pictures, or zeros for all rows alike
                dims["prefill"]["Sd"], dims["decode"]["Sd"] = prefill["S"], one
        case "draft" if manifest.draft and manifest.draft.stepwise:
            # the first pass of a round reads all that was verified since the last one
            waiting = (1, usual, limits.branch)
            dims = {
                "prefill": {**prefill, "P": trunk, "T": branch},
                "decode": {"N": rollouts, "S": waiting, "P": trunk, "T": branch},
            }
        case "draft":
            width = (1, block, block)
            # behind a stretch without drafts, the context is all rows of that stretch
            waiting = (1, usual, limits.branch)
            dims = {
                "prefill": {"N": one, "B": width, "C": prefill["S"], "P": trunk, "T": one},
                "decode": {"N": rollouts, "B": width, "C": waiting, "P": trunk, "T": branch},
            }
    return [Profile(name=name, dims=ranges) for name, ranges in dims.items()]
