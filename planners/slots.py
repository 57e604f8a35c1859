"""The typed slots of an output: a choice, a padded text, a fixed-width number, a binned one."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from runtime.errors import SlipstreamError

# Bounds far beyond any language, so that a damaged number is an error and not all of the memory.
Width = Annotated[int, Field(strict=True, gt=0, le=1 << 12)]  # tokens
Name = Annotated[str, Field(max_length=1 << 10)]
Bounded = Annotated[float, Field(strict=True, ge=-1e9, le=1e9)]  # NaN is neither
Scale = Annotated[float, Field(strict=True, ge=1e-9, le=1e9)]
Digits = Annotated[int, Field(strict=True, ge=0, le=9)]


class Strict(BaseModel):
    """No unknown keys, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(Strict):
    """One of a few texts, padded with NULL to `width` tokens."""

    kind: Literal["choice"] = "choice"
    options: tuple[Name, ...] = Field(min_length=1, max_length=1 << 12)
    width: Width

    @model_validator(mode="after")
    def _options_differ(self) -> Choice:
        if len(set(self.options)) != len(self.options) or "" in self.options:
            raise ValueError(f"the options must be different texts, not {self.options[:8]}")
        return self


class Text(Strict):
    """Free text without quotes, backslashes, braces or line breaks, padded to `width` tokens."""

    kind: Literal["text"] = "text"
    width: Width


class Number(Strict):
    """A decimal number of fixed width, one token a character: [sign] digits [. digits].

    Sign and digits are values; the dot is scaffold, or with `dot_is_value` a value that the model
    writes (as in Fast-dDrive, arXiv 2605.23163).
    """

    kind: Literal["number"] = "number"
    digits: Digits  # before the dot
    decimals: Digits
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


class Bins(Strict):
    """One of `count` tokens, which stand for evenly spaced numbers from `low` to `high`.

    Actions of AutoVLA (arXiv 2506.13757, `<action_0>` ..) and of Alpamayo (arXiv 2511.00088, `<i0>`
    ..). A codebook's entries are the numbers 0 to count - 1.

    Attributes:
        pattern: the tokens' text, with {} for the token's number.
        first: number of the token that stands for `low`.
    """

    kind: Literal["bins"] = "bins"
    pattern: str = Field(pattern=r"^[^{}]*\{\}[^{}]*$", max_length=1 << 6)
    first: int = Field(default=0, strict=True, ge=0, lt=1 << 31)
    count: int = Field(strict=True, gt=1, le=1 << 16)
    low: Bounded
    high: Bounded

    width: ClassVar[int] = 1

    @model_validator(mode="after")
    def _rising(self) -> Bins:
        if not self.low < self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}")
        if not self.value(self.count - 2) < self.high or not self.low < self.value(1):
            raise ValueError(f"{self.low} and {self.high} are too near for {self.count} bins")
        return self

    @property
    def step(self) -> float:
        """Between one bin's number and the next one's."""
        return (self.high - self.low) / (self.count - 1)

    def text(self, index: int) -> str:
        """The token of a bin."""
        return self.pattern.replace("{}", str(self.first + index))

    def value(self, index: int) -> float:
        """The number that a bin stands for."""
        return self.low + index * self.step

    def index(self, value: float) -> int:
        """The bin nearest to a number.

        Raises:
            SlipstreamError: not finite, or more than half a bin outside.
        """
        place = (value - self.low) / self.step
        if not -0.5 <= place <= self.count - 0.5:  # NaN is no number either
            raise SlipstreamError(
                "a number doesn't fit its bins",
                expected=f"{self.low} to {self.high}",
                found=str(value),
                fix="clip the value, or give the slot other bounds",
            )
        return min(max(round(place), 0), self.count - 1)

    def clip(self, value: float) -> float:
        """The nearest number within the bounds; NaN stays NaN and is refused by `index`."""
        return value if math.isnan(value) else min(max(value, self.low), self.high)


Slot = Annotated[Choice | Text | Number | Bins, Field(discriminator="kind")]
