"""What scoring scripts of published planners get wrong without a word, and this one must not.

Five points at 1 s against the first five of a truth at 4 Hz; an output that can't be read as
standing still; frames without a prediction left out of the mean; numbers picked out of any text.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from drives.metrics import ade, distances
from drives.replay import replay
from drives.report import build_report
from drives.results import BundleInfo
from drives.summary import OutputLength
from drives.verdicts import verdicts
from planners.language import Language, ParseError
from planners.planner import Planner
from planners.published import fast_ddrive
from planners.tokens import Tokenizer
from runtime.settings import DecodeSettings
from tests.drives.fixed_plans import SPEED, TIMES, Fixed, cut, drive
from tests.planners.qwen_like import qwen_like

TRUTH = np.stack([SPEED * TIMES, np.zeros(20)], axis=1)
PAIRS = (
    "[[+008.00,+000.00],[+016.00,+000.00],[+024.00,+000.00],[+032.00,+000.00],[+040.00,+000.00]]"
)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return qwen_like()


@pytest.fixture(scope="module")
def language() -> Language:
    return fast_ddrive()


def true_output(language: Language, tokenizer: Tokenizer) -> np.ndarray:
    values: dict[str, Any] = {
        section.name: {
            name: slot.options[0] if slot.kind == "choice" else "keep the lane"
            for name, slot in section.slots.items()
            if slot.kind in ("choice", "text")
        }
        for section in language.sections
    }
    values["trajectory"] |= language.motion_values(TRUTH, SPEED, 0.0)
    return np.asarray(language.encode(values, tokenizer))


def test_one_point_a_second_is_never_scored_against_four(
    language: Language, qwen: Tokenizer
) -> None:
    said = language.waypoints(language.parse(true_output(language, qwen), qwen))
    assert said == pytest.approx(TRUTH[3::4])
    naive = np.linalg.norm(said - TRUTH[: len(said)], axis=1).mean()
    assert naive == pytest.approx(SPEED * 0.75 * 3)  # 18 m off, of a plan that is right
    with pytest.raises(ValueError, match="at 4 Hz"):
        distances(said, TRUTH)
    trajectory = language.trajectory(language.parse(true_output(language, qwen), qwen), SPEED, 0.0)
    assert float(ade(distances(trajectory, TRUTH), 5)) < 1e-6


def test_what_can_not_be_read_is_no_plan_and_not_a_standstill(
    language: Language, qwen: Tokenizer
) -> None:
    good = true_output(language, qwen)
    spoilt = good.copy()
    scaffold = language.compile(qwen)
    start = scaffold.section("trajectory").start
    digit = start + int(np.argmax(scaffold.is_value[start:])) + 1
    spoilt[digit] = qwen.single(",")
    planner = cast(Any, SimpleNamespace(language=language, tokenizer=qwen))
    rollouts, problems = Planner._trajectories(planner, np.stack([good, spoilt]), SPEED, 0.0)
    assert problems[0] == ""
    assert problems[1].startswith("parse: ")
    assert np.isfinite(rollouts[0]).all()
    assert np.isnan(rollouts[1]).all()


def test_frames_without_a_plan_are_counted_and_compared_with_nobody() -> None:
    """Leaving them out of one decoder's mean alone would reward it for saying nothing."""

    def ahead(method: str, frame: int) -> list[float]:
        if method == "dflash" and frame < 3:
            return [float("nan")]  # these are the frames on which `ar` is worst
        return [4.0] if frame < 3 else [1.0]

    straight, planner = drive(), Fixed(ahead)
    settings = {"ar": DecodeSettings("ar"), "dflash": DecodeSettings()}
    result = replay(planner, cut(straight), settings)
    bundle = BundleInfo(name="fixed", key="0" * 16, target="none", drafter=None, precision={})
    report = build_report(
        result,
        drive=straight,
        bundle=bundle,
        output=OutputLength(5, 1),
        text=planner.text,
        wall_s=1.0,
    )
    ar, dflash = report.decoders
    assert (ar.frames_without_plan, dflash.frames_without_plan) == (0, 3)
    assert dflash.unusable == {"no number": 3}
    # over the same frames, the plans are equally good
    assert ar.accuracy.ade[5].value == pytest.approx(dflash.accuracy.ade[5].value)
    assert report.leaderboards.without_plan == {"dflash": 3}
    assert report.leaderboards.frames == report.frames - 3
    assert any("dflash lacks 3" in sentence for sentence in verdicts(report))


@pytest.mark.parametrize(
    "text",
    [
        f"I will drive on. {PAIRS}",
        f'{{"trajectory": "{PAIRS}"}}',
        "8.0 0.0 16.0 0.0 24.0 0.0 32.0 0.0 40.0 0.0",
        PAIRS,
    ],
)
def test_numbers_are_never_picked_out_of_a_text(
    language: Language, qwen: Tokenizer, text: str
) -> None:
    pairs = re.findall(r"[+-]?\d+\.\d+", text)
    assert len(pairs) == 10  # a last resort would find five points here
    for tokens in (qwen.encode(text), [*qwen.encode(text), qwen.eos]):
        with pytest.raises(ParseError):
            language.parse(np.asarray(tokens), qwen)
    # nor where they stand in a text slot of an output whose trajectory is broken
    output = true_output(language, qwen)
    scaffold = language.compile(qwen)
    words = scaffold.section("explanation")
    places = words.start + np.flatnonzero(scaffold.is_value[words.start : words.stop])
    hidden = qwen.encode(PAIRS)[: len(places)]
    output[places] = [*hidden, *[qwen.null] * (len(places) - len(hidden))]
    output[scaffold.section("trajectory").start + 8 :] = qwen.null
    with pytest.raises(ParseError):
        language.parse(output, qwen)
