"""The typed slots of an output: a choice, a padded text, a fixed-width number."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from runtime.errors import SlipstreamError


class Strict(BaseModel):
    """No unknown keys, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(Strict):
    """One of a few texts, padded with NULL to `width` tokens."""

    kind: Literal["choice"] = "choice"
    options: tuple[str, ...] = Field(min_length=1)
    width: int = Field(gt=0)

    @model_validator(mode="after")
    def _options_differ(self) -> Choice:
        if len(set(self.options)) != len(self.options) or "" in self.options:
            raise ValueError(f"the options must be different texts, not {list(self.options)}")
        return self


class Text(Strict):
    """Free text without quotes, backslashes, braces or line breaks, padded to `width` tokens."""

    kind: Literal["text"] = "text"
    width: int = Field(gt=0)


class Number(Strict):
    """A decimal number of fixed width, one token a character: [sign] digits [. digits].

    Sign and digits are values; the dot is scaffold, or with `dot_is_value` a value that the model
    writes (as in Fast-dDrive, arXiv 2605.23163).
    """

    kind: Literal["number"] = "number"
    digits: int = Field(ge=0, le=9)  # before the dot
    decimals: int = Field(ge=0, le=9)
    signed: bool = True
    dot_is_value: bool = False

    @model_validator(mode="after")
    def _has_digits(self) -> Number:
        if self.digits + self.decimals == 0:
            raise ValueError("a number needs at least one digit")
        return self

    @property
    def width(self) -> int:
        return self.signed + self.digits + (self.decimals > 0) + self.decimals

    @property
    def limit(self) -> int:
        """Largest magnitude, in units of the last place."""
        return int(10 ** (self.digits + self.decimals)) - 1

    @property
    def scale(self) -> int:
        """Units of the last place in 1."""
        return int(10**self.decimals)

    def units(self, value: float) -> int:
        """The value in units of its last place, halves rounded away from zero."""
        # the epsilon makes 0.15 (stored as 0.1499..) round as a reader of its digits expects
        magnitude = math.floor(abs(value) * self.scale + 0.5 + 1e-9)
        return -magnitude if value < 0 else magnitude

    def clip(self, value: float) -> float:
        """The nearest number that can be written; NaN stays NaN and is refused by `write`."""
        if math.isnan(value):
            return value
        largest = self.limit / self.scale
        return min(max(value, -largest if self.signed else 0.0), largest)

    def write(self, value: float) -> str:
        """The number's characters; zero is never negative.

        Raises:
            SlipstreamError: not finite, or it needs more digits or a sign.
        """
        units = self.units(value) if math.isfinite(value) else self.limit + 1
        if abs(units) > self.limit or (units < 0 and not self.signed):
            low = -self.limit if self.signed else 0
            raise SlipstreamError(
                "a number doesn't fit its slot",
                expected=f"{low / self.scale} to {self.limit / self.scale}",
                found=str(value),
                fix="clip the value, or give the slot more digits",
            )
        text = str(abs(units)).zfill(self.digits + self.decimals)
        sign = ("-" if units < 0 else "+") if self.signed else ""
        dot = "." if self.decimals else ""
        return sign + text[: self.digits] + dot + text[self.digits :]


Slot = Annotated[Choice | Text | Number, Field(discriminator="kind")]
