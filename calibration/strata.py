"""Kinds of driving, and windows drawn evenly from all of them.

Most of a drive is cruising. Windows drawn at random would hardly hold a stop or a turn, and ranges
calibrated on them would be too narrow for both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from drives.windows import Window
from planners.manoeuvres import STANDING
from planners.observation import RATE_HZ, Observation
from runtime.errors import SlipstreamError

Stratum = Literal["stopped", "slow", "turning", "highway", "cruising"]
STRATA: tuple[Stratum, ...] = get_args(Stratum)

TURNING = 0.07  # rad/s over the last second: 20 degrees in 5 s, as `planners.manoeuvres.TURN`
SLOW = 5.0  # m/s
HIGHWAY = 22.0  # m/s, 80 km/h


def stratum_of(observation: Observation) -> Stratum:
    """The kind of driving at an observation's instant, from its past alone.

    A vehicle that stands is "stopped", one that turns is "turning" at any speed; the rest goes by
    speed: "slow" below 5 m/s (reversing too), "highway" from 22 m/s on, "cruising" in between.
    """
    speed = abs(float(observation.speeds[-1]))
    if speed < STANDING:
        return "stopped"
    headings = observation.headings
    turned = math.remainder(float(headings[-1] - headings[-1 - int(RATE_HZ)]), 2 * math.pi)
    if abs(turned) >= TURNING:
        return "turning"
    if speed < SLOW:
        return "slow"
    return "highway" if speed >= HIGHWAY else "cruising"


def counts(windows: Sequence[Window]) -> dict[Stratum, int]:
    """How many windows each stratum has, every stratum named."""
    found = [stratum_of(window.observation) for window in windows]
    return {stratum: found.count(stratum) for stratum in STRATA}


def stratified(windows: Sequence[Window], count: int, seed: int) -> list[Window]:
    """Windows from all strata, as evenly as there are any, in the order they were given in.

    Each stratum's windows are cut into as many stretches as it gives windows, and one is drawn
    from every stretch, so that they are spread over the drive (or the drives, one after another).

    Args:
        windows: in the order of time.
        count: how many to choose; all of them where there are no more.
        seed: the same seed chooses the same windows.

    Raises:
        SlipstreamError: there is no window, `count` is below 1 or `seed` below 0.
    """
    if not windows or count < 1 or seed < 0:
        raise SlipstreamError(
            "no windows can be drawn for calibration",
            expected="at least one window, a count of at least 1 and a seed of at least 0",
            found=f"{len(windows)} windows, count {count}, seed {seed}",
            fix="slipstream drives info DRIVE says what a drive's windows lack",
        )
    places: dict[Stratum, list[int]] = {stratum: [] for stratum in STRATA}
    for place, window in enumerate(windows):
        places[stratum_of(window.observation)].append(place)
    shares = _shares({stratum: len(found) for stratum, found in places.items()}, count)
    random, chosen = np.random.default_rng(seed), list[int]()
    for stratum, share in shares.items():
        ends = np.linspace(0, len(places[stratum]), share + 1).round().astype(int)
        for first, end in pairwise(ends):
            chosen.append(places[stratum][int(random.integers(first, end))])
    return [windows[place] for place in sorted(chosen)]


def _shares(sizes: dict[Stratum, int], count: int) -> dict[Stratum, int]:
    """How many windows each stratum gives: what a small one lacks, the larger ones give."""
    shares, left = dict.fromkeys(sizes, 0), count
    by_size = sorted(sizes, key=lambda stratum: sizes[stratum])
    for waiting, stratum in zip(range(len(sizes), 0, -1), by_size, strict=True):
        shares[stratum] = min(sizes[stratum], left // waiting)
        left -= shares[stratum]
    return shares
