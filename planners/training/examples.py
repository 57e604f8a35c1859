"""Windows as token sequences: prompt and true output, both of constant length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planners.fast_ddrive import UNKNOWN, fast_ddrive_values
from planners.language import Language, Values
from planners.observation import Observation
from planners.presets import tiny_values
from planners.prompt import prompt_text
from planners.tokens import Tokenizer
from planners.training.data import Recorded
from runtime.scaffold import Scaffold

FAST_DDRIVE = "fast-ddrive"
ValuesOf = Callable[[Observation, NDArray[np.float64]], Values]


@dataclass(frozen=True)
class Examples:
    """Writes windows as tokens.

    Attributes:
        values_of: the true output's values, from an observation and the future [20, 2] m.
    """

    tokenizer: Tokenizer
    language: Language
    values_of: ValuesOf

    @property
    def scaffold(self) -> Scaffold:
        return self.language.compile(self.tokenizer)

    def prompts(self, windows: Recorded) -> Tensor:
        """Prompt tokens [M, Lp]."""
        rows = [
            self.tokenizer.encode(prompt_text(windows.observation(row)))
            for row in range(len(windows))
        ]
        return torch.tensor(rows)

    def outputs(self, windows: Recorded) -> Tensor:
        """True output tokens [M, L]."""
        rows = [
            self.language.encode(self.values(windows, row), self.tokenizer)
            for row in range(len(windows))
        ]
        return torch.tensor(rows)

    def values(self, windows: Recorded, row: int) -> Values:
        """The true output's values of one window."""
        return self.values_of(windows.observation(row), windows.futures[row])


class FastDdriveExamples(Examples):
    """Also says which objects are around, where that is known."""

    def values(self, windows: Recorded, row: int) -> Values:
        known = None if windows.objects is None else windows.objects[row].tolist()
        flags = None if known is None else [_ANSWERS[answer] for answer in known]
        return fast_ddrive_values(windows.observation(row), windows.futures[row], flags)


_ANSWERS = {1: "yes", 0: "no", -1: UNKNOWN}


def examples_of(tokenizer: Tokenizer, language: Language) -> Examples:
    """Examples of the language by its name; the tiny planner's values where it is another."""
    if language.name == FAST_DDRIVE:
        return FastDdriveExamples(tokenizer, language, fast_ddrive_values)
    return Examples(tokenizer, language, tiny_values)
