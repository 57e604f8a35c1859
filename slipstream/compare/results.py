"""The schema of `compare.json`: what each drafter cost and brought, seed by seed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from drives.results import Machine, Position, Strict

COMPARE_VERSION = 2
COMPARE = "compare.json"

Shape = Literal["chain", "tree"]


class SectionAcceptance(Strict):
    """One section of the output."""

    tau: float | None = Field(description="Tokens committed per verification round.")
    rate: float | None = Field(description="Accepted / drafted value tokens.")


class Acceptance(Strict):
    """What verification kept at one temperature; the part before the fork is always greedy."""

    shape: Shape
    rule: str = Field(description="Acceptance rule above temperature 0.")
    temperature: float = Field(description="Of the trajectory.")
    tau: float = Field(
        description="Tokens committed per verification round, the target's own and scaffold "
        "included; fixed tokens that need no round are in none."
    )
    target_passes: float = Field(description="Target passes a frame, the prefill excluded.")
    tokens_per_pass: float = Field(description="Output tokens of a frame / target passes.")
    rate: float | None = Field(description="Accepted / drafted value tokens.")
    by_position: list[Position]
    by_section: dict[str, SectionAcceptance]


class Measured(Strict):
    """One trained drafter in the loop."""

    seed: int = Field(description="Of the training.")
    train_s: float = Field(description="Wall time of the training, s.")
    parameters: int = Field(description="Trained values; the target's embedding and head excluded.")
    draft_ms: float = Field(description="Mean time of one pass of the drafter, ms.")
    draft_share: float = Field(description="Time in the drafter / latency of a frame.")
    cache_mb: float = Field(description="Most key/value memory, target and drafter, 10^6 bytes.")
    weights_mb: float = Field(description="The drafter's graphs on disk, 10^6 bytes.")
    latency_ms: float = Field(description="Median frame, chain at temperature 0.")
    speedup: float = Field(description="Median over frames of ar's latency / this one's.")
    speedup_scaffold: float = Field(description="The same against ar-scaffold.")
    acceptance: list[Acceptance]

    def of(self, shape: Shape, temperature: float) -> Acceptance:
        """The entry of a shape and a temperature; raises KeyError if it was not measured."""
        for entry in self.acceptance:
            if entry.shape == shape and entry.temperature == temperature:
                return entry
        raise KeyError((shape, temperature))


class Proven(Strict):
    """`slipstream verify` on the first seed's bundle."""

    checks: int = Field(description="Checks of outputs, distributions and caches.")
    failed: list[str] = Field(description="Names of the checks that failed.")
    faults: int = Field(description="Faults planted to see whether the checks can tell.")
    missed: list[str] = Field(description="Planted faults that no check told at these samples.")
    samples: int = Field(description="Outputs drawn for each rule.")

    @property
    def passed(self) -> bool:
        """No check failed; how much that says depends on the faults that were told."""
        return not self.failed


class Entry(Strict):
    """One drafter under the common budget."""

    name: str
    kind: str = Field(description="Architecture.")
    layers: int
    objective: str = Field(description="What it was trained on, in words.")
    data: float = Field(description="Share of the training outputs that it learned from.")
    steps: int
    seeds: list[Measured] = Field(min_length=1)
    proof: Proven | None = Field(description="Null where the proof was not asked for.")


class Study(Strict):
    """Entries that differ in one thing."""

    name: str
    question: str
    base: str = Field(description="Entry that the others are compared with.")
    entries: list[str] = Field(min_length=1)


class Budget(Strict):
    """What every entry was given."""

    target: str
    outputs: int = Field(description="Outputs of the target in the full training data.")
    steps: int
    batch: int
    anchors: int
    seeds: list[int]


class Comparison(Strict):
    """`compare.json`."""

    version: Literal[2] = COMPARE_VERSION  # type: ignore[assignment]
    created: str = Field(description="UTC, ISO 8601.")
    command: str
    machine: Machine
    budget: Budget
    drives: list[str] = Field(description="Held-out drives.")
    frames: int
    block: int = Field(description="Width of a drafted block, anchor included.")
    nodes: int = Field(description="Nodes of a tree, its root not counted.")
    entries: list[Entry] = Field(min_length=1)
    studies: list[Study]

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)
