"""What a manifest says of a bundle that was quantized."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, model_validator

from runtime.strict import Strict

StoredPrecision = Literal["fp32", "fp16", "bf16", "int8", "int4", "fp8", "nvfp4"]
# "plain": as it was, where nothing was faster or nothing was asked; "qdq": for TensorRT; "cast":
# fp16 or bf16, with the casts written down
Way = Literal["plain", "dynamic", "static", "weights", "qdq", "cast"]
# "passed", "forced" (written although some failed), or "none": nobody asked
Verdict = Literal["passed", "forced", "none"]


class CalibratedGraph(Strict):
    """How a graph was quantized, and how many of its products with a weight were."""

    way: Way
    quantized: int = Field(strict=True, ge=0)
    kept: int = Field(strict=True, ge=0)


class Calibration(Strict):
    """How a bundle was quantized, on what, and whether it still drives.

    Attributes:
        precision: what was asked for; a graph's own is in its `GraphFile`.
        graphs: by name, those that were looked at.
        smooth: SmoothQuant's alpha (arXiv 2211.10438); None: not smoothed.
        source: `Bundle.key` of the bundle that this one was made of.
        drives: what the passes and the gates' frames come from, and windows: how many.
        gates: the verdict, and `failed` the gates that did not pass.
        figures: what each gate measured; changes of ADE and of the acceptance length are relative.
    """

    precision: StoredPrecision
    graphs: dict[str, CalibratedGraph]
    smooth: Annotated[float, Field(ge=0, le=1)] | None = None
    source: str = ""
    drives: list[str] = Field(default_factory=list)
    windows: int = Field(default=0, strict=True, ge=0)
    gates: Verdict = "none"
    failed: list[str] = Field(default_factory=list)
    figures: dict[str, FiniteFloat] = Field(default_factory=dict)
    made_by: str = ""

    @model_validator(mode="after")
    def _the_verdict_is_that_of_the_gates(self) -> Calibration:
        if bool(self.failed) != (self.gates == "forced"):
            failed = ", ".join(self.failed) or "none"
            raise ValueError(f"gates {self.gates} where those that failed are: {failed}")
        return self
