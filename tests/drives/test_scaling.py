"""The scaling curve on real plans of a planner without a network, and the picture of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from matplotlib import image

from drives.machine import this_machine
from drives.rater import Rated
from drives.replay import replay
from drives.report import drive_info
from drives.results import BundleInfo, Sampling
from drives.scaling import GREEDY, Curve
from drives.scaling_picture import picture
from drives.scaling_results import Scaling
from drives.windows import Window, windows
from runtime.settings import DecodeSettings
from runtime.settings import Sampling as Heat
from tests.drives.kinematic_planner import KinematicPlanner

COUNTS = (1, 2, 4, 8)


@pytest.fixture(scope="module")
def frames() -> list[Window]:
    from drives.readers.synthetic import synthetic_drive

    drive = synthetic_drive()
    every = [w for w in windows(drive, 3.0) if w.future is not None]
    return [
        replace(w, rated=Rated((w.future, w.future * 0.8), (10.0, 6.0))) if i % 2 else w
        for i, w in enumerate(every)
        if w.future is not None
    ]


def curve(
    frames: list[Window], heat: float = 1.0, planner: KinematicPlanner | None = None
) -> Curve:
    settings = {GREEDY: DecodeSettings("ar", rollouts=1)}
    settings |= {
        f"T={heat:g} ×{n}": DecodeSettings("ar", rollouts=n, sampling=Heat(heat)) for n in COUNTS
    }
    return Curve(replay(planner or KinematicPlanner(), frames, settings, "mean"))


def sweep(found: Curve) -> Scaling:
    from drives.readers.synthetic import synthetic_drive

    return Scaling(
        created=datetime.now(timezone.utc).isoformat(),
        command="",
        machine=this_machine(1),
        bundle=BundleInfo(name="kinematic", key="", target="", drafter=None, precision={}),
        drives=[drive_info(synthetic_drive())],
        training={},
        method="ar",
        accept="coupled",
        rule="mean",
        top_k=0,
        top_p=1.0,
        seed=0,
        frames=len(found.replay.windows),
        compared=int(found.compared.sum()),
        rated_frames=found.rated_frames,
        skipped={},
        intervals=Sampling(segment_s=20, segments=found.bootstrap.segments, resamples=1, seed=0),
        wall_s=0.0,
        greedy=found.point(GREEDY),
        points=[found.point(name) for name in found.replay.settings if name != GREEDY],
        kinematic=found.kinematic(),
    )


def test_greedy_is_the_baseline_that_it_rolls_out(frames: list[Window]) -> None:
    found = sweep(curve(frames))
    ctra = next(k for k in found.kinematic if k.name == "ctra")
    assert found.greedy.ade_5s.plan.value == pytest.approx(ctra.ade_5s.value)
    readings = found.greedy.ade_5s.model_dump().values()  # of one rollout all are the same
    assert {round(each["value"], 9) for each in readings} == {round(ctra.ade_5s.value or 0, 9)}
    assert found.greedy.spread_5s.value == 0
    assert found.greedy.spread_ratio_5s is None
    assert found.greedy.energy_score_5s.value == pytest.approx(found.greedy.fde_5s.value)
    assert found.greedy.versus_greedy.ade_5s.value == 0
    assert found.greedy.cost.value == 1
    assert found.greedy.mean_versus_greedy.ade_5s.value == 0
    assert found.greedy.medoid_versus_greedy.ade_3s.value == 0


def test_averaging_undoes_the_noise_of_sampling_and_no_more(frames: list[Window]) -> None:
    found = sweep(curve(frames))
    points, greedy = found.points, found.greedy.ade_5s.plan.value or 0
    assert [p.rollouts for p in points] == list(COUNTS)
    plan = [p.ade_5s.plan.value or 0 for p in points]
    one = [p.ade_5s.mean_of_ade.value or 0 for p in points]
    assert plan[0] == pytest.approx(one[0])
    assert plan[-1] < plan[0]
    assert max(one) / min(one) < 1.3  # what one sample has does not depend on how many there are
    for point in points:
        assert (point.ade_5s.min_ade.value or 0) <= (point.ade_5s.mean_of_ade.value or 0)
        gain = point.versus_greedy.ade_5s.value or 0
        assert gain == pytest.approx((point.ade_5s.plan.value or 0) - greedy, abs=1e-9)
        for gained, reading in (
            (point.mean_versus_greedy, point.ade_5s.mean),
            (point.medoid_versus_greedy, point.ade_5s.medoid),
        ):
            wanted = (reading.value or 0) - greedy
            assert gained.ade_5s.value == pytest.approx(wanted, abs=1e-9)
            assert gained.ade_5s.low is not None
            assert gained.ade_3s.value != gained.ade_5s.value
    costs = [p.cost_of_one for p in points]
    assert costs[0] is not None
    assert costs[0].value == 1
    alone = curve(frames[:4])
    alone.replay.settings.pop("T=1 ×1")
    alone.replay.plans.pop("T=1 ×1")
    assert (alone.point("T=1 ×2").cost_of_one, alone.point("T=1 ×2").cache_of_one) == (None, None)
    ratio = [p.spread_ratio_5s for p in points]
    assert ratio[0] is None
    assert all(each is not None and each > 0 for each in ratio[1:])


def test_rated_frames_have_a_score_and_others_none(frames: list[Window]) -> None:
    found = sweep(curve(frames))
    assert found.rated_frames == len(frames) // 2
    assert found.greedy.rfs is not None
    assert 4 <= (found.greedy.rfs.value or 0) <= 10
    still = next(k for k in found.kinematic if k.name == "still")
    assert still.rfs is not None
    assert (still.rfs.value or 0) < (found.greedy.rfs.value or 0)
    plain = curve([replace(w, rated=None) for w in frames])
    point = plain.point(GREEDY)
    assert (plain.rated_frames, point.rfs, point.rfs_of_one, point.rfs_versus_greedy) == (
        0,
        None,
        None,
        None,
    )


class LosesSamples(KinematicPlanner):
    """No plan on one frame with four rollouts; every other setting has one."""

    def problems(self, n: int, frame: int) -> tuple[str, ...]:
        return super().problems(n, frame) if n == 4 else ("",) * n


def test_what_one_setting_lost_is_compared_nowhere(frames: list[Window]) -> None:
    lost = frames[3].observation.frame
    found = sweep(curve(frames, planner=LosesSamples(fail_every=2, lose_frame=lost)))
    four = next(p for p in found.points if p.rollouts == 4)
    assert (found.frames, found.compared) == (len(frames), len(frames) - 1)
    assert four.frames_without_plan == 1
    assert four.unusable >= len(frames) // 2
    without = sweep(curve([*frames[:3], *frames[4:]], planner=LosesSamples(fail_every=2)))
    assert found.greedy.ade_5s.plan.value == pytest.approx(without.greedy.ade_5s.plan.value)
    assert found.kinematic[0].ade_5s.value == pytest.approx(without.kinematic[0].ade_5s.value)
    assert found.rated_frames == without.rated_frames
    for mine, theirs in zip(found.points, without.points, strict=True):
        assert mine.ade_5s.mean_of_ade.value == pytest.approx(theirs.ade_5s.mean_of_ade.value)
        assert mine.spread_ratio_5s == pytest.approx(theirs.spread_ratio_5s)


def test_settings_without_any_plan_leave_no_figures_but_no_crash(frames: list[Window]) -> None:
    class Never(KinematicPlanner):
        def problems(self, n: int, frame: int) -> tuple[str, ...]:
            return ("no number" if n == 8 else "",) * n

    found = sweep(curve(frames, planner=Never()))
    assert found.compared == 0
    assert found.greedy.ade_5s.plan.value is None
    assert found.points[0].coverage_5s == {}
    assert found.points[0].latency_p50_ms.value is not None
    assert picture(found).startswith(b"\x89PNG")


def test_the_record_is_whole_after_json(frames: list[Window]) -> None:
    found = sweep(curve(frames))
    assert Scaling.model_validate_json(found.model_dump_json()) == found
    assert "NaN" not in found.model_dump_json()
    assert list(found.curves()) == [1.0]


def test_the_picture_shows_rated_rows_only_where_there_are_any(
    frames: list[Window], tmp_path: Path
) -> None:
    shapes = []
    for rated in (True, False):
        chosen = frames if rated else [replace(w, rated=None) for w in frames]
        path = tmp_path / f"{rated}.png"
        path.write_bytes(picture(sweep(curve(chosen))))
        pixels = image.imread(path)
        assert pixels.std() > 0.05  # something is drawn
        shapes.append(pixels.shape[0])
    assert shapes[0] > shapes[1] * 1.3
