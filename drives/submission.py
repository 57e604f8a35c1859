"""The plans of a WOD-E2E challenge submission: which frames, each planned from its own record.

Only the format of what is written is checked; nothing here has met the challenge's server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from drives.baselines import BASELINES, baseline
from drives.readers.text import read_text
from drives.readers.tfrecord import Record
from drives.readers.wod_e2e import read_window
from drives.replay import Plans
from drives.submission_format import Predictions
from planners.plan import Aggregate
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings

FALLBACK = "ctra"  # of a frame without a usable rollout
FALLBACK_NAME = BASELINES[FALLBACK].label
_LARGEST = 1 << 24  # bytes of a list
_FETCH = "fetch test_sequence_frames_for_submission.json from the data set's bucket"


@dataclass(frozen=True, eq=False)
class Planned:
    """What is submitted, and the frames whose trajectory is not the planner's."""

    predictions: Predictions
    fallbacks: tuple[str, ...]


def plan_frames(
    planner: Plans,
    frames: Mapping[str, Record],
    settings: DecodeSettings,
    rule: Aggregate = "guarded",
    progress: Callable[[int], None] = lambda frames: None,
) -> Planned:
    """Plan each frame from its own past; its future, if the record has one, is not looked at.

    A frame without a usable rollout gets constant turn rate and acceleration.

    Args:
        frames: name -> record, as `wod_e2e_frames` finds them; a frame's random draws are those of
            its place in here.
        progress: called with the number of frames done.

    Raises:
        SlipstreamError: a damaged record, or an observation that can't be planned from.
    """
    trajectories, fallbacks = [], []
    for number, (name, record) in enumerate(frames.items()):
        seen = read_window(record).observation(number)
        plan = planner.plan(seen, replace(settings, frame=number), rule)
        trajectory = plan.trajectory
        if trajectory is None:
            trajectory = baseline(FALLBACK, [seen])[0]
            fallbacks.append(name)
        trajectories.append(trajectory)
        progress(number + 1)
    stacked = np.asarray(trajectories, np.float64).reshape(len(frames), -1, 2)
    return Planned(Predictions(tuple(frames), stacked), tuple(fallbacks))


def required_frames(path: Path) -> tuple[str, ...]:
    """The frames of the challenge's list: test_sequence_frames_for_submission.json, or its .txt.

    The first maps each sequence to a frame number; the second has a frame's name in each line.

    Raises:
        SlipstreamError: an unreadable file, or another content.
    """
    text = read_text(path, largest=_LARGEST, fix=_FETCH)
    try:
        if path.suffix != ".json":
            frames = [line.strip() for line in text.splitlines() if line.strip()]
        else:
            frames = [f"{name}-{int(str(number)):03d}" for name, number in _pairs(text)]
    except (ValueError, TypeError, RecursionError) as error:
        raise _no_list(path, str(error)[:120]) from error
    if not frames or len(set(frames)) < len(frames):
        raise _no_list(path, f"{len(frames)} frames, {len(set(frames))} different ones")
    return tuple(frames)


def choose(
    frames: Mapping[str, Record], required: Sequence[str] | None, where: str
) -> dict[str, Record]:
    """Those of the frames that are required, in that order; all if None.

    Raises:
        SlipstreamError: required frames that the shards don't hold.
    """
    if required is None:
        return dict(frames)
    if missing := [name for name in required if name not in frames]:
        raise SlipstreamError(
            f"{where} lacks frames that the challenge requires",
            expected=f"all {len(required)}",
            found=f"{len(missing)} missing: {', '.join(missing[:3])}",
            fix="fetch every shard of the test split into one folder",
        )
    return {name: frames[name] for name in required}


def _pairs(text: str) -> list[tuple[str, object]]:
    """Name and value of a JSON object, each name once."""
    pairs = json.loads(text, object_pairs_hook=list)
    if not text.lstrip().startswith("{"):
        raise ValueError("no object")
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a clip that is there twice")
    return pairs  # type: ignore[no-any-return]


def _no_list(path: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{path} is not the challenge's list of frames",
        expected='{"<clip>": frame number, ...} in a .json, or <clip>-<number> in each line',
        found=found,
        fix=_FETCH,
    )
