"""Faults put into a checkpoint, and the one error that exporting it has to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from export.bundle import export_bundle
from export.rig import Camera, RigOptions
from runtime.bundle import Limits
from runtime.errors import SlipstreamError

LIMITS = Limits(trunk=64, branch=128, rollouts=4, max_position=128)
FRONT = RigOptions([Camera("front", 96, 72)], min_pixels=4 * 28**2, max_pixels=24 * 28**2)


def refused(target: Path, says: str, drafter: Path | None = None, **options: Any) -> None:
    """Exporting is one whole error that says so, and leaves nothing behind."""
    beside = sorted(target.parent.iterdir())
    out = target.parent / "bundle"
    with pytest.raises(SlipstreamError, match=says) as caught:
        export_bundle(target, drafter, out, limits=LIMITS, check_parity=False, **options)
    error = caught.value
    assert error.expected
    assert error.found
    assert error.fix
    assert ".tmp" not in str(error)
    assert len(str(error)) < 4100
    assert sorted(target.parent.iterdir()) == beside


def edit(path: Path, *places: str | int, value: Any) -> None:
    """Set a value deep in a JSON file."""
    raw = inner = json.loads(path.read_text())
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = value
    path.write_text(json.dumps(raw))
