"""slipstream: drafted, verified and forked planning with driving vision-language-action models.

    import slipstream

    planner = slipstream.load("bundle")
    sampling = slipstream.Sampling(temperature=0.5)
    observation = slipstream.observation(times, poses)  # x, y, heading in your map frame
    plan = planner.plan(observation, slipstream.DecodeSettings(rollouts=8, sampling=sampling))
    plan.trajectory  # [20, 2] m, x forward, y left, first point 0.25 s ahead; or None

Names load when they are first used, so the import itself is quick and needs no engine.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import runtime  # noqa: F401  # before anybody imports ONNX Runtime

if TYPE_CHECKING:
    from drives.observe import observation
    from drives.open import open_drive
    from drives.windows import windows
    from planners.metrics import Metrics
    from planners.observation import Intent, Observation
    from planners.plan import Plan
    from planners.planner import Planner
    from runtime.errors import SlipstreamError
    from runtime.settings import DecodeSettings, Sampling

__all__ = [
    "DecodeSettings",
    "Intent",
    "Metrics",
    "Observation",
    "Plan",
    "Planner",
    "Sampling",
    "SlipstreamError",
    "load",
    "observation",
    "open_drive",
    "shipped_bundle",
    "windows",
]

_SHIPPED = ("tiny", "fast-ddrive")
_WHERE = {
    "DecodeSettings": "runtime.settings",
    "Intent": "planners.observation",
    "Metrics": "planners.metrics",
    "Observation": "planners.observation",
    "Plan": "planners.plan",
    "Planner": "planners.planner",
    "Sampling": "runtime.settings",
    "SlipstreamError": "runtime.errors",
    "observation": "drives.observe",
    "open_drive": "drives.open",
    "windows": "drives.windows",
}


def load(bundle: str | Path, threads: int | None = None, provider: str = "cpu") -> Planner:
    """Open a bundle and make its planner.

    Args:
        bundle: a bundle's folder.
        threads: engine threads; None measures which number is fastest on this machine.
        provider: what runs the graphs: cpu, cuda or tensorrt-ep (ONNX Runtime); tensorrt or
            tensorrt-rtx (compiled engines; tensorrt:fp16 names their precision).

    Raises:
        BundleError: a file is missing, altered or of another version.
        EngineError: what the provider needs is missing, or it can't load a graph.
    """
    from planners.planner import Planner

    return Planner.load(bundle, threads, provider)


def shipped_bundle(name: str = "tiny") -> Path:
    """The folder of a bundle that comes with slipstream.

    Args:
        name: `tiny`, which a DFlash drafter drafts for, or `fast-ddrive`, which drafts for itself.

    Raises:
        SlipstreamError: no such planner comes with slipstream.
    """
    import planners

    if name not in _SHIPPED:
        from runtime.errors import SlipstreamError

        raise SlipstreamError(
            "no such planner comes with slipstream",
            expected=" or ".join(_SHIPPED),
            found=repr(name),
            fix=f"slipstream.shipped_bundle({_SHIPPED[0]!r})",
        )
    return Path(planners.__path__[0]) / "weights" / name / "bundle"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'slipstream' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
