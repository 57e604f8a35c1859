"""`slipstream sweep` on the shipped planner, its verdicts, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import slipstream
from drives.results import Figure
from drives.scaling_results import Scaling
from runtime.errors import SlipstreamError
from slipstream.commands.sweep import PICTURE, RESULT, rollout_counts, temperatures
from slipstream.commands.sweep_table import _interval, _text, verdicts
from tests.slipstream.command import command

BUNDLE = slipstream.shipped_bundle()


@pytest.mark.skipif(not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}")
def test_a_sweep_writes_one_picture_and_one_record(tmp_path: Path) -> None:
    options = ("--frames", "1", "--rollouts", "1,3", "--temperature", "0.5,1", "--threads", "1")
    drives = ("--drive", "synthetic", "--drive", "synthetic:7")
    done = command("sweep", str(BUNDLE), *drives, *options, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "SYNTHETIC" in done.stdout
    assert "too few segments" in done.stdout
    assert "no intervals: " in done.stdout
    assert "STILL" in done.stdout
    assert "Against greedy: difference of ADE@5s in m" in done.stdout
    assert "windows in all" in " ".join(done.stdout.split())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [RESULT, PICTURE]
    assert (tmp_path / "out" / PICTURE).read_bytes().startswith(b"\x89PNG")
    sweep = Scaling.model_validate_json((tmp_path / "out" / RESULT).read_text())
    assert (sweep.frames, len(sweep.drives), sweep.accept) == (2, 2, "coupled")
    assert [(p.temperature, p.rollouts) for p in sweep.points] == [
        (0.5, 1),
        (0.5, 3),
        (1.0, 1),
        (1.0, 3),
    ]
    assert sweep.greedy.temperature == 0
    assert sweep.greedy.unusable == 0
    for points in sweep.curves().values():  # coupled: the first rollout is the same one
        one, three = (point.ade_5s.min_ade.value for point in points)
        assert one is not None
        assert three is not None
        assert three <= one + 1e-9
    for points in sweep.curves().values():
        one, three = points
        assert one.cost_of_one is not None
        assert (one.cost_of_one.value, one.cache_of_one) == (1.0, 1.0)
        assert three.cache_of_one == pytest.approx(three.cache_mb / one.cache_mb)
        assert three.cache_of_one > 1.0
    assert len(sweep.kinematic) == 5
    again = verdicts(_with_gain(sweep, -0.5, (-0.9, -0.1)))
    assert "better; an interval without 0 also at 1." in again[0]
    assert "no difference" in verdicts(_with_gain(sweep, -0.5, (-0.9, 0.1)))[0]
    few = sweep.model_copy(update={"frames": 4, "compared": 1})
    assert verdicts(few)[0].startswith("Only 1 of 4 frames are compared")
    assert "worse" in verdicts(_with_gain(sweep, 0.5, (0.1, 0.9)))[0]


def _with_gain(sweep: Scaling, value: float, ends: tuple[float, float]) -> Scaling:
    gain = Figure(value=value, low=ends[0], high=ends[1])
    points = [
        p.model_copy(update={"versus_greedy": p.versus_greedy.model_copy(update={"ade_5s": gain})})
        for p in sweep.points
    ]
    return sweep.model_copy(update={"points": points})


def test_signs_and_names_are_those_of_the_report() -> None:
    assert _text(Figure(value=-0.5, low=None, high=None), sign=True) == "−0.500"
    assert _interval(Figure(value=-0.5, low=-0.9, high=0.1)) == "[−0.900, +0.100]"


def test_lists_are_sorted_and_said_once() -> None:
    assert rollout_counts("8, 1,2,8") == (1, 2, 8)
    assert rollout_counts(None) == ()
    assert temperatures("1,0.3") == (0.3, 1.0)
    for text in ("", "1,", "0", "-1", "1.5", "a", "2048", "9999999", "\uff11", "1,\u0662"):
        with pytest.raises(SlipstreamError, match="--rollouts"):
            rollout_counts(text)
    for text in ("", "0", "-1", "nan", "inf", "x"):
        with pytest.raises(SlipstreamError, match="--temperature"):
            temperatures(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rollouts", "1,x"), "--rollouts is out of range"),
        (("--temperature", "0"), "--temperature is out of range"),
        (("--decoder", "magic"), "decoder is out of range"),
        (("--accept", "rrs"), "accept is out of range"),
        (("--frames", "none"), "--frames can't be used"),
        (("--rated",), "--rated leaves no frame"),
        (("--drive", "synthetic"), "--drive names a drive twice"),
        (("--threads", "0"), "threads is out of range"),
        (("-o", "mine.txt"), "mine.txt can't hold"),
        ((), "nowhere is no bundle"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    given = ("sweep", "nowhere", "--drive", "synthetic", "-o", "out", *arguments)
    done = command(*given, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("slipstream: ")
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.skipif(not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}")
def test_more_rollouts_than_the_bundle_has_room_for(tmp_path: Path) -> None:
    options = ("--drive", "synthetic", "--frames", "2", "--rollouts", "1,999", "--threads", "1")
    done = command("sweep", str(BUNDLE), *options, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "at most 16" in done.stderr
    assert "--rollouts 999" in done.stderr
    assert not any(tmp_path.iterdir())
