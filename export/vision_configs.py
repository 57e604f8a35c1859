"""What a VLM checkpoint's config.json says of its vision tower, checked."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from export.checkpoint import Checkpoint, CheckpointError
from export.decoder_config import Theta
from runtime.strict import Count, Size, Token
from runtime.vision_dims import CHANNELS

Family = Literal["qwen2_5_vl", "qwen3_vl"]
FAMILIES: dict[str, Family] = {
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}
EPS = 1e-6  # of every norm in both towers; no config names it
_ACTIVATIONS = {"qwen2_5_vl": "silu", "qwen3_vl": "gelu_pytorch_tanh"}
_THETA = 10000.0  # of older configs, which don't name it
_READ = {
    "deepstack_visual_indexes",
    "depth",
    "fullatt_block_indexes",
    "hidden_act",
    "hidden_size",
    "in_channels",
    "in_chans",
    "intermediate_size",
    "num_heads",
    "num_position_embeddings",
    "out_hidden_size",
    "patch_size",
    "rope_parameters",
    "spatial_merge_size",
    "temporal_patch_size",
    "tokens_per_second",
    "window_size",
}
# of training, of the file's history, and of how others run the same network
_WITHOUT_EFFECT = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "dtype",
    "initializer_range",
    "model_type",
    "spatial_patch_size",  # says patch_size again
    "torch_dtype",
    "transformers_version",
}


Layers = Annotated[tuple[Annotated[int, Field(strict=True)], ...], Field(max_length=1 << 10)]


class VisionConfig(BaseModel):
    """A vision tower (Qwen2.5-VL: arXiv 2502.13923; Qwen3-VL: arXiv 2511.21631).

    Attributes:
        out_width: of a merged row: the text decoder's width.
        patch, window: pixels a side; no window where every layer is full.
        temporal_patch: frames in a patch.
        merge: merge x merge patches become one row.
        theta: RoPE base.
        full_layers: those that attend over a whole frame; the others stay in their window.
        position_side: rows and columns of the learned position grid; 0: there is none.
        deepstack: layers whose output goes into the text decoder too.
        tokens_per_second: steps of time positions a second of video.
    """

    model_config = ConfigDict(frozen=True)

    family: Family
    layers: Count
    width: Size
    heads: Count
    intermediate: Size
    out_width: Size
    patch: Count
    temporal_patch: Count
    merge: Count
    theta: Theta
    window: Count | None = None
    full_layers: Layers = ()
    position_side: int = Field(default=0, strict=True, ge=0, le=1 << 10)
    deepstack: Layers = ()
    tokens_per_second: float | None = Field(default=None, strict=True, gt=0, le=1e6)
    image_token: Token
    video_token: Token
    vision_start: Token
    vision_end: Token

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def window_units(self) -> int | None:
        """Merged rows on a side of a window; None without windows."""
        return self.window // self.merge // self.patch if self.window else None

    @model_validator(mode="after")
    def _sizes_fit(self) -> VisionConfig:
        if self.width % self.heads or self.head_dim % 4:
            raise ValueError(f"{self.heads} heads of {self.width} are no multiples of 4 wide")
        if self.window is not None and not self.window_units:
            raise ValueError(f"a window of {self.window} px holds no {self.merge * self.patch} px")
        for layer in self.full_layers + self.deepstack:
            if not 0 <= layer < self.layers:
                raise ValueError(f"layer {layer} of {self.layers}")
        return self


def is_vlm(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint has a vision tower that slipstream exports."""
    found = checkpoint.config.get("architectures")
    return isinstance(found, list) and len(found) == 1 and found[0] in FAMILIES


