"""Output languages of published planners, in the fixed-width form that the scaffold decodes.

docs/outputs.md says how each differs from what its authors' model writes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planners.actions import Codebook, Unicycle
from planners.language import Choice, Language, Number, Section, Slot, Text
from planners.slots import Bins
from planners.text_waypoints import SpeedCurvature, Waypoints

METRES = Number(digits=3, decimals=2)
CRITICAL_OBJECTS = (
    "nearby_vehicle",
    "pedestrian",
    "cyclist",
    "construction",
    "traffic_element",
    "weather_condition",
    "road_hazard",
    "emergency_vehicle",
    "animal",
    "special_vehicle",
    "conflicting_vehicle",
    "door_opening_vehicle",
)
SPEEDS = ("keep", "accelerate", "decelerate", "stop", "other")
COMMANDS = (
    "straight",
    "yield",
    "left_turn",
    "right_turn",
    "lane_follow",
    "lane_change_left",
    "lane_change_right",
    "reverse",
    "overtake",
    "other",
)


def fast_ddrive(
    objects: Sequence[str] = CRITICAL_OBJECTS,
    yes_no: tuple[str, str] = ("yes", "no"),
    unknown: str | None = None,
) -> Language:
    """Fast-dDrive's JSON for WOD-E2E (arXiv 2605.23163).

    12 flags, an explanation of 192 tokens, two phrases of 3, and five waypoints at 1 s as sign and
    ddd.dd: 280 value tokens with Qwen2.5's tokenizer.

    Args:
        unknown: a third answer of the flags, for drives of which no objects are known.
    """
    flag = Choice(options=(*yes_no, unknown) if unknown else yes_no, width=1)
    metres = METRES.model_copy(update={"dot_is_value": True})
    phrases: dict[str, Slot] = {
        "longitudinal": Choice(options=SPEEDS, width=3),
        "lateral": Choice(options=COMMANDS, width=3),
    }
    pairs = ",".join(f"[<x{k}>,<y{k}>]" for k in range(1, 6))
    return Language(
        name="fast-ddrive",
        sections=(
            Section(
                name="critical_objects",
                template='{"critical_objects": {'
                + ", ".join(f'"{name}": "<{name}>"' for name in objects)
                + "}, ",
                slots=dict.fromkeys(objects, flag),
            ),
            Section(
                name="explanation",
                template='"explanation": "<text>", ',
                slots={"text": Text(width=192)},
            ),
            Section(
                name="future_meta_behavior",
                template='"future_meta_behavior": '
                '{"longitudinal": "<longitudinal>", "lateral": "<lateral>"}, ',
                slots=phrases,
            ),
            Section(
                name="trajectory",
                template=f'"trajectory": "[{pairs}]"}}',
                slots={f"{axis}{k}": metres for k in range(1, 6) for axis in "xy"},
            ),
        ),
    )


def open_emma(speed_seconds: float = 1.0) -> Language:
    """OpenEMMA's speeds and curvatures (arXiv 2412.15208): `[v, k], ..` for 10 steps of 0.5 s, the
    curvature in 1/m times 100.

    Args:
        speed_seconds: 0.5 where a speed is metres per step, as OpenEMMA's code has it.
    """
    motion = SpeedCurvature(speed_seconds=speed_seconds)
    pairs = ", ".join(f"[<v{k}>, <k{k}>]" for k in range(1, motion.count + 1))
    speed, curvature = Number(digits=2, decimals=1, signed=False), Number(digits=2, decimals=1)
    slots = {name: speed if name[0] == "v" else curvature for name in motion.slots}
    return _alone("open-emma", motion, pairs, slots)


def text_waypoints(step: float = 1.0, count: int = 5) -> Language:
    """Waypoints as plain text, `[x, y], ..` in metres: EMMA (arXiv 2410.23262), Poutine."""
    motion = Waypoints(step=step, count=count)
    pairs = ", ".join(f"[<x{k}>, <y{k}>]" for k in range(1, count + 1))
    return _alone("text-waypoints", motion, pairs, dict.fromkeys(motion.slots, METRES))


def alpamayo(
    bins: Bins | None = None, motion: Unicycle | None = None, curvature: Bins | None = None
) -> Language:
    """Acceleration and curvature tokens in turn (Alpamayo-R1, arXiv 2511.00088), `<i0>` and on: 64
    steps of 0.1 s.

    Args:
        bins: of the accelerations, and of the curvatures unless `curvature` has their own.
        motion: the steps, and the means and deviations that the checkpoint was trained with.
    """
    motion = motion or Unicycle(acceleration_std=1.0, curvature_std=0.02)
    bins = bins or Bins(pattern="<i{}>", count=768, low=-10.0, high=10.0)
    slots = {name: bins if name[0] == "a" else curvature or bins for name in motion.slots}
    return _alone("alpamayo", motion, "".join(f"<{name}>" for name in motion.slots), slots)


def autovla(moves: NDArray[np.floating], pattern: str = "<action_{}>") -> Language:
    """Ten action tokens of 0.5 s (AutoVLA, arXiv 2506.13757).

    Args:
        moves: [M, 3] the codebook: m forward, m left, rad to the left.
    """
    rounded = [(float(x), float(y), float(turn)) for x, y, turn in np.round(moves, 6)]
    motion = Codebook(moves=tuple(rounded))
    slot = Bins(pattern=pattern, count=len(rounded), low=0.0, high=len(rounded) - 1.0)
    text = "".join(f"<{name}>" for name in motion.slots)
    return _alone("autovla", motion, text, dict.fromkeys(motion.slots, slot))


def _alone(
    name: str,
    motion: Waypoints | SpeedCurvature | Unicycle | Codebook,
    template: str,
    slots: dict[str, Slot] | dict[str, Number] | dict[str, Bins],
) -> Language:
    section = Section(name="trajectory", template=template, slots=dict(slots))
    return Language(name=name, motion=motion, sections=(section,))
