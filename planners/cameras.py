"""From an observation with pictures to the prompt of a driving VLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planners.camera_prompt import PROMPT, CameraPrompt
from planners.chat import CHAT_TEMPLATE, ChatTemplate
from planners.images import patches
from planners.mrope import positions
from planners.observation import Observation
from planners.tokens import Tokenizer
from runtime.bundle import Bundle
from runtime.errors import BundleError, SlipstreamError
from runtime.prompt import Patches, Prompt
from runtime.vision_dims import CameraDims

Bytes = NDArray[np.uint8]


class CameraPrompts:
    """Writes a bundle's prompts: its chat template, `prompt.json`, and its cameras' pictures.

    Raises:
        BundleError: the bundle has no chat template, or `prompt.json` does not fit its cameras.
    """

    def __init__(self, bundle: Bundle, tokenizer: Tokenizer) -> None:
        manifest = bundle.manifest
        self.vision, self._tokenizer = manifest.vision, tokenizer
        self._chat = ChatTemplate(bundle.folder / CHAT_TEMPLATE)
        self._template = CameraPrompt.load(bundle.folder / PROMPT, self.vision)
        self._mrope = manifest.target.mrope
        self._cameras: Sequence[CameraDims] = self.vision.cameras if self.vision else ()
        self._videos = {camera.name for camera in self._cameras if camera.frames > 1}

    def pictures(self, observation: Observation) -> list[Bytes]:
        """Every camera's frames, oldest first, in the rig's order. A drive decodes them here.

        Raises:
            SlipstreamError: a camera is missing, or has another number of frames.
        """
        given: Mapping[str, Any] = observation.images or {}
        found: list[Bytes] = []
        for camera in self._cameras:
            if camera.name not in given:
                raise SlipstreamError(
                    f"the observation has no pictures of camera {camera.name}",
                    expected=", ".join(each.name for each in self._cameras),
                    found=", ".join(map(str, given)) or "no pictures",
                    fix="give Observation.images a picture of each camera of the bundle",
                )
            frames = given[camera.name]
            several = isinstance(frames, list | tuple) or getattr(frames, "ndim", 0) == 4
            frames = list(frames) if several else [frames]
            if len(frames) != camera.frames:
                raise SlipstreamError(
                    f"camera {camera.name} has another number of pictures",
                    expected=f"{camera.frames}, oldest first",
                    found=str(len(frames)),
                    fix="give as many frames as the bundle was exported for",
                )
            found += frames
        return found

    def patches(self, pictures: Sequence[Bytes]) -> Patches | None:
        """What the vision graph reads; None for a bundle without cameras.

        Raises:
            SlipstreamError: a picture of another size or type than the bundle was exported for.
        """
        return patches(pictures, self.vision) if self.vision else None

    def prompt(self, observation: Observation, cut: Patches | None) -> Prompt:
        """The prompt of an observation whose pictures are cut.

        Raises:
            BundleError: the chat template does not show every picture, or a text of `prompt.json`
                can't be written.
        """
        text = self._chat.render(self._template.messages(observation, self._videos))
        if self.vision is None:
            tokens = np.asarray(self._tokenizer.encode(text), np.int64)
            return Prompt(tokens)
        text, counts = self._placeholders(text)
        tokens = np.asarray(self._tokenizer.encode(text), np.int64)
        video = -1 if self.vision.video_token is None else self.vision.video_token
        at = np.flatnonzero(np.isin(tokens, (self.vision.image_token, video)))
        if len(at) != len(counts):
            raise self._unshown(len(counts), len(at))
        repeats = np.ones(len(tokens), np.int64)
        repeats[at] = counts
        tokens = np.repeat(tokens, repeats)
        places = positions(tokens, self.vision)[0] if self._mrope else None
        return Prompt(tokens, None if places is None else places.astype(np.int64), cut)

    def _placeholders(self, text: str) -> tuple[str, list[int]]:
        """The text with one token for each picture, and how many rows each picture has.

        Qwen3-VL takes a video apart in time, the seconds of each part in front of it.
        """
        assert self.vision is not None
        counts: list[int] = []
        for camera, rows in zip(self.vision.cameras, self.vision.tokens, strict=True):
            apart = self.vision.family == "qwen3_vl" and camera.frames > 1
            parts = camera.grid[0] if apart else 1
            counts += [rows // parts] * parts
            if apart:
                whole = self._video()
                if whole not in text:
                    raise self._unshown(len(self.vision.cameras), text.count(whole))
                # the mark keeps the next video's search from finding this one's parts
                text = text.replace(whole, self._in_time(camera).replace(whole, _MARK), 1)
        return text.replace(_MARK, self._video()) if counts else text, counts

    def _video(self) -> str:
        assert self.vision is not None
        assert self.vision.video_token is not None
        names = (self.vision.vision_start, self.vision.video_token, self.vision.vision_end)
        return self._tokenizer.decode(list(names))

    def _in_time(self, camera: CameraDims) -> str:
        """A video's parts: the mean time of the frames of each (the last one is repeated)."""
        assert self.vision is not None
        depth, last = self.vision.temporal_patch, camera.frames - 1
        frames = np.minimum(np.arange(camera.grid[0] * depth), last).reshape(-1, depth)
        seconds = (frames[:, 0] + frames[:, -1]) / self.vision.frame_rate / 2
        return "".join(f"<{s:.1f} seconds>{self._video()}" for s in seconds)

    def _unshown(self, expected: int, found: int) -> BundleError:
        return BundleError(
            f"{CHAT_TEMPLATE} does not show the bundle's pictures",
            expected=f"{expected} pictures",
            found=str(found),
            fix="save the VLM's own chat template beside its weights, and export it again",
        )


_MARK = "\0video\0"
