"""Outputs of published planners: exact round trips, refused trash, and paths at the right times."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from planners.actions import Codebook, Unicycle
from planners.language import Language, ParseError, Section
from planners.presets import tiny_language
from planners.published import alpamayo, autovla, fast_ddrive, open_emma, text_waypoints
from planners.rollouts import impossible
from planners.slots import Bins
from planners.text_waypoints import SpeedCurvature, Waypoints
from planners.tokens import Tokenizer
from planners.trajectory import to_trajectory
from planners.unicycle import TIMES, chain, roll_out
from runtime.errors import SlipstreamError
from runtime.scaffold import VALUE
from runtime.schema import schema_blocks
from tests.planners.conftest import FUTURE, arc
from tests.planners.qwen_like import qwen_like

Floats = NDArray[np.float64]
SLOW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))

# 0..22 m in 0.5 s, straight and bent; the first entry is a jump that no car makes
_REACH = np.linspace(0, 11, 34)
_TURNS = np.linspace(-0.3, 0.3, 15)
MOVES = np.array(
    [(30.0, 30.0, 3.0)]
    + [(d * np.cos(t / 2), d * np.sin(t / 2), t) for d in _REACH for t in _TURNS]
)
BINS = Bins(pattern="<i{}>", count=768, low=-10.0, high=10.0)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    actions = [f"<action_{i}>" for i in range(len(MOVES))]
    return qwen_like([f"<i{i}>" for i in range(768)] + actions)


@cache
def languages() -> dict[str, Language]:
    return {
        "fast-ddrive": fast_ddrive(),
        "open-emma": open_emma(),
        "text-waypoints": text_waypoints(),
        "at 2 Hz": text_waypoints(0.5, 10),
        "alpamayo": alpamayo(BINS),
        "autovla": autovla(MOVES),
    }


def said(language: Language, future: Floats, v0: float, a0: float) -> dict[str, Any]:
    """A whole output's values: the path's, and something for all else."""
    values: dict[str, Any] = {}
    for section in language.sections:
        values[section.name] = {
            name: slot.options[-1] if slot.kind == "choice" else "follow the car ahead"
            for name, slot in section.slots.items()
            if slot.kind in ("choice", "text")
        }
    values[language.fork_section] |= language.motion_values(future, v0, a0)
    return values


motions = st.tuples(
    st.floats(0.5, 20.0), st.floats(-1.5, 1.5), st.floats(-0.15, 0.15)
)  # m/s, m/s², rad/s


@pytest.mark.parametrize("name", languages())
def test_a_driven_path_comes_back(qwen: Tokenizer, name: str) -> None:
    """Labels, tokens, parse, path: within what the form can say."""
    language = languages()[name]
    most = {"autovla": 0.5, "alpamayo": 0.35, "open-emma": 0.3}.get(name, 0.15)  # m
    for v0, a0, turn in ((0.0, 0.0, 0.0), (8.0, 0.0, 0.0), (12.0, -1.5, 0.1), (3.0, 1.0, -0.15)):
        future = arc(FUTURE, v0, a0, turn)
        values = said(language, future, v0, a0)
        tokens = language.encode(values, qwen)
        assert len(tokens) == len(language.compile(qwen))
        parsed = language.parse(tokens, qwen)
        path = language.trajectory(parsed, v0, a0)
        assert path.shape == (20, 2)
        assert np.linalg.norm(path - future, axis=-1).max() < most, (v0, a0, turn)
        assert impossible(path, v0) == ""


@pytest.mark.parametrize("name", languages())
@SLOW
@given(data=st.data())
def test_what_is_written_is_read(qwen: Tokenizer, name: str, data: st.DataObject) -> None:
    """Any values that the slots can hold, to the last digit."""
    language = languages()[name]
    values: dict[str, dict[str, Any]] = {}
    for section in language.sections:
        values[section.name] = {}
        for slot_name, slot in section.slots.items():
            match slot.kind:
                case "choice":
                    drawn: Any = data.draw(st.sampled_from(slot.options))
                case "text":
                    drawn = data.draw(st.text("abcdefg ,.", max_size=20))
                case "number":
                    low = -slot.limit if slot.signed else 0
                    drawn = data.draw(st.integers(low, slot.limit)) / slot.scale
                case _:
                    drawn = slot.value(data.draw(st.integers(0, slot.count - 1)))
            values[section.name][slot_name] = drawn
    tokens = language.encode(values, qwen)
    assert language.parse(tokens, qwen) == values
    assert language.encode(language.parse(tokens, qwen), qwen) == tokens


@pytest.mark.parametrize("name", ["open-emma", "alpamayo", "autovla"])
@SLOW
@given(place=st.floats(0, 1, exclude_max=True), token=st.integers(0, 255))
def test_a_token_that_means_nothing_is_refused(
    qwen: Tokenizer, name: str, place: float, token: int
) -> None:
    """Never entry 0, never the nearest number: the output does not parse, and is left out."""
    language = languages()[name]
    compiled = language.compiled(qwen)
    values = {name: slot.low if slot.kind == "bins" else 0.0 for name, slot in
              language.sections[0].slots.items()}  # fmt: skip
    tokens = language.encode({language.fork_section: values}, qwen)
    slot = compiled.slots[int(place * len(compiled.slots))]
    allowed = slot.field.allowed[0]
    wrong = token if token not in allowed else qwen.null
    tokens[slot.start] = wrong
    with pytest.raises(ParseError) as caught:
        language.parse(tokens, qwen)
    assert caught.value.kind in ("bad_action", "bad_number")
    assert slot.name in caught.value.where


def test_cut_short_or_too_long_is_refused(qwen: Tokenizer) -> None:
    language = autovla(MOVES)
    tokens = language.encode(said(language, arc(FUTURE, 8.0, 0.0, 0.0), 8.0, 0.0), qwen)
    for bad in (tokens[:-1], tokens + tokens[-1:], tokens[1:]):
        with pytest.raises(ParseError):
            language.parse(bad, qwen)


def test_a_jump_in_the_codebook_is_no_plan() -> None:
    """An entry that no car can drive parses, and the checks of every rollout leave it out."""
    language = autovla(MOVES)
    parsed = {"trajectory": {f"t{k}": 0.0 for k in range(1, 11)}}
    assert impossible(language.trajectory(parsed, 8.0, 0.0), 8.0) != ""


def test_a_codebook_without_a_bin_for_each_move_is_refused() -> None:
    good = autovla(MOVES)
    slot = Bins(pattern="<action_{}>", count=len(MOVES) + 1, low=0.0, high=float(len(MOVES)))
    section = good.sections[0]
    with pytest.raises(ValidationError, match="a bin for each"):
        Language(
            name="n",
            motion=good.motion,
            sections=(
                Section(
                    name="trajectory",
                    template=section.template,
                    slots=dict.fromkeys(section.slots, slot),
                ),
            ),
        )


# Units and rates.


@pytest.mark.parametrize(("step", "count"), [(0.5, 10), (0.25, 20), (0.1, 64), (1.0, 6)])
@pytest.mark.parametrize("a0", [0.0, 1.2])
def test_waypoints_at_any_rate_are_at_the_right_times(step: float, count: int, a0: float) -> None:
    """Constant acceleration comes out exactly, whatever the step; 6.4 s are cut to 5."""
    at = step * np.arange(1, count + 1)
    points = np.stack([7.0 * at + a0 * at**2 / 2, np.zeros(count)], -1)
    expected = 7.0 * TIMES + a0 * TIMES**2 / 2
    found = to_trajectory(points, 7.0, a0, step)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)
    np.testing.assert_allclose(Waypoints(step=step, count=count).trajectory(
        points.ravel(), 7.0, a0)[:, 0], expected, atol=1e-6)  # fmt: skip


def test_a_motion_that_ends_before_the_plan_is_refused() -> None:
    with pytest.raises(ValidationError, match="end before the plan"):
        Waypoints(step=0.5, count=6)
    with pytest.raises(ValidationError, match="end before the plan"):
        Unicycle(step=0.1, count=49)


def test_the_unicycle_is_alpamayos_at_its_own_steps() -> None:
    """The recurrence written out; 4 Hz points that fall on a step of 0.1 s are that step."""
    rng = np.random.default_rng(0)
    a, k = rng.normal(0, 1, 64), rng.normal(0, 0.02, 64)
    v, theta, x, y = 6.0, 0.0, 0.0, 0.0
    points = []
    for each, bend in zip(a, k, strict=True):
        faster = v + each * 0.1
        turned = theta + bend * (v * 0.1 + each * 0.01 / 2)
        x += 0.05 * (v * np.cos(theta) + faster * np.cos(turned))
        y += 0.05 * (v * np.sin(theta) + faster * np.sin(turned))
        v, theta = faster, turned
        points.append((x, y))
    path = roll_out(a, k, 6.0, 0.1)
    for seconds in (0.5, 1.0, 2.5, 5.0):
        wanted = points[round(seconds / 0.1) - 1]
        np.testing.assert_allclose(path[round(seconds * 4) - 1], wanted, atol=1e-9)
    between = (np.array(points[1]) + points[2]) / 2  # 0.25 s lies between 0.2 and 0.3 s
    np.testing.assert_allclose(path[0], between, atol=2e-3)


def test_the_unicycles_numbers_are_normalised() -> None:
    motion = Unicycle(acceleration_mean=0.5, acceleration_std=2.0, curvature_std=0.01)
    values = np.tile([0.25, 1.0], 64)
    np.testing.assert_allclose(
        motion.trajectory(values, 5.0, 0.0), roll_out(np.full(64, 1.0), np.full(64, 0.01), 5.0, 0.1)
    )


def test_speeds_and_curvatures_keep_their_units() -> None:
    """10 m/s on a circle of 50 m: 100 times the curvature is 2; metres per half second are 5."""
    angle = 10.0 * TIMES / 50.0
    circle = 50.0 * np.stack([np.sin(angle), 1 - np.cos(angle)], -1)
    for seconds in (1.0, 0.5):
        motion = SpeedCurvature(speed_seconds=seconds)
        path = motion.trajectory(np.tile([10.0 * seconds, 2.0], 10), 10.0, 0.0)
        np.testing.assert_allclose(path, circle, atol=2e-3)


def test_moves_follow_one_another() -> None:
    quarter = (10.0, 10.0, np.pi / 2)
    poses = chain(np.array([quarter] * 4))
    np.testing.assert_allclose(poses[:, :2], [(10, 10), (0, 20), (-10, 10), (0, 0)], atol=1e-9)


@SLOW
@given(motion=motions)
def test_the_inverse_of_the_unicycle(motion: tuple[float, float, float]) -> None:
    """Labels give the driven path back, and no acceleration that the path does not show."""
    v0, a0, turn = motion
    future = arc(FUTURE, v0, a0, turn)
    for kind in (Unicycle(step=0.25, count=20), SpeedCurvature()):
        values = kind.values(future, v0, a0)
        assert np.linalg.norm(kind.trajectory(values, v0, a0) - future, axis=-1).max() < 0.15
    accelerations = Unicycle(step=0.25, count=20).values(future, v0, a0)[::2]
    assert abs(accelerations).max() < 4.0


def test_a_codebooks_labels_do_not_drift() -> None:
    book = Codebook(moves=tuple(map(tuple, MOVES)))
    future = arc(FUTURE, 9.0, 0.3, 0.08)
    path = book.trajectory(book.values(future, 9.0, 0.3), 9.0, 0.3)
    apart = np.linalg.norm(path - future, axis=-1)
    assert apart[1::2].max() < 0.4  # half of the entries' distance, at the last as at the first


def test_labels_beyond_the_path_are_refused() -> None:
    with pytest.raises(SlipstreamError, match="too short"):
        Waypoints(step=0.1, count=64).values(arc(FUTURE, 5.0, 0.0, 0.0), 5.0, 0.0)
    with pytest.raises(SlipstreamError, match="codebook's steps"):
        Codebook(step=0.4, count=13, moves=tuple(map(tuple, MOVES))).values(
            arc(FUTURE, 5.0, 0.0, 0.0), 5.0, 0.0
        )


# In a bundle.


@pytest.mark.parametrize("name", languages())
def test_a_language_file_carries_the_motion(tmp_path: Path, name: str) -> None:
    language = languages()[name]
    language.save(tmp_path / "language.json")
    assert Language.load(tmp_path / "language.json").model_dump() == language.model_dump()


def test_files_from_before_there_were_motions_stay_the_same(tmp_path: Path) -> None:
    tiny_language().save(tmp_path / "language.json")
    assert "motion" not in json.loads((tmp_path / "language.json").read_text())
    assert Language.load(tmp_path / "language.json").moves == Waypoints()


@pytest.mark.parametrize(
    ("motion", "named"),
    [
        ({"kind": "teleport"}, "motion"),
        ({"kind": "unicycle", "step": 0.0}, "step"),
        ({"kind": "unicycle"}, "no number slot a1"),
        ({"kind": "codebook", "moves": [[0, 0, 0]]}, "moves"),
    ],
)
def test_a_bad_motion_is_named(tmp_path: Path, motion: dict[str, Any], named: str) -> None:
    raw = tiny_language().model_dump(mode="json") | {"motion": motion}
    (tmp_path / "language.json").write_text(json.dumps(raw))
    with pytest.raises(SlipstreamError, match=named):
        Language.load(tmp_path / "language.json")


# Fast-dDrive.


def test_the_schema_of_fast_ddrive(qwen: Tokenizer) -> None:
    """280 value tokens, the dots of the waypoints among them (arXiv 2605.23163)."""
    language = fast_ddrive()
    scaffold = language.compile(qwen)
    count = {s.name: int(scaffold.is_value[s.start : s.stop].sum()) for s in scaffold.sections}
    assert count == {
        "critical_objects": 12,
        "explanation": 192,
        "future_meta_behavior": 6,
        "trajectory": 70,
    }
    values = said(language, arc(FUTURE, 8.0, 0.0, 0.05), 8.0, 0.0)
    tokens = language.encode(values, qwen)
    dot = next(s for s in language.compiled(qwen).slots if s.name == "x1").start + 4
    assert scaffold.tokens[dot] == VALUE
    assert tokens[dot] == qwen.single(".")
    assert tokens[-1] == qwen.eos


def test_fast_ddrives_values_are_in_eleven_blocks(qwen: Tokenizer) -> None:
    """Of 32, none across sections: 1, 6, 1 and 3 (arXiv 2605.23163)."""
    scaffold = fast_ddrive().compile(qwen)
    blocks = schema_blocks(scaffold, 32)
    counts = [len(set(blocks[s.start : s.stop].tolist())) for s in scaffold.sections]
    assert (counts, blocks.max() + 1) == ([1, 6, 1, 3], 11)


def test_fast_ddrives_text_is_json(qwen: Tokenizer) -> None:
    language = fast_ddrive()
    values = said(language, arc(FUTURE, 8.0, 0.0, 0.05), 8.0, 0.0)
    tokens = [t for t in language.encode(values, qwen) if t not in (qwen.null, qwen.eos)]
    read = json.loads(qwen.decode(tokens))
    assert list(read) == ["critical_objects", "explanation", "future_meta_behavior", "trajectory"]
    assert set(read["critical_objects"].values()) == {"no"}
    assert read["trajectory"].startswith("[[+0")
    assert len(read["trajectory"].split("],[")) == 5
