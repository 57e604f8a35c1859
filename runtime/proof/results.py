"""What a proof found: `verify.json`, versioned."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PROOF = "verify.json"
PROOF_VERSION = 1
CheckName = Literal[
    "greedy",
    "seed by seed",
    "first token",
    "two tokens",
    "drafter's pull",
    "total variation",
    "cache",
]
ControlName = Literal["residual dropped", "accepts at 0.9", "position shifted"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Difference(_Strict):
    """The first place where an output parts from that of `ar`.

    Attributes:
        index: of the token in the output.
        margin: what decided between the two tokens: the gap of the two largest logits (greedy), how
            far two tokens' logits were from a tie of their race (sampled), or where one number
            draws, its distance from the edge of the cumulated distribution between the two.
        near_tie: the margin is within rounding noise, so that neither output is wrong.
    """

    frame: int
    rollout: int
    index: int
    margin: float
    near_tie: bool


class Check(_Strict):
    """One check of one method and rule.

    Attributes:
        decoder: `method` or `method:rule`, and the condition it ran under.
        samples: outputs compared or drawn; of a cache, rounds.
        p_value: of the test at its last look; None for a check without chance.
        figure: the test's statistic: chi-square, the share of tokens that the drafter likes better
            than the target, total variation, or the largest absolute error.
        null: what `figure` is expected to be if nothing is wrong.
        identical: outputs equal to those of `ar`.
    """

    name: CheckName
    decoder: str
    condition: str
    passed: bool
    samples: int
    p_value: float | None = None
    figure: float | None = None
    null: float | None = None
    identical: int | None = None
    differences: list[Difference] = Field(default_factory=list)
    note: str = ""


class Control(_Strict):
    """A planted fault that the same checks must find.

    Attributes:
        by: the check that found it, or "".
        p_value: of that check; of the nearest one where none found it. None without chance.
    """

    name: ControlName
    decoder: str
    caught: bool
    by: str
    samples: int
    p_value: float | None = None


class ProbePoint(_Strict):
    """A place where outputs were drawn, everything before it pinned.

    Attributes:
        index: of the first drawn token in the output.
        entropy: nats, of the target's distribution there.
        overlap: sum of min(p, q) over the tokens, q the drafter's distribution.
    """

    frame: int
    index: int
    entropy: float
    overlap: float


class Proof(_Strict):
    """`verify.json`.

    Attributes:
        windows: that the drive has, of which `frames` were taken; None: nobody counted.
        alpha: chance that a healthy engine fails any of the tests.
        threshold: the p-value below which one test at one look fails: alpha, split.
        blunted: the rules were given worse drafts than the drafter's, which agrees with the target
            too often for any rule to look wrong.
    """

    version: Literal[1] = PROOF_VERSION  # type: ignore[assignment]
    created: str
    command: str
    versions: dict[str, str]
    bundle: str
    bundle_key: str
    drive: str
    engine_threads: int | None
    seed: int
    frames: int
    windows: int | None = None
    temperature: float
    samples: int
    alpha: float
    threshold: float
    blunted: bool = False
    probes: list[ProbePoint]
    checks: list[Check]
    controls: list[Control]
    seconds: float

    @property
    def passed(self) -> bool:
        """Every check passed and every planted fault was caught."""
        return all(c.passed for c in self.checks) and all(c.caught for c in self.controls)
