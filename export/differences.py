"""The differences that a parity check found, and what is done about them."""

from __future__ import annotations

from math import ceil, floor, log10
from pathlib import Path

import numpy as np
import torch

from runtime.engines.base import Array
from runtime.errors import SlipstreamError

# absolute where a norm comes last; relative to the largest of taps, features and logits
TOLERANCE = 1e-4


class Differences:
    """The largest difference of each check so far."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def add(self, check: str, found: Array, expected: torch.Tensor, relative: bool = False) -> None:
        wanted = expected.numpy()
        assert found.shape == wanted.shape, (check, found.shape, wanted.shape)
        difference = float(np.abs(found - wanted).max())
        if relative:
            difference /= max(1.0, float(np.abs(wanted).max()))
        if not np.isfinite(difference):
            difference = np.inf
        self.largest[check] = max(self.largest.get(check, 0.0), _rounded_up(difference))

    def judge(self, folder: Path) -> None:
        bad = {name: value for name, value in self.largest.items() if value > TOLERANCE}
        if bad:
            raise SlipstreamError(
                f"the graphs of {folder} differ from torch; no bundle was written",
                expected=f"differences of at most {TOLERANCE:g}",
                found=", ".join(f"{name} {value:g}" for name, value in bad.items()),
                fix="check that config.json belongs to these weights; else report the checkpoint",
            )


def _rounded_up(value: float) -> float:
    """To one digit, so that the last bits of a sum don't change a bundle."""
    if value == 0.0 or not np.isfinite(value):
        return value
    digit = 10.0 ** floor(log10(value))
    return float(f"{ceil(value / digit) * digit:.0e}")
