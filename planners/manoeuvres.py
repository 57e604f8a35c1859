"""Names for what a vehicle did and will do, from its states: labels for training and replay."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planners.observation import RATE_HZ, Intent, Observation

Floats = NDArray[np.float64]

STANDING = 0.3  # m/s; below, the vehicle stands
SPEED_CHANGE = 1.0  # m/s over 5 s that counts as slowing down or speeding up ...
SPEED_CHANGE_SHARE = 0.1  # ... or this share of the current speed, if that is more
TURN = 0.35  # rad over 5 s (20 degrees)
BEND = 0.07  # rad over 5 s (4 degrees)
SIDESTEP = 1.5  # m; a lane change bends little but ends beside
CHORD = 0.5  # m between points whose direction is taken; less is noise
TREND = 0.4  # m/s²; mean acceleration of the last 1.5 s that counts as braking or gaining speed
PAST_BEND = 0.06  # rad of heading over the last 1.5 s

LONGITUDINAL = ("wait", "start", "stop", "slow down", "keep speed", "speed up", "back up")
# one word each: the first token tells the options apart
LATERAL = ("left", "leftward", "straight", "rightward", "right")


def longitudinal(speed: float, future: Floats) -> str:
    """What the speed will do over 5 s, one of `LONGITUDINAL`.

    Args:
        speed: m/s now, negative when reversing.
        future: [20, 2] m, the path at 4 Hz.
    """
    steps = np.diff(future, axis=0, prepend=np.zeros((1, 2)))
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    end = float(lengths[-int(RATE_HZ) :].sum())  # mean speed of the last second
    if lengths.sum() > 1.0 and future[-1, 0] < -CHORD and speed < STANDING:
        return "back up"
    standing, stops = abs(speed) < STANDING, end < STANDING
    if standing:
        return "wait" if lengths.sum() < 1.0 else "start"
    if stops:
        return "stop"
    change = end - abs(speed)
    if abs(change) < max(SPEED_CHANGE, SPEED_CHANGE_SHARE * abs(speed)):
        return "keep speed"
    return "speed up" if change > 0 else "slow down"


def lateral(future: Floats) -> str:
    """Where the path leads over 5 s, one of `LATERAL`.

    Args:
        future: [20, 2] m, the path at 4 Hz.
    """
    turned = heading_change(future)
    if abs(turned) >= TURN:
        return "left" if turned > 0 else "right"
    aside = float(future[-1, 1])
    side = turned if abs(turned) >= BEND else aside
    if abs(turned) >= BEND or abs(aside) >= SIDESTEP:
        return "leftward" if side > 0 else "rightward"
    return "straight"


def heading_change(future: Floats) -> float:
    """rad, left positive: the path's last direction against straight on; 0 if it hardly moves."""
    last = np.zeros(2)
    angles = [0.0]
    for point in future:
        step = point - last
        if math.hypot(*step) >= CHORD:
            angles.append(math.atan2(step[1], step[0]))
            last = point
    if len(angles) > 1 and abs(angles[1]) > math.pi / 2:  # reversing: the rear leads
        angles[1:] = [angle + math.pi for angle in angles[1:]]
        angles[1:] = [math.remainder(angle, 2 * math.pi) for angle in angles[1:]]
    return float(np.unwrap(angles)[-1])


def explain(observation: Observation, future: Floats) -> str:
    """One short sentence: how the vehicle was moving, and what it is about to do."""
    speed = float(observation.speeds[-1])
    plan, way = longitudinal(speed, future), lateral(future)
    said = _PLANS[plan, _KIND[way]].format(side=way.removesuffix("ward"))
    return f"{_past(observation)}, {said}."


_KIND = {
    "left": "turn",
    "leftward": "bend",
    "straight": "straight",
    "rightward": "bend",
    "right": "turn",
}

# (longitudinal, kind of path) -> what the vehicle is about to do
_PLANS = {
    ("wait", "straight"): "waiting",
    ("wait", "bend"): "waiting",
    ("wait", "turn"): "waiting",
    ("start", "straight"): "setting off straight ahead",
    ("start", "bend"): "setting off to the {side}",
    ("start", "turn"): "setting off into a {side} turn",
    ("stop", "straight"): "braking to a stop",
    ("stop", "bend"): "braking to a stop on the {side}",
    ("stop", "turn"): "braking to a stop in a {side} turn",
    ("slow down", "straight"): "slowing on a straight road",
    ("slow down", "bend"): "slowing for a bend to the {side}",
    ("slow down", "turn"): "braking for a {side} turn",
    ("keep speed", "straight"): "keeping speed on a straight road",
    ("keep speed", "bend"): "keeping speed in a bend to the {side}",
    ("keep speed", "turn"): "keeping speed in a {side} turn",
    ("speed up", "straight"): "gaining speed on a straight road",
    ("speed up", "bend"): "gaining speed in a bend to the {side}",
    ("speed up", "turn"): "gaining speed in a {side} turn",
    ("back up", "straight"): "backing up",
    ("back up", "bend"): "backing up to the {side}",
    ("back up", "turn"): "backing up into a {side} turn",
}

_COMMANDS = {
    Intent.UNKNOWN: "",
    Intent.STRAIGHT: " before going straight",
    Intent.LEFT: " before a left turn",
    Intent.RIGHT: " before a right turn",
}


def _past(observation: Observation) -> str:
    speed = float(observation.speeds[-1])
    if abs(speed) < STANDING:
        return "Stopped" + _COMMANDS[observation.intent]
    if speed < 0:
        return "Backing up"
    back = -1 - int(1.5 * RATE_HZ)
    gained = (speed - float(observation.speeds[back])) / 1.5
    turned = -float(observation.headings[back])
    motion = "Gaining speed" if gained > TREND else "Braking" if gained < -TREND else "Cruising"
    if abs(turned) < PAST_BEND:
        return motion
    return f"{motion} in a {'left' if turned > 0 else 'right'} bend"


def sentences() -> list[str]:
    """Every sentence that `explain` can say, for the tokenizer's corpus."""
    moving = [
        motion + bend
        for motion in ("Gaining speed", "Braking", "Cruising")
        for bend in ("", " in a left bend", " in a right bend")
    ]
    standing = ["Stopped" + command for command in _COMMANDS.values()]
    said = []
    for (plan, _), template in _PLANS.items():
        pasts = standing if plan in ("wait", "start") else moving
        pasts = [*pasts, "Backing up"] if plan not in ("wait", "start") else pasts
        pasts = [*standing, "Backing up"] if plan == "back up" else pasts
        said += [
            f"{past}, {template.format(side=side)}." for past in pasts for side in ("left", "right")
        ]
    return sorted(set(said))
