"""Frames to judge on share no instant with frames to calibrate on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

import slipstream
from calibration.heldout import held_out, spread
from drives.windows import Window
from planners.observation import RATE_HZ
from runtime.errors import SlipstreamError
from tests.calibration.recorded import windows

DRIVE = slipstream.open_drive("synthetic")


def span(window: Window) -> tuple[float, float]:
    """s of the drive that a window holds; the oldest state's derivatives reach back a step."""
    now = window.observation.time
    return now - 16 / RATE_HZ, now + 20 / RATE_HZ


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_no_instant_is_on_both_sides(share: float) -> None:
    before, behind = held_out(windows(), DRIVE, share)
    assert len(behind) == round(share * len(windows()))
    assert behind == list(windows()[-len(behind) :])
    assert before == list(windows()[: len(before)])
    assert max(span(window)[1] for window in before) <= min(span(window)[0] for window in behind)
    assert len(windows()) - len(before) - len(behind) < 9 * RATE_HZ + 2  # no more than is needed


def test_windows_that_a_data_set_cut_are_scenes_of_their_own() -> None:
    scenes = replace(DRIVE, recorded=())
    before, behind = held_out(windows(), scenes, 0.25)
    assert [*before, *behind] == list(windows())


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(SlipstreamError, match="--held-out is out of range"):
        held_out(windows(), DRIVE, share)


def test_a_short_drive_has_no_two_sides() -> None:
    with pytest.raises(SlipstreamError, match="is too short") as caught:
        held_out(windows()[:30], DRIVE, 0.5)
    assert "--held-out DRIVE" in caught.value.fix


def test_what_is_spread_covers_all() -> None:
    many = list(windows())
    chosen = spread(many, 10)
    places = [many.index(window) for window in chosen]
    assert places == sorted(set(places))
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
    assert spread(many[:3], 10) == many[:3]
