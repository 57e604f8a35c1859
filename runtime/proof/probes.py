"""Where to draw: places whose distribution can tell a wrong acceptance rule from a right one.

At a token that the target is sure of, or that the drafter gets exactly right, any rule is right.
The places are chosen from p and q alone, before anything that is tested has been drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.decode import Decoder
from runtime.graphs import Graphs
from runtime.prompt import Prompt
from runtime.proof.cases import Case, outputs
from runtime.proof.controls import LENIENT, recorded
from runtime.proof.fresh import second_laws, value_laws
from runtime.proof.results import ProbePoint
from runtime.proof.statistics import LEAST_EXPECTED
from runtime.settings import DecodeSettings, Sampling

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PER_FRAME = 3  # places looked at besides the fork
VALUES = 3  # drawn from a place on
PROBES = 4


@dataclass(frozen=True)
class Probe:
    """A place to draw from, and the exact distributions there.

    Attributes:
        case: all before the place is pinned.
        at: index in the whole output.
        known: the tokens before it, prompt and output.
        first: [V] of the first value.
        drafter: [V] what the drafter expects there.
        heads: [A] first values that are likely enough to be told apart.
        second: [A, V] of the second value behind each of them; None if there is no second.
        power: how well the place tells a lenient rule; see `telling`.
    """

    case: Case
    at: int
    known: Prompt
    first: Floats
    drafter: Floats
    power: float
    heads: Ints
    second: Floats | None = None

    @property
    def values(self) -> Ints:
        """Indices of the drawn values in a drawn output."""
        fork = self.case.fork
        return fork + np.flatnonzero(self.case.scaffold.is_value[fork:])

    @property
    def joint(self) -> Floats:
        """[A*V + 1] of the first two values; the last cell is every other first value."""
        assert self.second is not None
        both = self.first[self.heads, None] * self.second
        return np.append(both.ravel(), max(0.0, 1.0 - self.first[self.heads].sum()))

    def joint_counts(self, drawn: Ints) -> Ints:
        """[A*V + 1] of drawn outputs [n, L]."""
        first, second = drawn[:, self.values[0]], drawn[:, self.values[1]]
        head = np.full(len(self.first), -1)
        head[self.heads] = np.arange(len(self.heads))
        rest = len(self.heads) * len(self.first)
        cell = np.where(head[first] < 0, rest, head[first] * len(self.first) + second)
        return np.bincount(cell, minlength=rest + 1)

    @property
    def point(self) -> ProbePoint:
        p = self.first[self.first > 0]
        entropy = float(-(p * np.log(p)).sum())
        overlap = float(np.minimum(self.first, self.drafter).sum())
        return ProbePoint(frame=self.case.frame, index=self.at, entropy=entropy, overlap=overlap)


def choose_probes(
    decoder: Decoder,
    cases: Sequence[Case],
    greedy: Sequence[Ints],
    sampling: Sampling,
    draws: int,
) -> list[Probe]:
    """The fork that tells most, and the places behind it that tell most, of all the cases.

    Args:
        greedy: [L] of each case; what is before a place is pinned to it.
        draws: the most that will be drawn at a place.
    """
    forks: list[Probe] = []
    later: list[Probe] = []
    for case, output in zip(cases, greedy, strict=True):
        for at in _places(decoder.graphs, case, output, sampling):
            probe = _probe(decoder, case, output, int(at), sampling)
            (forks if at == case.fork else later).append(probe)
    forks.sort(key=lambda probe: -probe.power)
    later.sort(key=lambda probe: -probe.power)
    chosen = forks[:1] + later[: PROBES - 1]
    return [_with_second(decoder.graphs, probe, sampling, draws) for probe in chosen]


def _places(graphs: Graphs, case: Case, output: Ints, sampling: Sampling) -> Ints:
    """The fork, and the PER_FRAME values behind it of which the target is least sure."""
    values = case.fork + np.flatnonzero(case.scaffold.is_value[case.fork :])
    behind = values[1:-1]  # a second value must follow
    if len(behind) == 0:
        return values[:1]
    laws = value_laws(graphs, case.prompt, case.scaffold, output, behind, sampling)
    sure = (laws**2).sum(axis=-1)
    return np.append(values[:1], behind[np.argsort(sure, kind="stable")[:PER_FRAME]])


def _probe(decoder: Decoder, case: Case, output: Ints, at: int, sampling: Sampling) -> Probe:
    pinned = case.pinned(output, at, VALUES)
    # the drafter's word on it: the round whose first draft is this value, if there is one
    calls: list[tuple[Floats, Floats]] = []
    rollouts = min(2, decoder.graphs.manifest.limits.rollouts)
    settings = DecodeSettings(
        "dflash", "token", block=_block(decoder), rollouts=rollouts, sampling=sampling
    )
    with recorded("token", calls):
        outputs(decoder, [pinned], settings)
    index = np.asarray([at])
    p = value_laws(decoder.graphs, case.prompt, case.scaffold, output, index, sampling)[0]
    q = calls[0][0][0, 0] if calls else p
    known = Prompt.of(case.prompt).followed_by(output[:at])
    return Probe(pinned, at, known, p, q, telling(p, q), np.zeros(0, np.int64))


def telling(p: Floats, q: Floats) -> float:
    """Squared standard scores per draw that a lenient rule adds to the drafter's pull.

    Token-wise acceptance at LENIENT of the ratio emits accepted + (rest) residual instead of p.
    """
    accepted = np.minimum(q, p / LENIENT)
    residual = np.maximum(p - q, 0.0)
    mass = residual.sum()
    given = accepted + (1.0 - accepted.sum()) * (residual / mass if mass > 0 else p)
    liked = q > p
    share = float(p[liked].sum())
    spread = share * (1.0 - share)
    return float((given[liked].sum() - share) ** 2 / spread) if spread > 0 else 0.0


def _with_second(graphs: Graphs, probe: Probe, sampling: Sampling, draws: int) -> Probe:
    if len(probe.values) < 2:
        return probe
    heads = np.flatnonzero(probe.first * draws >= LEAST_EXPECTED)
    scaffold, (first, second) = probe.case.scaffold, probe.values[:2]
    laws = second_laws(graphs, probe.known, scaffold, heads, int(first), int(second), sampling)
    return replace(probe, heads=heads, second=laws)


def _block(decoder: Decoder) -> int:
    draft = decoder.graphs.manifest.draft
    assert draft is not None
    return draft.block
