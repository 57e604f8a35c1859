"""The schema of `report.json`: every figure of a replay, with its convention in its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from drives.deadline import Deadline as Deadline
from drives.figures import Figure as Figure
from drives.figures import Strict as Strict
from drives.frame_rows import BaselineRow, FrameRow
from drives.leaderboard_results import Leaderboards
from drives.scene_results import Scene
from runtime.errors import SlipstreamError

REPORT_VERSION = 3
REPORT = "report.json"
MOST = 64 << 20  # bytes read of a report


class Machine(Strict):
    """Where the figures were measured."""

    cpu: str
    cores: int = Field(description="Logical CPUs that this process may use.")
    threads: int | None = Field(description="Engine threads; null is the engine's default.")
    memory_gb: float | None
    system: str
    versions: dict[str, str] = Field(description="slipstream, python, numpy, onnxruntime.")


class BundleInfo(Strict):
    name: str
    key: str = Field(description="First 16 hex digits of the SHA-256 of bundle.json.")
    target: str
    drafter: str | None
    precision: dict[str, str] = Field(description="Graph name -> precision of its weights.")
    data: list[str] = Field(
        default_factory=list, description="What it was trained on, as its bundle.json records it."
    )


class DriveInfo(Strict):
    name: str
    licence: str
    source: str
    synthetic: bool = Field(description="True: the drive was made up, no vehicle drove it.")
    duration_s: float
    length_m: float
    windows: int | None = Field(
        default=None, description="Windows that it can be cut into; null: nobody counted."
    )
    key: str = Field(
        default="", description="First 16 hex digits of a SHA-256 over what was recorded."
    )


class Asked(Strict):
    """What was asked for, besides the decoders and the rule, and a resumed run must ask again."""

    frames: str = Field(description="The selection of windows, as given.")
    provider: str = Field(description="What ran the graphs.")
    clusters: str = Field(
        default="",
        description="First 16 hex digits of the SHA-256 of the scenario clusters that were given; "
        "empty without.",
    )


class Training(Strict):
    """What the bundle's record of its training data says about this drive."""

    match: Literal["recording", "data set"] = Field(
        description="recording: the record names this drive. data set: it names the drive's data "
        "set, but not this recording."
    )
    entry: str = Field(description="The record's own words.")
    frames: int = Field(
        description="Replayed frames whose windows lie in the part that was trained on; 0 where "
        "only the data set is named."
    )


class Settings(Strict):
    method: str
    accept: str = Field(description="Acceptance rule; only drafting decoders use it.")
    block: int | None = Field(
        description="Drafted block width, anchor included; null: cost gate. Of `scaffold-spec` and "
        "`section-diffusion` values of a block of the schema; null: the drafter's block."
    )
    nodes: int | None = Field(
        description="A tree's budget, its root not counted; null: cost curve."
    )
    paths: int = Field(description="Independent paths of `spectr`.")
    threshold: float | None = Field(
        default=None, description="Confidence from which `section-diffusion` fills; null elsewhere."
    )
    rollouts: int
    temperature: float
    top_k: int
    top_p: float
    prefix_temperature: float
    seed: int
    budget_ms: float | None = Field(
        default=None,
        description="Latency that a frame may take; rollouts that it has no time for are not "
        "begun. Null: all are decoded.",
    )


class Latency(Strict):
    """Observation to plan, ms: prompt, prefill, decoding, parsing and aggregation."""

    mean: Figure = Field(description="Over all frames, outliers too.")
    p50: Figure = Field(description="The median frame; outliers don't move it.")
    p90: float
    p99: float | None = Field(
        description="Null with fewer than 100 frames: it would be the slowest one."
    )
    longest: float
    outliers: list[int] = Field(
        description="Numbers of the frames slower than 5 times the median, in order: the machine "
        "stood still, or did something else. They are in the means."
    )
    warmup: list[float] = Field(description="First frames, in order; they aren't counted above.")


class Position(Strict):
    """Verification by place in the drafted block; 1 is the first token after the anchor."""

    position: int
    drafted: int = Field(description="Value tokens drafted there (scaffold isn't drafted).")
    accepted: int


class Section(Strict):
    """Verification by section of the output."""

    rounds: int
    committed: int
    proposed: int
    accepted: int
    acceptance_length: float | None = Field(description="committed / rounds")
    acceptance_rate: float | None = Field(description="accepted / proposed")