def vision_config(checkpoint: Checkpoint) -> VisionConfig:
    """The tower of a Qwen2.5-VL or Qwen3-VL checkpoint.

    Raises:
        CheckpointError: a key is missing or has a value that the graph doesn't have.
    """
    family = FAMILIES[str(checkpoint.config["architectures"][0])]
    raw = checkpoint.config.get("vision_config")
    if not isinstance(raw, Mapping):
        raise invalid(checkpoint, "vision_config", "an object", raw)
    _check_keys(checkpoint, raw)
    fixed = {"hidden_act": _ACTIVATIONS[family], "in_channels": CHANNELS, "in_chans": CHANNELS}
    for key, wanted in fixed.items():
        if raw.get(key, wanted) != wanted:
            raise invalid(checkpoint, f"vision_config.{key}", str(wanted), raw[key])
    rope = raw.get("rope_parameters") or {}
    if not isinstance(rope, Mapping) or rope.get("rope_type", "axial") != "axial":
        raise invalid(checkpoint, "vision_config.rope_parameters", "rope_type axial", rope)
    try:
        return VisionConfig(family=family, **_fields(family, raw, rope), **_tokens(checkpoint))
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "width"
        name = TOKENS.get(field, f"vision_config.{_KEYS.get(field, field)}")
        raise invalid(checkpoint, name, first["msg"], first.get("input")) from error


def _check_keys(checkpoint: Checkpoint, raw: Mapping[str, Any]) -> None:
    """A key that is not known might change what the tower computes, unless it is switched off."""
    for key in sorted(raw.keys() - _READ - _WITHOUT_EFFECT):
        if raw[key] not in (None, False, [], {}):
            raise CheckpointError(
                f"{checkpoint.folder / 'config.json'}: vision_config.{key} is unknown, and may "
                "change the result",
                expected=f"only keys that are understood: {', '.join(sorted(_READ))}",
                found=f"{key} = {raw[key]!r}"[:120],
                fix=f"if {key} changes nothing that the tower computes, take it out of config.json",
            )


_KEYS = {
    "layers": "depth",
    "width": "hidden_size",
    "heads": "num_heads",
    "intermediate": "intermediate_size",
    "out_width": "out_hidden_size",
    "patch": "patch_size",
    "temporal_patch": "temporal_patch_size",
    "merge": "spatial_merge_size",
    "window": "window_size",
    "full_layers": "fullatt_block_indexes",
    "deepstack": "deepstack_visual_indexes",
    "position_side": "num_position_embeddings",
    "theta": "rope_parameters",
}
TOKENS = {
    "image_token": "image_token_id",
    "video_token": "video_token_id",
    "vision_start": "vision_start_token_id",
    "vision_end": "vision_end_token_id",
}


def _fields(family: Family, raw: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any]:
    """Keys that a config may leave out have transformers' values."""
    common = ("layers", "width", "heads", "intermediate", "out_width", "patch")
    fields = {name: raw.get(_KEYS[name]) for name in common}
    fields["temporal_patch"] = raw.get("temporal_patch_size", 2)
    fields["merge"] = raw.get("spatial_merge_size", 2)
    fields["theta"] = rope.get("rope_theta", _THETA)
    if family == "qwen2_5_vl":
        fields["window"] = raw.get("window_size", 112)
        fields["full_layers"] = raw.get("fullatt_block_indexes", (7, 15, 23, 31))
        fields["tokens_per_second"] = raw.get("tokens_per_second", 4)
    else:
        places = raw.get("num_position_embeddings", 2304)
        # the published code takes the root's whole part, too
        whole = type(places) is int and places >= 0
        fields["position_side"] = isqrt(places) if whole else places
        fields["deepstack"] = raw.get("deepstack_visual_indexes", (8, 16, 24))
    return fields


def _tokens(checkpoint: Checkpoint) -> dict[str, Any]:
    return {name: checkpoint.config.get(key) for name, key in TOKENS.items()}


def invalid(checkpoint: Checkpoint, key: str, expected: str, found: object) -> CheckpointError:
    """The error for a key of config.json."""
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {key} is not valid",
        expected=expected,
        found=repr(found)[:120],
        fix="use the config.json that was saved with these weights",
    )
