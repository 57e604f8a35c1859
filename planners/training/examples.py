"""Windows as token sequences: prompt and true output, both of constant length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planners.language import Language, Values
from planners.observation import Observation
from planners.prompt import prompt_text
from planners.tokens import Tokenizer
from planners.training.data import Recorded
from runtime.scaffold import Scaffold

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
            self.language.encode(
                self.values_of(windows.observation(row), windows.futures[row]), self.tokenizer
            )
            for row in range(len(windows))
        ]
        return torch.tensor(rows)