class Identity(Strict):
    """Whether the decoded outputs equal those of another decoder, frame by frame."""

    reference: str
    rollouts: int = Field(
        description="Outputs compared: of each frame those that both have decoded."
    )
    identical: int = Field(description="Outputs that are equal, token for token.")
    expected: bool = Field(
        description="True where the method promises equality: temperature 0, or a rule that "
        "follows the target's own draws. `section-diffusion` promises nothing."
    )


class Paired(Strict):
    """Differences on the frames that both have; negative is better than the other."""

    ade_3s: Figure = Field(description="ADE@3s minus the other's, m.")
    ade_5s: Figure = Field(description="ADE@5s minus the other's, m.")


class Accuracy(Strict):
    """Open-loop errors against the logged future, m, over the same frames for every decoder and
    baseline: those on which every decoder has a plan."""

    ade: dict[int, Figure] = Field(
        description="Horizon T in s -> mean distance over the first 4T points at 4 Hz."
    )
    fde: dict[int, Figure] = Field(description="Horizon T in s -> distance at point 4T.")


class Decoder(Strict):
    """One decoder setting's figures over all counted frames."""

    name: str = Field(description="Unique in the report.")
    settings: Settings
    reference: str = Field(
        description="The decoder it is compared with: ar with the same rollouts and sampling, "
        "or else the first decoder that shares them."
    )
    latency_ms: Latency
    deadline: Deadline | None = Field(
        default=None,
        description="Share of the frames whose latency is within the deadline, and the rollouts "
        "that were decoded, mean over the frames: as many as it has time for, at least one, "
        "decided at the fork by what earlier frames took. Null: no deadline was given.",
    )
    speedup: Figure = Field(
        description="Median over the frames of the reference's latency / this one's on the same "
        "frame, so that a frame in which the machine stood still counts as one frame."
    )
    stages_ms: dict[str, float] = Field(
        description="Mean ms a frame. patches is the cutting of camera pictures, encode the vision "
        "graph. prefill, draft, verify (target passes), head and embed are "
        "engine time; host is decoding outside of engine calls; planning is the rest of the "
        "latency (prompt, parsing, aggregation). They add up to the mean latency."
    )
    host_share: float = Field(
        description="Time outside of engine calls / latency, over all frames."
    )
    ttft_ms: float = Field(
        description="Mean time from the prompt's tokens to the first output token."
    )
    tpot_ms: float = Field(
        description="Mean of (decode time after the first token) / (output length - 1): ms a token "
        "of one output; rollouts decoded beside each other share it."
    )
    tokens_per_s: float = Field(
        description="Output tokens / decode time: the part before the fork once, the rest for "
        "every rollout, scaffold included."
    )
    target_passes: float = Field(
        description="Target passes a frame, the prefill excluded; of `section-diffusion` those "
        "that fill a block and those that cache it."
    )
    draft_passes: float = Field(description="Drafter passes a frame.")
    tokens_per_pass: float | None = Field(
        default=None,
        description="Tokens of one output, scaffold included / passes of both kinds, the prefill "
        "excluded; rollouts share their passes.",
    )
    acceptance_length: float = Field(
        description="Tokens committed per verification round, bonus and scaffold included; fixed "
        "tokens that need no round (before the first value, at the fork, at the end) are in none. "
        "Of `section-diffusion`, which verifies nothing, tokens per pass of either kind."
    )
    acceptance_rate: float | None = Field(description="Accepted / proposed value tokens.")
    by_position: list[Position] = Field(description="Places that were drafted at, in order.")
    by_section: dict[str, Section] = Field(description="Output section -> its verification.")
    cache_mb: float = Field(description="Most key/value memory of a frame, 10^6 bytes.")
    device_mb: float | None = Field(
        default=None,
        description="Most memory held on an accelerator, weights, caches and passes, 10^6 bytes; "
        "null on a CPU.",
    )
    rollouts: int = Field(description="Rollouts decoded over all frames.")
    unusable: dict[str, int] = Field(
        description="Why rollouts were left out of their plan -> how many (parse failures and "
        "kinematically impossible ones)."
    )
    frames_without_plan: int = Field(
        description="Frames whose rollouts were all unusable; they are in nobody's error figures."
    )
    flags: dict[str, int] = Field(description="Plan flag -> frames.")
    accuracy: Accuracy = Field(description="Of the plan, under the report's rule.")
    rollout_ade_3s: dict[str, Figure] = Field(description="As rollout_ade_5s, at 3 s.")
    rollout_ade_5s: dict[str, Figure] = Field(
        description="ADE@5s of the compared frames, m, read in different ways. greedy: the plan of "
        "the decoder that ran at temperature 0, if one did. plan: what was planned, under the "
        "report's rule (guarded: the mean, or the medoid where the rollouts part). mean: of the "
        "mean trajectory. medoid: of the rollout nearest to the others. mean of ADE: the average "
        "of the rollouts' own ADEs. minADE: the best rollout's, chosen with the truth in hand: an "
        "oracle."
    )
    versus_reference: Paired
    versus_kinematic: dict[str, Paired] = Field(description="Baseline name -> paired difference.")
    identity: Identity | None = Field(description="Null for the reference itself.")


