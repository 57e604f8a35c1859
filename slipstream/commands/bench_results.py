"""The schema of `bench.json`: passes and frames by precision, from one interleaved run."""

from __future__ import annotations

from pydantic import Field

from drives.results import BundleInfo, DriveInfo, Figure, Machine, Strict


class PassTimes(Strict):
    """One kind of pass of one graph."""

    kind: str = Field(
        description="prefill, verify, single (one token a rollout), draft, or inputs."
    )
    per_frame: float = Field(description="Passes of this kind in a frame.")
    ms: float = Field(description="Of fp32: the median over passes of each one's fastest turn.")
    ratios: dict[str, float] = Field(description="Way -> its time over fp32's.")


class GraphTimes(Strict):
    """One graph in each way of quantizing it."""

    graph: str
    passes: list[PassTimes]
    shares: dict[str, float] = Field(description="Way -> its time over a drive, over fp32's.")
    bytes: dict[str, int] = Field(description="Way -> bytes on disk.")
    products: int = Field(description="Products with a stored matrix.")
    quantized: int = Field(description="Those of them that the ways quantize.")


class PrecisionTimes(Strict):
    """Whole frames, each graph in the way that was fastest for it."""

    precision: str
    ways: dict[str, str] = Field(description="Graph -> its way, or fp32 where none was faster.")
    latency_ms: Figure = Field(description="Median, observation to plan, by the clock.")
    ratio: Figure = Field(
        description="Median over frames of each frame's time over fp32's; with one engine thread "
        "the times are what that thread computed, waiting for a core left out."
    )
    acceptance_length: float | None = Field(description="Tokens a verification round commits.")
    unusable: int = Field(description="Frames without a plan.")
    plan_gap_m: float | None = Field(
        description="Mean distance between its plans' points and fp32's; null without both."
    )
    bytes: int = Field(description="Of the bundle's graphs on disk.")


class Bench(Strict):
    """`slipstream bench`."""

    created: str
    command: str
    machine: Machine
    bundle: BundleInfo
    drive: DriveInfo
    decoder: str
    frames: int
    recorded: int = Field(description="Frames whose passes were recorded and timed.")
    keep: str = Field(description="ends: head, first and last blocks stay in fp32; or none.")
    smooth: float | None = Field(description="SmoothQuant's alpha; null: not smoothed.")
    graphs: list[GraphTimes]
    precisions: list[PrecisionTimes]
