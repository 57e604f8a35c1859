"""How to decode: which method proposes, which rule accepts, how to sample."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from runtime.errors import SettingsError

Method = Literal[
    "ar", "ar-scaffold", "dflash", "ddtree", "spectr", "scaffold-spec", "section-diffusion"
]
Accept = Literal[
    "coupled", "match", "token", "block", "k-seq", "rrs", "rrs-wor", "traversal", "confidence"
]

# what can verify what a method proposes; the first is the default
RULES: dict[str, tuple[Accept, ...]] = {
    "ar": ("coupled",),
    "ar-scaffold": ("coupled",),
    "dflash": ("block", "token", "coupled", "match"),
    "ddtree": ("coupled", "match", "rrs-wor", "traversal"),
    "spectr": ("k-seq", "rrs"),
    "scaffold-spec": ("coupled", "match", "block", "token"),
    "section-diffusion": ("confidence",),
}
COLDEST = 1e-6  # below it logits overflow
DRAFTING: tuple[Method, ...] = ("dflash", "ddtree", "spectr", "scaffold-spec")
# what they fill stands without the target's word: no output is promised to be that of `ar`
UNVERIFIED: tuple[Method, ...] = ("section-diffusion",)
# their blocks are the schema's, and `block` counts the values of one
BY_SCHEMA: tuple[Method, ...] = ("scaffold-spec", "section-diffusion")
# the target's own draw decides, so the output is that of `ar` draw by draw
FOLLOWING: tuple[Accept, ...] = ("coupled", "match")


def _settle(settings: Sampling | DecodeSettings) -> None:
    """Insist on each field's type; numbers of numpy become plain ones."""
    for field in fields(settings):
        kind, value = str(field.type), getattr(settings, field.name)
        if value is None and kind.endswith("| None"):
            continue
        object.__setattr__(settings, field.name, _settled(field.name, kind, value))


def _settled(name: str, kind: str, value: Any) -> Any:
    if kind.startswith("int"):  # True is a number to Python, and a mistake here
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise _mistyped(name, "a whole number", value)
        return int(value)
    if kind.startswith("float"):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise _mistyped(name, "a number", value)
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    wanted = Sampling if kind == "Sampling" else str
    if not isinstance(value, wanted):
        raise _mistyped(name, "a Sampling" if wanted is Sampling else "a name", value)
    return value


def _mistyped(name: str, expected: str, found: object) -> SettingsError:
    return SettingsError(
        f"{name} has the wrong type",
        expected=expected,
        found=f"{found!r}"[:80] + f", a {type(found).__name__}",
        fix=f"give {name} {expected}; see the docstring of `slipstream.DecodeSettings`",
    )


def _bad(argument: str, expected: str, found: object) -> SettingsError:
    return SettingsError(
        f"{argument} is out of range",
        expected=expected,
        found=str(found),
        fix="see `slipstream run --help`",
    )


