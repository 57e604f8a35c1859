"""What a planner with a chat template is asked, `prompt.json`: text, pictures, ego motion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from planners.chat import described, text_template
from planners.observation import PAST_STATES, RATE_HZ, Observation
from planners.prompt import COMMANDS, prompt_text
from planners.small_files import exists, small_file
from runtime.errors import BundleError
from runtime.json_text import model_of
from runtime.strict import One, Strict
from runtime.vision_dims import VisionDims

PROMPT = "prompt.json"
_FIX = "mend prompt.json beside the checkpoint (see docs/cameras.md) and export it again"


class TextPart(Strict):
    """Text; jinja expressions stand for the observation (see `variables`)."""

    text: str = Field(max_length=1 << 16)


class CameraPart(Strict):
    """The pictures of a camera."""

    camera: str


class CameraPrompt(Strict):
    """The messages. What changes least stands first: the trunk keeps it from frame to frame."""

    version: One = 1
    system: str | None = "You drive a vehicle. Plan its next five seconds."
    user: tuple[TextPart | CameraPart, ...] = Field(min_length=1, max_length=256)

    @classmethod
    def load(cls, path: Path, vision: VisionDims | None) -> CameraPrompt:
        """Read `prompt.json`; without one, ask with all cameras and the ego motion.

        Raises:
            BundleError: it can't be read, has unknown keys, or does not show each of the rig's
                cameras once and in order.
        """
        cameras = [camera.name for camera in vision.cameras] if vision else []
        if not exists(path):
            pictures = tuple(CameraPart(camera=name) for name in cameras)
            return cls(user=(*pictures, TextPart(text="{{ motion }}")))
        try:
            prompt = model_of(cls, small_file(path, 1 << 26))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the file"
            raise BundleError(
                f"{path}: {where} is not valid",
                expected=first["msg"],
                found=repr(first.get("input"))[:120],
                fix=_FIX,
            ) from error
        except (OSError, ValueError) as error:
            raise BundleError(
                f"{path} can't be read", expected="JSON text", found=str(error), fix=_FIX
            ) from error
        shown = [part.camera for part in prompt.user if isinstance(part, CameraPart)]
        if shown != cameras:
            raise BundleError(
                f"{path} does not show the bundle's cameras",
                expected=f"each once, in this order: {', '.join(cameras) or 'none'}",
                found=", ".join(shown) or "none",
                fix=_FIX,
            )
        for part in prompt.user:
            if isinstance(part, TextPart):
                text_template(part.text, str(path))
        return prompt

    def messages(self, observation: Observation, videos: set[str]) -> list[dict[str, Any]]:
        """The conversation in the chat templates' form.

        Args:
            videos: cameras that give more than one frame.

        Raises:
            BundleError: a text asks for what the observation has not.
        """
        known = variables(observation)
        parts: list[dict[str, str]] = []
        for part in self.user:
            if isinstance(part, TextPart):
                parts.append({"type": "text", "text": _written(part.text, known)})
            else:
                parts.append({"type": "video" if part.camera in videos else "image"})
        system = [{"role": "system", "content": self.system}] if self.system is not None else []
        return [*system, {"role": "user", "content": parts}]


def variables(observation: Observation) -> dict[str, Any]:
    """What a text may use: `command`, `speed` (m/s), `acceleration` (m/s²), `yaw_rate` (rad/s),
    `history` (16 states at 4 Hz, oldest first: t, x, y, heading, speed, acceleration, yaw_rate),
    and `motion`, all of it in the words of slipstream's own text planners."""
    o = observation
    columns = (o.headings, o.speeds, o.accelerations, o.yaw_rates)
    names = ("heading", "speed", "acceleration", "yaw_rate")
    history = [
        {"t": (i + 1 - PAST_STATES) / RATE_HZ, "x": float(x), "y": float(y)}
        | {name: float(column[i]) for name, column in zip(names, columns, strict=True)}
        for i, (x, y) in enumerate(o.positions)
    ]
    now = history[-1]
    return {
        "command": COMMANDS[o.intent],
        "motion": prompt_text(o),
        "history": history,
        **{name: now[name] for name in ("speed", "acceleration", "yaw_rate")},
    }


def _written(text: str, known: dict[str, Any]) -> str:
    try:
        return text_template(text, PROMPT).render(known)
    except Exception as error:  # a text may raise anything that its expressions do
        raise BundleError(
            f"a text of {PROMPT} can't be written",
            expected=f"expressions of {', '.join(sorted(known))}",
            found=described(error),
            fix=_FIX,
        ) from error
