"""What all settings of trainings share: how they are checked, and written as plain data."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

# for settings read from a file; made in code, they are taken as they are
CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
Spread = Annotated[float, Field(ge=0)]


def plain(settings: Any) -> dict[str, Any]:
    """A settings dataclass as JSON-ready values, nested ones too."""
    values: dict[str, Any] = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return values
