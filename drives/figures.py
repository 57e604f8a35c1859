"""What every result of a drive is made of: strict models and estimates with their intervals."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

from drives.bootstrap import Interval


class Strict(BaseModel):
    """No unknown keys, no changes after making; NaN has no place in JSON: it is null."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(Strict):
    """An estimate with its 95 % interval."""

    value: float | None = Field(description="The estimate; null where no frame has it.")
    low: float | None = Field(
        description="Lower end of the 95 % interval from a block bootstrap over contiguous "
        "segments of the drive; null with fewer than 5 segments."
    )
    high: float | None = Field(description="Upper end.")

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def figure(interval: Interval) -> Figure:
    """An interval without NaN."""
    return Figure(value=known(interval.value), low=known(interval.low), high=known(interval.high))


def known(value: float) -> float | None:
    """A number as JSON has it: null for NaN and infinities."""
    return float(value) if math.isfinite(value) else None
