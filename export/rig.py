"""The rig that a VLM is exported for: each camera's grid, by the checkpoint's own processor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from export.checkpoint import Checkpoint, CheckpointError
from export.resize import smart_resize, smart_resize_video
from export.vision_configs import FAMILIES, TOKENS, VisionConfig, invalid, is_vlm, vision_config
from planners.small_files import exists, small_file
from runtime.bundle import CameraDims, VisionDims
from runtime.errors import SlipstreamError
from runtime.json_text import parsed


@dataclass(frozen=True)
class Camera:
    """A camera of the rig: name, and the pixels of its pictures."""

    name: str
    width: int
    height: int


@dataclass(frozen=True)
class RigOptions:
    """The rig that a bundle is exported for.

    Attributes:
        cameras: in the order of the prompt.
        frames: pictures of each camera in a plan, oldest first; 1 is an image, more are a video.
        frame_rate: Hz of these frames.
        min_pixels, max_pixels: instead of the processor's bounds; of Qwen3-VL videos, they bound
            all frames together.
    """

    cameras: Sequence[Camera]
    frames: int = 1
    frame_rate: float = 2.0
    min_pixels: int | None = None
    max_pixels: int | None = None


@dataclass(frozen=True)
class Vision:
    """A target's tower, and the rig that it is exported for."""

    config: VisionConfig
    dims: VisionDims


def vision_of(
    checkpoint: Checkpoint, width: int, options: RigOptions, vocab: int | None = None
) -> Vision:
    """The tower of a target whose text decoder is `width` wide and has `vocab` tokens, for a rig.

    Raises:
        SlipstreamError: the target has no tower, or one that doesn't fit it or the rig.
    """
    if not is_vlm(checkpoint):
        raise SlipstreamError(
            f"{checkpoint.folder} takes no pictures",
            expected=f"an architecture with a vision tower: {', '.join(FAMILIES)}",
            found=str(checkpoint.config.get("architectures")),
            fix="leave out --camera",
        )
    config = vision_config(checkpoint)
    if config.out_width != width:
        raise invalid(checkpoint, "vision_config.out_hidden_size", str(width), config.out_width)
    if vocab is not None:
        _check_tokens(checkpoint, config, vocab)
    return Vision(config, rig(checkpoint, config, options))


def _check_tokens(checkpoint: Checkpoint, config: VisionConfig, vocab: int) -> None:
    """Insist that what stands for pictures are different tokens of the text decoder."""
    found = {key: getattr(config, name) for name, key in TOKENS.items()}
    for key, token in found.items():
        if token >= vocab or list(found.values()).count(token) > 1:
            raise invalid(checkpoint, key, f"a token of its own, 0..{vocab - 1}", token)


