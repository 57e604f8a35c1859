"""Where the drives that tests read come from, and a report on one of them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from drives.replay import Replay
from drives.results import Report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def boreas_excerpt() -> Path:
    return ROOT / "tests" / "data" / "boreas-excerpt"


@pytest.fixture
def shared_drives() -> Path:
    """Recorded drives that may not be shipped; SLIPSTREAM_DRIVES names their folder."""
    folder = Path(os.environ.get("SLIPSTREAM_DRIVES", ROOT.parent / "shared" / "drives"))
    if not folder.is_dir():
        pytest.skip(f"no recorded drives at {folder} (set SLIPSTREAM_DRIVES)")
    return folder


@pytest.fixture(scope="session")
def result() -> Replay:
    """A replay of the kinematic planner, some of whose rollouts fail, and all of one frame."""
    from tests.drives.kinematic_planner import KinematicPlanner
    from tests.drives.kinematic_report import replayed

    return replayed(KinematicPlanner(fail_every=5, lose_frame=0))


@pytest.fixture(scope="session")
def report(result: Replay) -> Report:
    from tests.drives.kinematic_report import reported

    return reported(result)


def travelled(times: np.ndarray, speeds: np.ndarray) -> float:
    """m that speeds lead, forwards or backwards, by the trapezoidal rule."""
    return float(np.sum(0.5 * (np.abs(speeds[1:]) + np.abs(speeds[:-1])) * np.diff(times)))
