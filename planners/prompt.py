"""An observation as text of constant width, one token a character after the opening words."""

from __future__ import annotations

import numpy as np

from planners.observation import RATE_HZ, Intent, Observation
from planners.slots import Number

COMMANDS = {
    Intent.UNKNOWN: "on",
    Intent.STRAIGHT: "straight",
    Intent.LEFT: "left",
    Intent.RIGHT: "right",
}
SECONDS_BACK = (3.0, 2.5, 2.0, 1.5, 1.0, 0.5)  # with the current state the 7 points of WOD-E2E

# integers in units of the last place: the dot would be a token that says nothing
_HUNDREDTHS = Number(digits=3, decimals=0)
_THOUSANDTHS = Number(digits=3, decimals=0)
_FOUR_DIGITS = Number(digits=4, decimals=0)
_SPEED = Number(digits=3, decimals=0, signed=False)


def prompt_text(observation: Observation) -> str:
    """The prompt: the command, the current motion, and where the vehicle was at t-3 .. t-0.5 s.

    Current motion: speed in cm/s, acceleration in cm/s², yaw rate in mrad/s. Each past point:
    x in dm, y in cm, then `v` and the speed in dm/s. Values beyond the digits are clipped.
    Every observation gives the same number of characters after the command, and of tokens.
    """
    rows = [-1 - round(seconds * RATE_HZ) for seconds in SECONDS_BACK]
    now = np.array(
        [observation.speeds[-1], observation.accelerations[-1], observation.yaw_rates[-1]]
    )
    points, speeds = observation.positions[rows], np.abs(observation.speeds[rows])
    speed = _write(_FOUR_DIGITS, now[0] * 100)
    acceleration = _write(_HUNDREDTHS, now[1] * 100)
    yaw_rate = _write(_THOUSANDTHS, now[2] * 1000)
    past = "".join(
        f" {_write(_FOUR_DIGITS, x * 10)}{_write(_FOUR_DIGITS, y * 100)}v{_write(_SPEED, v * 10)}"
        for (x, y), v in zip(points, speeds, strict=True)
    )
    command = COMMANDS[observation.intent]
    return f"Plan: go {command}. {speed} {acceleration} {yaw_rate}{past}\n"


def _write(slot: Number, value: float) -> str:
    return slot.write(slot.clip(float(value)))