def rig(checkpoint: Checkpoint, config: VisionConfig, options: RigOptions) -> VisionDims:
    """The manifest's vision part: each camera's grid after the processor's resize.

    Raises:
        SlipstreamError: no camera, a size that can't be resized, or a preprocessor config that is
            missing or asks for what `planners.images` does not do.
    """
    if not options.cameras:
        raise SlipstreamError(
            f"{checkpoint.folder} is a VLM, and no camera is named",
            expected="the size of each camera's pictures",
            found="no --camera",
            fix="slipstream export ... --camera front=1280x720, once for each camera",
        )
    names = [camera.name for camera in options.cameras]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SlipstreamError(
            f"two cameras are called {twice[0]}",
            expected="a name of its own for each --camera",
            found=", ".join(names),
            fix="slipstream export ... --camera front=1280x720 --camera left=1280x720",
        )
    said, place = _processor(checkpoint.folder, video=options.frames > 1)
    _check_steps(said, place, config)
    bounds = _bounds(said, place, options)
    cameras = [_camera(each, config, options, bounds) for each in options.cameras]
    try:
        return VisionDims.model_validate(
            {
                "family": config.family,
                "cameras": cameras,
                "patch": config.patch,
                "temporal_patch": config.temporal_patch,
                "merge": config.merge,
                "mean": said.get("image_mean"),
                "std": said.get("image_std"),
                "image_token": config.image_token,
                "video_token": config.video_token,
                "vision_start": config.vision_start,
                "vision_end": config.vision_end,
                "frame_rate": options.frame_rate,
                "tokens_per_second": config.tokens_per_second,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{place} does not fit: {where or 'the whole'} is not valid"
        raise SlipstreamError(
            "--frame-rate is not valid" if where == "frame_rate" else what,
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
            fix="use the processor that was saved with the weights",
        ) from error


def _camera(
    camera: Camera, config: VisionConfig, options: RigOptions, bounds: tuple[int, int]
) -> CameraDims:
    factor = config.patch * config.merge
    time = -(-options.frames // config.temporal_patch)
    if config.family == "qwen3_vl" and options.frames > 1:
        height, width = smart_resize_video(
            options.frames, camera.height, camera.width, config.temporal_patch, factor, *bounds
        )
    else:
        height, width = smart_resize(camera.height, camera.width, factor, *bounds)
    try:
        return CameraDims(
            name=camera.name,
            width=camera.width,
            height=camera.height,
            frames=options.frames,
            grid=(time, height // config.patch, width // config.patch),
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise SlipstreamError(
            f"--camera {camera.name}={camera.width}x{camera.height} is not valid",
            expected=f"{first['loc'][0]}: {first['msg']}",
            found=repr(first.get("input"))[:80],
            fix="--camera NAME=WIDTHxHEIGHT, and --max-pixels for pictures that are too large",
        ) from error


_Json = dict[str, Any]


def _processor(folder: Path, video: bool) -> tuple[_Json, Path]:
    """The image or video processor's config, and its file.

    Newer folders keep both in processor_config.json; older ones have no video processor, and the
    image processor's values stand for it, as in transformers.
    """
    own = ["video_preprocessor_config.json"] if video else []
    for name in [*own, "preprocessor_config.json"]:
        if exists(folder / name):
            return _read(folder / name), folder / name
    both = folder / "processor_config.json"
    if exists(both):
        parts = _read(both)
        for key in ["video_processor", "image_processor"][not video :]:
            if isinstance(parts.get(key), dict):
                return parts[key], both
    raise CheckpointError(
        f"{folder} does not say how pictures become patches",
        expected=f"{folder / 'preprocessor_config.json'}",
        found="no such file",
        fix="copy it from the published checkpoint, or save the processor with save_pretrained",
    )


def _read(path: Path) -> _Json:
    try:
        content = parsed(small_file(path))
    except (OSError, ValueError) as error:
        content = str(error)
    if isinstance(content, dict):
        return content
    raise CheckpointError(
        f"{path} can't be read",
        expected="a JSON object",
        found=str(content)[:120],
        fix="copy or save the checkpoint again",
    )


def _check_steps(said: _Json, place: Path, config: VisionConfig) -> None:
    """Insist on the processor that `planners.images` is equal to."""
    wanted = {
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "resample": 3,  # bicubic
        "patch_size": config.patch,
        "temporal_patch_size": config.temporal_patch,
        "merge_size": config.merge,
    }
    optional = {"cap_pixels_per_frame": (None, False)}
    for key, value in wanted.items():
        if said.get(key, value) != value:
            raise _unlike(place, key, str(value), said[key])
    for key, values in optional.items():
        if said.get(key) not in values:
            raise _unlike(place, key, "false", said[key])
    factor = said.get("rescale_factor", 1 / 255)
    if not isinstance(factor, float) or not abs(factor * 255 - 1) <= 1e-6:  # NaN is neither
        raise _unlike(place, "rescale_factor", "1/255", factor)


def _bounds(said: _Json, place: Path, options: RigOptions) -> tuple[int, int]:
    """Fewest and most pixels of a resized picture."""
    size = said.get("size")
    sizes = size if isinstance(size, dict) else {}
    least = options.min_pixels or said.get("min_pixels") or sizes.get("shortest_edge")
    most = options.max_pixels or said.get("max_pixels") or sizes.get("longest_edge")
    found = least if least is not None else sizes.get("min_pixels")
    limit = most if most is not None else sizes.get("max_pixels")
    if not isinstance(found, int) or not isinstance(limit, int) or not 0 < found <= limit:
        raise CheckpointError(
            f"{place}: the bounds of a picture's pixels are not valid",
            expected="size.shortest_edge and size.longest_edge (or min_pixels and max_pixels)",
            found=f"{found} and {limit}",
            fix="pass --min-pixels and --max-pixels",
        )
    return found, limit


def _unlike(place: Path, key: str, expected: str, found: object) -> CheckpointError:
    return CheckpointError(
        f"{place}: {key} has a value that can't be exported",
        expected=expected,
        found=repr(found)[:80],
        fix="export a checkpoint whose processor is Qwen2.5-VL's or Qwen3-VL's",
    )
