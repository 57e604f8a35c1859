"""What a vision graph was exported for: cameras, grids, and how pictures become patches."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from runtime.strict import Count, Size, Strict, Token

_Value = Annotated[float, Field(strict=True, ge=-1e3, le=1e3)]
Channel = tuple[_Value, _Value, _Value]  # red, green, blue
CameraName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$", max_length=64)]
CHANNELS = 3
_MOST_NUMBERS = 1 << 28  # in the patches of all pictures: 1 GB


class CameraDims(Strict):
    """One camera: `frames` pictures of it at a time, as a grid (t, h, w) of patches.

    One frame is an image to the target, more are a video.

    Attributes:
        width, height: pixels of a picture as the camera gives it, before the resize.
    """

    name: CameraName
    width: Size
    height: Size
    frames: Count = 1
    grid: tuple[Count, Count, Count]


class VisionDims(Strict):
    """The rig that the vision graph was exported for, and its preprocessing.

    Attributes:
        cameras: in the order of the prompt and of the graph's rows.
        patch, temporal_patch: pixels and frames in a patch.
        merge: merge x merge patches become one token.
        mean, std: of a channel of pixels in 0..1.
        image_token, video_token: stand in the prompt for one row of a picture, or of a video.
        frame_rate: Hz of a camera's frames, where there is more than one.
        tokens_per_second: steps of time positions a second of video (Qwen2.5-VL).
    """

    family: Literal["qwen2_5_vl", "qwen3_vl"]
    cameras: list[CameraDims] = Field(min_length=1, max_length=64)
    patch: Count
    temporal_patch: Count
    merge: Count
    mean: Channel
    std: Channel
    image_token: Token
    video_token: Token | None = None
    vision_start: Token
    vision_end: Token
    frame_rate: float = Field(default=2.0, ge=1e-3, le=1000)
    tokens_per_second: float | None = Field(default=None, gt=0, le=1e6)

    @property
    def tokens(self) -> list[int]:
        """Tokens of each camera: t * h * w / merge^2."""
        return [t * h * w // self.merge**2 for t, h, w in (each.grid for each in self.cameras)]

    @property
    def rows(self) -> int:
        """Rows of `patches`, all cameras together."""
        return sum(t * h * w for t, h, w in (each.grid for each in self.cameras))

    @property
    def patch_size(self) -> int:
        """Numbers in a row of `patches`: channels * temporal_patch * patch * patch."""
        return CHANNELS * self.temporal_patch * self.patch**2

    @model_validator(mode="after")
    def _grids_merge(self) -> VisionDims:
        for camera in self.cameras:
            t, h, w = camera.grid
            if h % self.merge or w % self.merge:
                raise ValueError(f"grid {h} x {w} of {camera.name} is no multiple of {self.merge}")
            if t != -(-camera.frames // self.temporal_patch):
                raise ValueError(f"{camera.name} has {camera.frames} frames and a grid of {t}")
        if (numbers := self.rows * self.patch_size) > _MOST_NUMBERS:
            raise ValueError(f"{numbers} numbers of patches, of at most {_MOST_NUMBERS}")
        names = [camera.name for camera in self.cameras]
        if len(set(names)) != len(names):
            raise ValueError(f"camera names repeat: {names}")
        return self

    @model_validator(mode="after")
    def _channels_vary(self) -> VisionDims:
        if not all(each >= 1e-6 for each in self.std):
            raise ValueError(f"std {self.std} is not above 0")
        return self
