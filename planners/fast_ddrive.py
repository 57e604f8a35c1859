"""Fast-dDrive's output for a recorded drive's window: labels for training (arXiv 2605.23163)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from planners.language import Language, Values
from planners.manoeuvres import (
    BEND,
    STANDING,
    TURN,
    explain,
    heading_change,
    lateral,
    longitudinal,
    sentences,
)
from planners.observation import FUTURE_STATES, RATE_HZ, Intent, Observation
from planners.published import CRITICAL_OBJECTS, fast_ddrive
from runtime.errors import SlipstreamError

Floats = NDArray[np.float64]

UNKNOWN = "unknown"  # of a flag: nothing is known about such objects
_TREND = 3.0  # s over which the speed's change is told
_LITTLE = 0.05  # m/s, and m: what is written as no change
_MORE, _SIDES = ("more", "less"), ("left", "right")

_SPEEDS = {
    "wait": "stop",
    "start": "accelerate",
    "stop": "stop",
    "slow down": "decelerate",
    "keep speed": "keep",
    "speed up": "accelerate",
    "back up": "other",
}
_COMMANDS = {
    Intent.UNKNOWN: "No command is given.",
    Intent.STRAIGHT: "The command is to go straight.",
    Intent.LEFT: "The command is to go left.",
    Intent.RIGHT: "The command is to go right.",
}


def fast_ddrive_language() -> Language:
    """The published schema with a third answer of the flags, `unknown`."""
    return fast_ddrive(unknown=UNKNOWN)


def fast_ddrive_values(
    observation: Observation, future: Floats, flags: Sequence[str] | None = None
) -> Values:
    """The values of the true output, clipped to what their slots can hold.

    Args:
        observation: what the planner sees.
        future: [20, 2] m at 4 Hz from t+0.25 s, in the observation's ego frame.
        flags: the answer of each of `CRITICAL_OBJECTS`; None says `unknown` to all.

    Raises:
        SlipstreamError: a NaN or infinity, or another shape.
    """
    flags = [UNKNOWN] * len(CRITICAL_OBJECTS) if flags is None else flags
    now = float(observation.speeds[-1]), float(observation.accelerations[-1])
    trajectory = fast_ddrive_language().motion_values(future, *now)
    return {
        "critical_objects": dict(zip(CRITICAL_OBJECTS, flags, strict=True)),
        "explanation": {"text": explanation(observation, future, flags)},
        "future_meta_behavior": {
            "longitudinal": _SPEEDS[longitudinal(now[0], future)],
            "lateral": direction(now[0], future),
        },
        "trajectory": trajectory,
    }


def direction(speed: float, future: Floats) -> str:
    """The published phrase for where the path leads, one of `planners.published.COMMANDS`.

    Args:
        speed: m/s now.
        future: [20, 2] m, the path at 4 Hz.
    """
    if longitudinal(speed, future) == "back up":
        return "reverse"
    way, turned = lateral(future), abs(heading_change(future))
    if way == "straight":
        return way
    side = way.removesuffix("ward")
    if turned >= TURN:
        return f"{side}_turn"
    return "lane_follow" if turned >= BEND else f"lane_change_{side}"


def explanation(observation: Observation, future: Floats, flags: Sequence[str]) -> str:
    """The facts in sentences: what was, the command, what is around, what comes.

    Args:
        future: [20, 2] m at 4 Hz, in the observation's ego frame.
        flags: the answer of each of `CRITICAL_OBJECTS`.
    """
    if future.shape != (FUTURE_STATES, 2) or not np.isfinite(future).all():
        raise SlipstreamError(
            f"frame {observation.frame} can't be explained",
            expected=f"a finite future of shape ({FUTURE_STATES}, 2), m at 4 Hz",
            found=f"shape {future.shape}, or numbers that are not finite",
            fix="skip the window, as drives.windows does",
        )
    return " ".join(
        [
            explain(observation, future),
            _speed(observation),
            _bend(observation),
            _COMMANDS[observation.intent],
            _around(flags),
            *_ahead(future),
        ]
    )


def _speed(observation: Observation) -> str:
    speed = float(observation.speeds[-1])
    change = abs(speed) - abs(float(observation.speeds[-1 - int(_TREND * RATE_HZ)]))
    now = "The vehicle stands" if abs(speed) < STANDING else f"The speed is {abs(speed):.1f} m/s"
    if abs(change) < _LITTLE:
        return f"{now}, as it was {_TREND:.0f} seconds ago."
    word = "more" if change > 0 else "less"
    return f"{now}, {abs(change):.1f} m/s {word} than {_TREND:.0f} seconds ago."


def _bend(observation: Observation) -> str:
    turned = math.degrees(-float(observation.headings[-1 - int(_TREND * RATE_HZ)]))
    if round(abs(turned)) == 0:
        return "The heading has not changed."
    return f"The heading has changed by {abs(turned):.0f} degrees to the {_side(turned)}."


def _around(flags: Sequence[str]) -> str:
    """Which flags are raised, as far as anything is known."""
    told = zip(CRITICAL_OBJECTS, flags, strict=True)
    seen = [name.replace("_", " ") for name, said in told if said == "yes"]
    if seen:
        return f"To be watched: {', '.join(seen)}."
    if all(said == UNKNOWN for said in flags):
        return "Nothing is known about other road users."
    return "No known road user is near."


def _ahead(future: Floats) -> Iterator[str]:
    """Where the path leads within 2 and 5 s, and how fast it is driven there."""
    steps = np.diff(future, axis=0, prepend=np.zeros((1, 2)))
    speeds = np.hypot(steps[:, 0], steps[:, 1]) * RATE_HZ
    for seconds in (2, 5):
        end = int(seconds * RATE_HZ)
        x, y = (float(value) for value in future[end - 1])
        aside = f"{abs(y):.1f} m to the {_side(y)}" if abs(y) >= _LITTLE else "straight on"
        way = "ahead" if x >= 0 else "back"
        speed = float(speeds[end - 2 : end].mean())
        yield (
            f"In {seconds} seconds the path leads {abs(x):.0f} m {way} and {aside}, "
            f"at a speed of {speed:.0f} m/s."
        )


def _side(left: float) -> str:
    return "left" if left > 0 else "right"


def corpus() -> list[str]:
    """Sentences of every kind that an explanation has, for the tokenizer's corpus."""
    numbers = ["The vehicle stands", "The speed is 1.2 m/s"]
    trends = ["as it was 3 seconds ago.", *(f"3.4 m/s {w} than 3 seconds ago." for w in _MORE)]
    told = [f" {now}, {trend}" for now, trend in product(numbers, trends)]
    told += [" The heading has not changed."]
    told += [f" The heading has changed by 5 degrees to the {side}." for side in _SIDES]
    told += [f" {command}" for command in _COMMANDS.values()]
    told += [" Nothing is known about other road users.", " No known road user is near."]
    told += [" To be watched: " + ", ".join(x.replace("_", " ") for x in CRITICAL_OBJECTS) + "."]
    told += [
        f" In 6 seconds the path leads 7 m {way} and {aside}, at a speed of 8 m/s."
        for way in ("ahead", "back")
        for aside in ("straight on", *(f"9.0 m to the {side}" for side in _SIDES))
    ]
    return sentences() + told * 20
