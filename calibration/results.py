"""The schema of what `slipstream calibrate` writes beside a bundle: every figure of its tables."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drives.figures import Figure, Strict
from drives.results import BundleInfo, DriveInfo, Machine
from runtime.calibrated import StoredPrecision, Way

VERSION = 1
Device = Literal["cpu", "tensorrt"]
# what became of a candidate; "forced": written although gates failed
Outcome = Literal["passed", "forced", "refused"]


class GraphMade(Strict):
    """One graph of the candidate."""

    graph: str
    precision: StoredPrecision
    way: Way
    quantized: int = Field(description="Products with a stored matrix that are quantized.")
    kept: int = Field(description="Those that are not.")
    kept_groups: list[str] = Field(description="Groups that were told to stay as they are.")
    kept_tensors: list[str] = Field(
        description="Tensors beyond fp16 on recorded windows, which stay fp32."
    )
    bytes_before: int
    bytes: int
    share: float | None = Field(
        description="Time over a drive, over fp32's, where ways were timed; null: they were not."
    )


class TensorError(Strict):
    """One output of one graph, over recorded passes of held-out windows."""

    graph: str
    tensor: str
    relative: float | None = Field(
        description="Norm of the difference over the norm, over all passes; null: not finite."
    )
    largest: float | None = Field(description="Largest difference; null: not finite.")
    passes: int


class TokenFigures(Strict):
    """Whether the candidate says the same, greedily."""

    frames: int
    identical: int = Field(description="Outputs that are the same to the last token.")
    until_difference: float = Field(
        description="Values before the first difference, as a share of all, mean over frames."
    )
    rows: int = Field(description="Rows of recorded passes, fed the same to both.")
    agreeing: float | None = Field(description="Share of them with the same likeliest token.")
    log_likelihood: float | None = Field(
        description="Nats a token: change for the tokens that the source finds likeliest."
    )


class Change(Strict):
    """A figure of the source and the candidate on the same frames."""

    name: str
    source: float | None
    candidate: float | None
    change: Figure = Field(
        description="Relative for distances, acceptance length and latency; else the difference."
    )


class KindOfDriving(Strict):
    """Frames of one stratum; ADE@5s of greedy plans and of rollouts' together, m."""

    stratum: str
    frames: int
    source: float | None
    candidate: float | None


class GateResult(Strict):
    """One gate's verdict."""

    gate: str
    passed: bool
    value: float | None = Field(
        default=None, description="What was measured; null: no finite number."
    )
    limit: float | None = Field(default=None, description="Null: there is nothing to measure.")
    interval: Figure | None = Field(default=None, description="Of the value, where it has one.")
    says: str


class GroupEffect(Strict):
    """What quantizing one group costs: relative error of its graph's main output, and nats."""

    graph: str
    group: str
    products: int
    quantized: bool = Field(description="Whether the candidate quantizes it.")
    alone: float | None = Field(description="Error where this group alone is quantized.")
    without: float | None = Field(description="Where all others are.")
    all: float | None = Field(description="Where all are.")
    log_likelihood: float | None = Field(description="Nats a token, this group alone.")


class Attempt(Strict):
    """One candidate and what the gates say of it."""

    graphs: list[GraphMade]
    tensors: list[TensorError]
    tokens: TokenFigures | None = Field(default=None, description="Null: it can't be decoded.")
    changes: list[Change] = Field(default_factory=list)
    driving: list[KindOfDriving] = Field(default_factory=list)
    gates: list[GateResult]
    broken: str = Field(default="", description="Why it can't be decoded, or ''.")
    blamed: str = Field(
        default="", description="GRAPH:GROUP whose quantization costs the most, or ''."
    )

    @property
    def failed(self) -> list[str]:
        """Names of the gates that it does not pass."""
        return [each.gate for each in self.gates if not each.passed]


class CalibrationResults(Strict):
    """`slipstream calibrate`."""

    version: Literal[1] = VERSION  # type: ignore[assignment]
    created: str
    command: str
    machine: Machine
    bundle: BundleInfo
    drives: list[DriveInfo] = Field(description="Calibrated on, and judged on if share.")
    judged_on: list[str] = Field(description="Drives of the held-out windows.")
    precision: StoredPrecision
    device: Device
    how: str
    smooth: float | None
    calibrated: dict[str, int] = Field(description="Windows calibrated on, by kind of driving.")
    held_out: int = Field(description="Windows judged on; none of the instants calibrated on.")
    recorded: dict[str, dict[str, int]] = Field(description="Graph -> kind of pass -> passes.")
    decoder: str
    rollouts: int
    attempts: list[Attempt] = Field(description="The last one counts.")
    sensitivity: list[GroupEffect] = Field(description="Worst first in each graph.")
    outcome: Outcome
    cache_bytes: int = Field(description="Keys and values with all rollouts, source.")
    candidate_cache_bytes: int
    seconds: float