class Kinematic(Strict):
    """A baseline that keeps the current motion; it needs no network."""

    name: str
    label: str
    accuracy: Accuracy


class Sampling(Strict):
    """How the intervals were made."""

    segment_s: float
    segments: int
    resamples: int
    seed: int


class Report(Strict):
    """`report.json`."""

    version: Literal[3] = REPORT_VERSION  # type: ignore[assignment]
    created: str = Field(description="UTC, ISO 8601.")
    command: str
    machine: Machine
    bundle: BundleInfo
    drive: DriveInfo
    training: Training | None = Field(
        description="Null where the bundle records no training data of this drive's data set."
    )
    asked: Asked | None = Field(default=None, description="Null: a replay made from Python.")
    rule: str = Field(description="How rollouts become one trajectory.")
    output_tokens: int = Field(description="Length of one output, scaffold included.")
    shared_tokens: int = Field(description="Those of them before the fork, decoded once a frame.")
    frames: int = Field(description="Frames replayed by every decoder.")
    warmup_frames: int
    skipped: dict[str, int] = Field(description="Why windows of the drive could not be used.")
    wall_s: float = Field(description="The whole replay, warm-up included.")
    intervals: Sampling
    decoders: list[Decoder] = Field(min_length=1)
    kinematic: list[Kinematic] = Field(min_length=1)
    scenes: list[Scene] = Field(description="The worst first, then the median and the best.")
    leaderboards: Leaderboards
    rows: list[FrameRow]
    baseline_rows: list[BaselineRow] = Field(
        description="The kinematic baselines and the log on the same frames."
    )

    def best_kinematic(self, horizon: int) -> Kinematic:
        """The baseline with the lowest ADE at a horizon: the one to beat on this drive."""
        return min(self.kinematic, key=lambda k: k.accuracy.ade[horizon].value or 0.0)

    def same_plans(self) -> list[list[Decoder]]:
        """Decoders grouped by equal trajectories on every frame."""
        groups: dict[str, list[Decoder]] = {}
        for decoder in self.decoders:
            plans = [row.trajectory for row in self.rows if row.decoder == decoder.name]
            groups.setdefault(repr(plans), []).append(decoder)
        return list(groups.values())


def read_report(path: Path) -> Report:
    """Read `report.json`.

    Raises:
        SlipstreamError: no file, too large, no JSON, or not of this schema.
    """
    try:
        if not path.is_file():  # a pipe would never end
            raise _no_report(path, "a file", "none" if not path.exists() else "no regular file")
        if (size := path.stat().st_size) > MOST:
            raise _no_report(path, f"at most {MOST >> 20} MiB", f"{size} bytes")
        with path.open("rb") as file:
            raw: Any = from_json(file.read(MOST + 1), allow_inf_nan=False)
        return Report.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file as a whole"
        expected = f"version {REPORT_VERSION}, {where}: {first['msg']}"
        raise _no_report(path, expected, repr(first.get("input"))[:120]) from error
    except (OSError, ValueError) as error:
        found = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise _no_report(path, f"JSON of version {REPORT_VERSION}", found) from error


def _no_report(path: Path, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} is no report of this slipstream",
        expected=expected,
        found=found,
        fix="slipstream run BUNDLE --drive DRIVE -o DIR",
    )