@dataclass(frozen=True)
class Sampling:
    """The processed distribution: allowed set, then top-k, temperature, top-p, renormalised.

    temperature 0 is greedy. top_k 0 and top_p 1 leave everything in.

    Raises:
        SettingsError: a value of another type, or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        _settle(self)
        if self.temperature != 0.0 and not COLDEST <= self.temperature < float("inf"):
            raise _bad("temperature", f"0 (greedy) or at least {COLDEST:g}", self.temperature)
        if self.top_k < 0:
            raise _bad("top_k", "0 (off) or a positive number", self.top_k)
        if not 0.0 < self.top_p <= 1.0:
            raise _bad("top_p", "a number above 0, up to 1", self.top_p)


@dataclass(frozen=True)
class DecodeSettings:
    """One frame's decoding.

    Attributes:
        method: `ar` one pass a token; `ar-scaffold` the same without passes for fixed tokens;
            `dflash` drafts a chain and verifies it; `ddtree` a best-first tree; `spectr` a trie of
            independent paths. The name says the shape; what drafts is the bundle's drafter.
            `scaffold-spec` drafts chains that end with a block of the output's schema, and
            `section-diffusion` fills such blocks with no verification at all: both are
            Fast-dDrive's (arXiv 2605.23163).
        accept: rule for sampled drafts, one of RULES[method]; None takes the first. `match` drafts
            the likeliest tokens and keeps those that the target draws; `coupled` does so too, but
            drafts with the random numbers that the target will draw with. The output of both
            equals that of `ar`, seed by seed; the others have the same distribution. Greedy output
            is the same for all. `confidence` verifies nothing.
        block: width of a drafted block, the anchor included; None lets the cost gate choose,
            down to no drafting at all. A stepwise drafter makes block - 1 passes, and fixed tokens
            that take none come on top. Of `scaffold-spec` and `section-diffusion` the values in
            a block of the schema; None takes the drafter's block.
        nodes: a tree's budget, the root not counted; None lets the cost curve choose.
        paths: of `spectr`.
        threshold: of `section-diffusion`: values that are likelier stand in each pass, else the
            single most likely one.
        rollouts: N; the output is decoded once up to the fork, then N times from there.
        sampling: for the forked part.
        prefix_sampling: for the part before the fork.
        seed, frame: with rollout and position, the counter that all randomness comes from. With a
            rule not in FOLLOWING, the same output again needs a fixed `block` and `nodes` too:
            the gate's widths follow the times and drafts of the frames before.
        batch: most rollouts that are decoded at once; None for all of them. The others follow over
            the same prefix, in the memory of the ones before.
        budget_ms: latency that a frame may take, from when its work begins. A frame without time
            for all rollouts decodes only the first n, at least 1 (`runtime.anytime`): those of the
            run without a budget, token for token, with a rule in FOLLOWING or where `block` and
            `nodes` are fixed; else, each of the same distribution.

    Raises:
        SettingsError: a value of another type, or out of range.
    """

    method: Method = "dflash"
    accept: Accept | None = None
    block: int | None = None
    nodes: int | None = None
    paths: int = 4
    threshold: float = 0.9
    rollouts: int = 1
    batch: int | None = None
    sampling: Sampling = Sampling()
    prefix_sampling: Sampling = Sampling()
    seed: int = 0
    frame: int = 0
    budget_ms: float | None = None

    def __post_init__(self) -> None:
        _settle(self)
        if self.method not in get_args(Method):
            raise _bad("decoder", " or ".join(get_args(Method)), self.method)
        if self.accept is not None and self.accept not in RULES[self.method]:
            expected = f"for decoder {self.method} {' or '.join(RULES[self.method])}"
            raise _bad("accept", expected, self.accept)
        if self.rollouts < 1:
            raise _bad("rollouts", "at least 1", self.rollouts)
        if self.batch is not None and self.batch < 1:
            raise _bad("batch", "at least 1", self.batch)
        if self.budget_ms is not None and not 0.0 < self.budget_ms < float("inf"):
            raise _bad("budget_ms (--deadline-ms)", "ms above 0, and finite", self.budget_ms)
        if self.method in BY_SCHEMA:
            if self.block is not None and self.block < 1:
                raise _bad("block", "at least 1 value", self.block)
        elif self.block is not None and self.block < 2:
            raise _bad("block", "at least 2 (the anchor and one draft)", self.block)
        if self.nodes is not None and not 1 <= self.nodes <= 1024:
            raise _bad("nodes", "1 to 1024", self.nodes)
        if not 1 <= self.paths <= 64:
            raise _bad("paths", "1 to 64", self.paths)
        if not 0.0 <= self.threshold <= 1.0:
            raise _bad("threshold", "a probability, 0 to 1", self.threshold)
        if not 0 <= self.seed < 1 << 64:
            raise _bad("seed", "at least 0, below 2^64", self.seed)
        if not 0 <= self.frame < 1 << 32:
            raise _bad("frame", "at least 0, below 2^32", self.frame)

    @property
    def rule(self) -> Accept:
        """The acceptance rule in force."""
        return self.accept or RULES[self.method][0]
