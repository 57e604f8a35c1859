"""What a proof runs on: prompts with their scaffolds, and the outputs that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.decode import Decoder
from runtime.prompt import Prompt
from runtime.scaffold import Scaffold, Span
from runtime.settings import DecodeSettings

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """One frame: its prompt ([Lp] tokens if it is text), the output's scaffold, and the section
    that rollouts part at."""

    frame: int
    prompt: Prompt | Ints
    scaffold: Scaffold
    fork_at: str

    @property
    def fork(self) -> int:
        """Index in the output of the first value that rollouts may differ in."""
        start = self.scaffold.section(self.fork_at).start
        return start + int(np.argmax(self.scaffold.is_value[start:]))

    def pinned(self, output: Ints, at: int, values: int) -> Case:
        """Draw the `values` values from index `at` of an output [L] on; all before is pinned to it.

        What precedes the value in front of `at` becomes prompt. That value itself stays a value
        with one allowed token: so the drafter reads the prompt before the rollouts part, as ever.
        """
        is_value = self.scaffold.is_value
        before = np.flatnonzero(is_value[:at])
        start = int(before[-1]) if len(before) else at
        stop = int((at + np.flatnonzero(is_value[at:]))[:values][-1]) + 1
        allowed_id = self.scaffold.allowed_id[start:stop].copy()
        only = np.zeros((1, self.scaffold.vocab), np.bool_)
        if start < at:
            allowed_id[0] = len(self.scaffold.allowed_sets)
        only[0, output[start]] = True
        sections = (Span("pinned", 0, at - start), Span("drawn", at - start, stop - start))
        scaffold = Scaffold(
            tokens=self.scaffold.tokens[start:stop],
            allowed_id=allowed_id,
            allowed_sets=np.concatenate([self.scaffold.allowed_sets, only]),
            sections=sections if start < at else sections[1:],
        )
        prompt = Prompt.of(self.prompt).followed_by(output[:start])
        return Case(self.frame, prompt, scaffold, "drawn")


def outputs(decoder: Decoder, cases: Sequence[Case], settings: DecodeSettings) -> list[Ints]:
    """[N, L] of every case, each under its own frame number."""
    return [
        decoder.decode(
            case.prompt, case.scaffold, replace(settings, frame=case.frame), case.fork_at
        ).tokens
        for case in cases
    ]


def name_of(settings: DecodeSettings) -> str:
    """`dflash:block`; the rule says nothing at temperature 0."""
    sampled = settings.sampling.temperature > 0
    return f"{settings.method}:{settings.rule}" if sampled else settings.method
