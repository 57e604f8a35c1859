"""What every part of a manifest is made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

# Bounds far beyond any model, so that a damaged number is an error and not all of the memory.
Size = Annotated[int, Field(strict=True, gt=0, le=1 << 20)]
Count = Annotated[int, Field(strict=True, gt=0, le=1 << 10)]
Token = Annotated[int, Field(strict=True, ge=0)]
FileName = Annotated[str, Field(pattern=r"^\w[\w.+-]*$", max_length=128)]  # beside bundle.json


def _number(value: object) -> object:
    if isinstance(value, bool):  # 1 == True to Python
        raise ValueError("Input should be a number")
    return value


One = Annotated[Literal[1], BeforeValidator(_number)]  # a version


class Strict(BaseModel):
    """No unknown keys, no changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
