"""Block bootstrap: coverage on drives whose truth is known, pairing, and the odd cases."""

from __future__ import annotations

import numpy as np
import pytest

from drives.bootstrap import LEAST_SEGMENTS, BlockBootstrap, expanded_tail

STEP = 2.0  # s between frames


def simulated(rng: np.random.Generator, frames: int) -> np.ndarray:
    """Skewed errors whose neighbours share most of their 5 s, as overlapping windows do."""
    shocks = rng.normal(size=frames + 4)
    smooth = np.convolve(shocks, np.ones(5) / 5**0.5, mode="valid")
    return np.asarray(np.exp(0.5 * smooth))


TRUE_MEAN = float(np.exp(0.5**2 / 2))  # of the lognormal above


def coverage(segment_s: float, drives: int = 300) -> float:
    rng = np.random.default_rng(7)
    times = np.arange(240) * STEP  # 480 s, 24 segments of 20 s
    hits = 0
    for drive in range(drives):
        errors = simulated(rng, len(times))
        boot = BlockBootstrap(times, segment_s=segment_s, resamples=400, seed=drive)
        interval = boot.mean(errors)
        hits += interval.low <= TRUE_MEAN <= interval.high
    return hits / drives


def test_intervals_cover_the_truth_about_95_times_in_100() -> None:
    assert 0.90 <= coverage(20.0) <= 0.985


def test_single_frames_as_segments_cover_far_less() -> None:
    assert coverage(STEP) < 0.80  # what resampling overlapping frames would claim


def test_few_segments_are_expanded_to_student_t() -> None:
    # 2.776, 2.262 and 2.074 are Student's t for 4, 9 and 22 degrees of freedom (tables)
    from statistics import NormalDist

    for segments, t in ((5, 2.776), (10, 2.262), (23, 2.074)):
        exact = NormalDist().cdf(-((segments / (segments - 1)) ** 0.5) * t)
        assert expanded_tail(segments) == pytest.approx(exact, rel=0.04)


def test_a_paired_difference_is_narrower_than_two_means() -> None:
    rng = np.random.default_rng(3)
    times = np.arange(240) * STEP
    base = simulated(rng, 240) * 3
    other = base - 0.05 + 0.01 * rng.normal(size=240)
    boot = BlockBootstrap(times)
    paired, single = boot.difference(other, base), boot.mean(base)
    assert paired.excludes_zero
    assert paired.value == pytest.approx(-0.05, abs=0.005)
    assert paired.high - paired.low < 0.05 * (single.high - single.low)


def test_a_difference_to_itself_is_exactly_nothing() -> None:
    values = np.random.default_rng(0).normal(size=100)
    same = BlockBootstrap(np.arange(100) * STEP).difference(values, values)
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    assert not same.excludes_zero


def test_ratio_is_of_means_not_mean_of_ratios() -> None:
    times = np.arange(100) * STEP
    below = np.tile([1.0, 3.0], 50)
    found = BlockBootstrap(times).ratio(np.full(100, 4.0), below)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_same_seed_gives_the_same_interval() -> None:
    times, values = np.arange(800) * 0.5, np.random.default_rng(0).normal(size=800)
    first = BlockBootstrap(times, seed=5).mean(values)
    assert first == BlockBootstrap(times, seed=5).mean(values)
    assert first != BlockBootstrap(times, seed=6).mean(values)


def test_missing_frames_are_left_out() -> None:
    times = np.arange(100) * STEP
    values = np.where(np.arange(100) % 2, np.nan, 2.0)
    found = BlockBootstrap(times).mean(values)
    assert (found.value, found.low, found.high) == (2.0, 2.0, 2.0)
    none = BlockBootstrap(times).mean(np.full(100, np.nan))
    assert np.isnan([none.value, none.low, none.high]).all()


def test_too_few_segments_have_a_value_but_no_interval() -> None:
    times = np.arange(10 * (LEAST_SEGMENTS - 1)) * STEP  # 10 frames a segment
    found = BlockBootstrap(times).mean(np.ones(len(times)))
    assert found.value == 1.0
    assert np.isnan([found.low, found.high]).all()


def test_segments_follow_the_clock_not_the_count() -> None:
    times = np.concatenate([np.arange(50) * 0.25, 500 + np.arange(50) * 0.25])  # a long hole
    assert BlockBootstrap(times).segments == 2


def test_the_median_is_a_measured_value_and_its_interval_covers() -> None:
    rng = np.random.default_rng(3)
    times = np.arange(240) * STEP
    hits = 0
    for drive in range(200):
        errors = simulated(rng, len(times))
        boot = BlockBootstrap(times, resamples=200, seed=drive)
        interval = boot.median(errors)
        assert interval.value in errors
        assert interval.value == np.sort(errors)[119]
        hits += interval.low <= 1.0 <= interval.high  # of the lognormal
    assert 0.9 <= hits / 200 <= 0.99


def test_the_median_does_not_feel_a_wild_value_nor_missing_ones() -> None:
    times = np.arange(120) * STEP
    values = np.random.default_rng(5).uniform(1.0, 1.1, 120)
    wild = values.copy()
    wild[40] = 1e6
    calm, felt = BlockBootstrap(times).median(values), BlockBootstrap(times).median(wild)
    assert felt.value == pytest.approx(calm.value, abs=0.01)
    assert felt.high == pytest.approx(calm.high, abs=0.02)
    wild[40] = np.nan
    assert BlockBootstrap(times).median(wild).value == pytest.approx(calm.value, abs=0.01)
    assert np.isnan(BlockBootstrap(times).median(np.full(120, np.nan)).value)
    few = BlockBootstrap(times[:20]).median(values[:20])
    assert np.isfinite(few.value)
    assert np.isnan(few.low)


def test_no_segment_spans_two_drives() -> None:
    times = np.concatenate([np.arange(10) * STEP, 7.0 + np.arange(10) * STEP])  # clocks overlap
    names = ["b"] * 10 + ["a"] * 10
    assert BlockBootstrap(times, names).segments == 2
    assert BlockBootstrap(times).segments == 2  # one clock: 0 to 25 s
    assert (
        BlockBootstrap(
            np.tile(times[:10], 12), np.repeat(range(12), 10).astype(str).tolist()
        ).segments
        == 12
    )


def clip_coverage(with_names: bool, sets: int = 300) -> float:
    """24 clips of 8 s, each with an error of its own, as in data sets of short clips."""
    rng = np.random.default_rng(11)
    clip = np.repeat(np.arange(24), 5)
    times = np.tile(np.arange(5) * STEP, 24)
    hits = 0
    for seed in range(sets):
        errors = 1.0 + rng.normal(size=24)[clip] + 0.2 * rng.normal(size=len(clip))
        if with_names:
            boot = BlockBootstrap(times, [str(c) for c in clip], resamples=400, seed=seed)
        else:  # every frame for itself
            boot = BlockBootstrap(np.arange(len(clip)) * 100.0, resamples=400, seed=seed)
        interval = boot.mean(errors)
        hits += interval.low <= 1.0 <= interval.high
    return hits / sets


def test_clips_as_segments_cover_and_frames_do_not() -> None:
    assert 0.91 <= clip_coverage(True) <= 0.985
    assert clip_coverage(False) < 0.75
