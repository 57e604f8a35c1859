"""One frame's sequence, prompt and scaffolded output, and how far each rollout has come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.prompt import Prompt
from runtime.scaffold import VALUE, Scaffold

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Script:
    """What is known of a sequence before any token is decoded. E = prompt + output length.

    Attributes:
        tokens: [E]; VALUE where the model decides.
        fixed: [E] bool.
        next_value: [E]; the first value position behind each position, E if there is none.
        section: [E] index into the scaffold's sections (0 for the prompt).
        rotary: [E] or [3, E] rotary positions; None where they are 0..E-1.
    """

    scaffold: Scaffold
    prompt: int
    tokens: Ints
    fixed: NDArray[np.bool_]
    next_value: Ints
    section: Ints
    rotary: Ints | None = None

    @classmethod
    def of(cls, prompt: Prompt | Ints, scaffold: Scaffold) -> Script:
        prompt = Prompt.of(prompt)
        tokens = np.concatenate([prompt.tokens, scaffold.tokens])
        fixed = np.not_equal(tokens, VALUE)
        at = np.where(fixed, len(tokens), np.arange(len(tokens)))
        following = np.minimum.accumulate(at[::-1])[::-1]
        next_value = np.append(following[1:], len(tokens))
        section = np.zeros(len(tokens), np.int64)
        for index, span in enumerate(scaffold.sections):
            section[len(prompt) + span.start : len(prompt) + span.stop] = index
        rotary = prompt.rotary(len(tokens))
        return cls(scaffold, len(prompt), tokens, fixed, next_value, section, rotary)

    def __len__(self) -> int:
        return len(self.tokens)

    def turned(self, positions: Ints) -> Ints:
        """[N, S] or [3, N, S] the target's rotary positions of places [N, S] in the sequence.

        A drafter of its own is given the places themselves: published drafters are trained so, also
        for targets with multimodal positions.
        """
        return positions if self.rotary is None else self.rotary[..., positions]

    def bias_at(self, positions: Ints) -> NDArray[np.float32]:
        """Scaffold bias [..., V] of output positions [...] (counted from the prompt's start)."""
        return self.scaffold.bias_at(positions - self.prompt)

    def section_ahead(self, positions: Ints) -> Ints:
        """[...] section of the first value behind each position; the last one if there is none."""
        return self.section[np.minimum(self.next_value[positions], len(self) - 1)]

    def first_value(self, section: str) -> int:
        """Position of a section's first value."""
        start = self.prompt + self.scaffold.section(section).start
        return int(self.next_value[start - 1])


@dataclass
class Rollouts:
    """The rollouts that are being decoded, in a batch.

    Attributes:
        ids: [N] numbers of the rollouts; finished ones have left.
        tokens: [N, E]; VALUE where nothing is decided yet.
        start: [N] position of the first token that is not in the cache. It is known (the anchor of
            the next round); so is every token before it.
    """

    ids: Ints
    tokens: Ints
    start: Ints

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def first(self) -> Rollouts:
        """The first of them alone."""
        return Rollouts(self.ids[:1], self.tokens[:1], self.start[:1])

    def keep(self, rows: Ints) -> None:
        self.ids, self.tokens, self.start = self.ids[rows], self.tokens[rows], self.start[rows]

    def forked(self, ids: Ints) -> Rollouts:
        """Rollouts of these numbers that all are where the one rollout here is."""
        n = len(ids)
        return Rollouts(ids, np.repeat(self.tokens, n, axis=0), np.repeat(self.start, n))
