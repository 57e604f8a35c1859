"""The options of `slipstream run`, and the decoder settings that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from drives.clusters import read_clusters
from runtime.errors import SlipstreamError
from runtime.settings import (
    DRAFTING,
    FOLLOWING,
    RULES,
    Accept,
    DecodeSettings,
    Method,
    Sampling,
)
from slipstream.commands.recordings import NONE, Recordings

SAMPLED = 0.5  # temperature of several rollouts; at 0 they would all be the same
RAY_HERE = "here"  # --ray without an address
DEFAULT = ("ar", "ar-scaffold", "dflash")


@dataclass(frozen=True)
class Request:
    """The options of `slipstream run`, as given."""

    bundle: Path
    drives: tuple[str, ...]
    out: Path
    decoders: tuple[str, ...]
    accept: str | None
    block: int | None
    nodes: int | None
    paths: int
    rollouts: int
    temperature: float | None
    top_k: int
    top_p: float
    rule: str
    frames: str
    seed: int
    threads: int | None
    provider: str = "cpu"
    topics: tuple[str, ...] = ()
    workers: int | None = None
    ray: str | None = None
    recordings: Recordings = NONE
    clusters: Path | None = None
    threshold: float = DecodeSettings.threshold
    deadline_ms: float | None = None
    batch: int | None = None
    metrics: str | None = None

    def named_decoders(self) -> list[str]:
        """Those that were asked for; none stands for the default ones."""
        return [name.strip() for given in self.decoders for name in given.split(",")]

    def scenario_clusters(self) -> dict[str, str]:
        """WOD-E2E sequence -> scenario cluster; raises SlipstreamError for a bad file."""
        return read_clusters(self.clusters) if self.clusters else {}


def settings_for(request: Request, decoder: str, *, repeatable: bool = False) -> DecodeSettings:
    """Settings of a decoder given as `method` or `method:rule`; they check themselves.

    --accept speaks to the decoders that draft; the others have nothing to accept.

    Args:
        repeatable: where no rule is named, take the one whose draws depend on no times.
    """
    method, rule = method_and_rule(decoder)
    accept = rule or (request.accept if method in DRAFTING else None)
    temperature = request.temperature
    if temperature is None:
        temperature = SAMPLED if request.rollouts > 1 else 0.0
    drafts = method in DRAFTING and "coupled" in RULES[method]
    repeats = drafts and RULES[method][0] in FOLLOWING
    if repeatable and accept is None and temperature > 0 and drafts and not repeats:
        accept = "coupled"
    return DecodeSettings(
        method=cast(Method, method),
        accept=cast("Accept | None", accept),
        block=request.block,
        nodes=request.nodes,
        paths=request.paths,
        threshold=request.threshold,
        rollouts=request.rollouts,
        batch=request.batch,
        sampling=Sampling(temperature, request.top_k, request.top_p),
        seed=request.seed,
        budget_ms=request.deadline_ms,
    )


def method_and_rule(decoder: str) -> tuple[str, str | None]:
    """The parts of `method` or `method:rule`.

    Raises:
        SlipstreamError: there is a colon and nothing behind it.
    """
    method, colon, rule = decoder.partition(":")
    if colon and not rule:
        raise SlipstreamError(
            f"--decoder {decoder} names no rule",
            expected="a rule behind the colon, such as dflash:token, or no colon",
            found=decoder,
            fix=f"--decoder {method}",
        )
    return method, rule or None


def decoder_name(settings: DecodeSettings) -> str:
    """`dflash` where it is greedy, else with the rule in force: `dflash:block ×8` of rollouts."""
    heats = (settings.sampling.temperature, settings.prefix_sampling.temperature)
    in_force = settings.method in DRAFTING and any(heats)
    rule = f":{settings.rule}" if settings.accept or in_force else ""
    return settings.method + rule + rollouts_name(settings)


def rollouts_name(settings: DecodeSettings) -> str:
    """` ×8` behind a decoder's name; nothing for a single rollout."""
    return f" ×{settings.rollouts}" if settings.rollouts > 1 else ""
