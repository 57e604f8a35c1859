"""RoPE as config.json names it: which scaling, and the frequencies that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from export.checkpoint import Checkpoint, CheckpointError
from runtime.strict import Size

KINDS = "default, linear, dynamic, llama3 or yarn"


# far beyond any model, and far within what fp32 holds
_Positive = Annotated[float, Field(strict=True, ge=1e-9, le=1e9)]


class RopeScaling(BaseModel):
    """One of transformers' kinds of RoPE scaling.

    `dynamic` (NTK) only acts beyond max_position_embeddings, where no bundle goes: it is `default`.

    Attributes:
        factor: by which frequencies are stretched: all (linear), low ones (llama3, yarn).
        original: positions that the checkpoint was trained for before it was stretched.
        low, high: wavelengths per `original`, where llama3 starts and stops to stretch.
        beta_slow, beta_fast: turns within `original`, where yarn starts and stops (arXiv
            2309.00071, section 3.2).
        gain: of cos and sin, yarn's 1/sqrt(t) (eq. 22).
        truncate: yarn's bounds are rounded to whole dimensions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["default", "linear", "llama3", "yarn"] = "default"
    factor: _Positive = 1.0
    original: Size = 1
    low: _Positive = 1.0
    high: _Positive = 4.0
    beta_fast: _Positive = 32.0
    beta_slow: _Positive = 1.0
    gain: _Positive = 1.0
    truncate: bool = Field(default=True, strict=True)

    @model_validator(mode="after")
    def _bounds_differ(self) -> RopeScaling:
        if self.kind == "llama3" and not self.low < self.high:
            raise ValueError("low_freq_factor is below high_freq_factor")
        return self

    def frequencies(self, theta: float, size: int) -> NDArray[np.float32]:
        """[D/2] radians a position, for heads of D = `size`; fp32, as in training."""
        exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
        periods = np.float32(theta) ** exponents
        plain: NDArray[np.float32] = np.float32(1) / periods
        match self.kind:
            case "linear":
                plain /= np.float32(self.factor)
            case "llama3":
                return self._llama3(plain)
            case "yarn":
                return self._yarn(periods, theta, size)
        return plain

    def _llama3(self, plain: NDArray[np.float32]) -> NDArray[np.float32]:
        """Llama 3.1's rule: long waves are stretched, short ones are not, between them a ramp."""
        waves = np.float32(2 * math.pi) / plain
        share = (np.float32(self.original) / waves - np.float32(self.low)) / np.float32(
            self.high - self.low
        )
        kept = np.clip(share, 0, 1, dtype=np.float32)
        mixed: NDArray[np.float32] = (1 - kept) * plain / np.float32(self.factor) + kept * plain
        return mixed

    def _yarn(self, periods: NDArray[np.float32], theta: float, size: int) -> NDArray[np.float32]:
        """YaRN's "NTK by parts" (arXiv 2309.00071, eq. 18 to 20)."""

        def dimension(turns: float) -> float:
            share = math.log(self.original / (turns * 2 * math.pi)) / math.log(theta)
            return size * share / 2

        first, last = dimension(self.beta_fast), dimension(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, size - 1)
        if first == last:
            last += 0.001
        ramp = (np.arange(size // 2, dtype=np.float32) - np.float32(first)) / np.float32(
            last - first
        )
        stretched = np.clip(ramp, 0, 1, dtype=np.float32)
        plain = np.float32(1) / periods
        factor = np.float32(self.factor)
        mixed: NDArray[np.float32] = stretched / (factor * periods) + plain * (1 - stretched)
        return mixed


_KEYS = {
    "factor": "factor",
    "original_max_position_embeddings": "original",
    "low_freq_factor": "low",
    "high_freq_factor": "high",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "gain",
    "truncate": "truncate",
}
_TAKES: dict[str, tuple[str, ...]] = {
    "default": (),
    "dynamic": ("factor",),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "attention_factor",
        "truncate",
        "mscale",
        "mscale_all_dim",
    ),
}
_NEEDS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
_OWN = {"rope_type", "type", "rope_theta", "mrope_section", "mrope_interleaved"}


def rope_parameters(raw: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """The key under which a config keeps RoPE's parameters, and what is there ({} if nothing)."""
    for key in ("rope_scaling", "rope_parameters"):  # transformers reads them in this order
        if raw.get(key):
            return key, raw[key] if isinstance(raw[key], Mapping) else None
    return "rope_parameters", {}


def rope_scaling(checkpoint: Checkpoint, raw: Mapping[str, Any]) -> RopeScaling:
    """The scaling that a decoder's config asks for.

    Args:
        raw: the decoder's part of config.json.

    Raises:
        CheckpointError: a kind that the graphs don't have, a parameter that it doesn't take, or a
            value that can't be.
    """
    place, found = rope_parameters(raw)
    if found is None:
        raise _invalid(checkpoint, place, "an object", raw[place])
    kind = found.get("rope_type", found.get("type", "default"))
    if kind == "mrope" and "mrope_section" in found:
        kind = "default"  # its sections are read elsewhere; the frequencies are the plain ones
    if not isinstance(kind, str) or kind not in _TAKES:
        raise _invalid(checkpoint, f"{place}.rope_type", KINDS, kind)
    given = {key: value for key, value in found.items() if value is not None}
    for key in given.keys() - _OWN - set(_TAKES[kind]):
        if kind == "default" and key in ("factor", "original_max_position_embeddings"):
            continue  # transformers reads neither
        takes = ", ".join(_TAKES[kind]) or "no parameter"
        raise _invalid(checkpoint, f"{place}.{key}", f"of {kind}: {takes}", given[key])
    for key in _NEEDS.get(kind, ()):
        if key not in given:
            raise _invalid(checkpoint, f"{place}.{key}", "a number", None)
    if kind in ("default", "dynamic"):
        return RopeScaling()
    fields: dict[str, Any] = {_KEYS[key]: given[key] for key in _KEYS.keys() & given.keys()}
    fields.setdefault("original", raw.get("max_position_embeddings"))
    if kind == "yarn" and "gain" not in fields:
        fields["gain"] = _yarn_gain(checkpoint, place, given)
    try:
        return RopeScaling(kind=kind, **fields)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        key = next((key for key, name in _KEYS.items() if name == field), "low_freq_factor")
        raise _invalid(checkpoint, f"{place}.{key}", first["msg"], given.get(key)) from error


def _yarn_gain(checkpoint: Checkpoint, place: str, given: Mapping[str, Any]) -> float:
    """0.1 ln(factor) + 1 (arXiv 2309.00071, eq. 22), or the quotient of two of them."""
    numbers = {key: given.get(key) for key in ("factor", "mscale", "mscale_all_dim")}
    for key, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise _invalid(checkpoint, f"{place}.{key}", "a number", value)

    def gain(weight: float) -> float:
        factor = float(numbers["factor"] or 1)
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    over, under = numbers["mscale"], numbers["mscale_all_dim"]
    return gain(over) / gain(under) if over and under else gain(1.0)


def _invalid(checkpoint: Checkpoint, key: str, expected: str, found: object) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {key} is not valid",
        expected=expected,
        found=repr(found)[:120],
        fix="use the config.json that was saved with these weights; see docs/checkpoints.md for "
        "what can be exported",
    )
