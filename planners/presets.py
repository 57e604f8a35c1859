"""The tiny planner's output language, and the true output for a recorded drive's window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planners.language import Choice, Language, Number, Section, Text, Values
from planners.manoeuvres import LATERAL, LONGITUDINAL, explain, lateral, longitudinal
from planners.observation import RATE_HZ, Observation
from runtime.errors import SlipstreamError

SPEED = Number(digits=2, decimals=1, signed=False)  # m/s
ACCELERATION = Number(digits=1, decimals=1)  # m/s²
YAW_RATE = Number(digits=0, decimals=3)  # rad/s
FORWARD = Number(digits=3, decimals=1)  # m
LEFT = Number(digits=2, decimals=1)  # m


def tiny_language() -> Language:
    """Motion facts, an explanation, the manoeuvre, and five waypoints, as JSON-looking text."""
    waypoints = [f'\n"{second} s": [<x{second}>, <y{second}>]' for second in range(1, 6)]
    return Language(
        name="tiny",
        fork_section="trajectory",
        sections=(
            Section(
                name="motion",
                template='{"motion": {"speed": <speed>, "acceleration": <acceleration>, '
                '"yaw_rate": <yaw_rate>},\n',
                slots={"speed": SPEED, "acceleration": ACCELERATION, "yaw_rate": YAW_RATE},
            ),
            Section(
                name="explanation",
                template='"explanation": "<text>",\n',
                slots={"text": Text(width=24)},
            ),
            Section(
                name="meta",
                template='"meta": {"longitudinal": "<longitudinal>", "lateral": "<lateral>"},\n',
                slots={
                    "longitudinal": Choice(options=LONGITUDINAL, width=2),
                    "lateral": Choice(options=LATERAL, width=1),
                },
            ),
            Section(
                name="trajectory",
                template='"trajectory": {' + ",".join(waypoints) + "}}",
                slots={
                    f"{axis}{second}": slot
                    for second in range(1, 6)
                    for axis, slot in (("x", FORWARD), ("y", LEFT))
                },
            ),
        ),
    )


def tiny_values(observation: Observation, future: NDArray[np.float64]) -> Values:
    """The values of the true output, clipped to what their slots can hold.

    Args:
        observation: what the planner sees.
        future: [20, 2] m at 4 Hz from t+0.25 s, in the observation's ego frame.

    Raises:
        SlipstreamError: a NaN or infinity, or another shape.
    """
    now = [observation.speeds[-1], observation.accelerations[-1], observation.yaw_rates[-1]]
    if future.shape != (20, 2) or not (np.isfinite(future).all() and np.isfinite(now).all()):
        raise SlipstreamError(
            f"frame {observation.frame} makes no training example",
            expected="finite states and a finite future of shape (20, 2)",
            found=f"a future of shape {future.shape}, now {[float(value) for value in now]}",
            fix="skip the window, as drives.windows does",
        )
    waypoints = future[int(RATE_HZ) - 1 :: int(RATE_HZ)]
    trajectory: dict[str, str | float] = {}
    for second, (x, y) in enumerate(waypoints, start=1):
        trajectory[f"x{second}"] = FORWARD.clip(float(x))
        trajectory[f"y{second}"] = LEFT.clip(float(y))
    # rounded as in the prompt first, so that the facts can be copied from it without guessing
    speed, acceleration, yaw_rate = (
        round(float(value), places) for value, places in zip(now, (2, 2, 3), strict=True)
    )
    return {
        "motion": {
            "speed": SPEED.clip(speed),
            "acceleration": ACCELERATION.clip(acceleration),
            "yaw_rate": YAW_RATE.clip(yaw_rate),
        },
        "explanation": {"text": explain(observation, future)},
        "meta": {
            "longitudinal": longitudinal(float(observation.speeds[-1]), future),
            "lateral": lateral(future),
        },
        "trajectory": trajectory,
    }
