"""What a target's config.json says, checked: its family, its options, and blocks to tap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from export.checkpoint import Checkpoint
from export.config_keys import check_keys
from export.decoder_config import (
    DecoderConfig,
    check_architecture,
    check_full_attention,
    decoder_fields,
    unsupported,
    validated,
)
from export.rope import rope_parameters

Family = Literal["qwen3", "qwen2", "llama", "qwen2_5_vl", "qwen3_vl"]
FAMILIES: dict[str, Family] = {
    "Qwen3ForCausalLM": "qwen3",
    "Qwen2ForCausalLM": "qwen2",
    "LlamaForCausalLM": "llama",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
}
_VLMS = ("qwen2_5_vl", "qwen3_vl")
_LONGEST_SECTION = 1 << 12  # frequencies; a damaged number must not fill the memory
_DEEPSTACK = (8, 16, 24)  # Qwen3-VL's, where vision_config doesn't say


class TargetConfig(DecoderConfig):
    """A target's decoder.

    Attributes:
        family: as `FAMILIES` names it.
        prefix: of the decoder's tensor names in the checkpoint.
        deepstack: the first blocks, after each of which features of pictures are added (Qwen3-VL).
    """

    family: Family = "qwen3"
    prefix: str = "model."
    deepstack: int = Field(default=0, ge=0)

    @property
    def vlm(self) -> bool:
        """Whether it has a vision tower, and positions of three rows."""
        return self.family in _VLMS


def target_config(checkpoint: Checkpoint) -> TargetConfig:
    """The sizes and options of a target's checkpoint.

    Raises:
        CheckpointError: another architecture, an option that the graphs don't have, or a key that
            is unknown.
    """
    family = FAMILIES[check_architecture(checkpoint, *FAMILIES)]
    vlm = family in _VLMS
    raw = text_part(checkpoint, vlm)
    check_keys(checkpoint, checkpoint.config, vlm=vlm)
    check_keys(checkpoint, raw, vlm=vlm)
    check_full_attention(checkpoint, raw)
    fields = decoder_fields(checkpoint, raw)
    heads, width = fields["heads"], fields["width"]
    normed = family in ("qwen3", "qwen3_vl")
    if not normed and fields["head_dim"] is None and _divides(heads, width):
        fields["head_dim"] = width // heads
    if family == "llama" and fields["kv_heads"] is None:
        fields["kv_heads"] = heads  # from before grouped queries
    biased = bool(raw.get("attention_bias"))
    fields |= {
        "family": family,
        "tied": checkpoint.config.get("tie_word_embeddings", False) or fields["tied"],
        "qk_norm": normed,
        "qkv_bias": biased or family in ("qwen2", "qwen2_5_vl"),
        "o_bias": biased and family not in ("qwen2", "qwen2_5_vl"),
        "mlp_bias": bool(raw.get("mlp_bias")) and family == "llama",
        "prefix": _text_prefix(checkpoint),
        **(_mrope_fields(checkpoint, raw, family) if vlm else {}),
    }
    if not vlm and "mrope_section" in (rope_parameters(raw)[1] or {}):
        raise unsupported(checkpoint, "rope_parameters", "no mrope_section: it is a VLM's", raw)
    config = validated(checkpoint, TargetConfig, fields)
    if config.mrope_section and not _sections_fit(config):
        half = config.head_dim // 2
        raise unsupported(checkpoint, "rope_scaling", f"an mrope_section of {half} in all", raw)
    return config


def text_part(checkpoint: Checkpoint, vlm: bool) -> Mapping[str, Any]:
    """What describes the decoder: the whole config, or a VLM's `text_config` where it has one."""
    text = checkpoint.config.get("text_config") if vlm else None
    if text is None:
        return checkpoint.config
    if not isinstance(text, Mapping):
        raise unsupported(checkpoint, "text_config", "an object")
    return text


def _divides(part: object, whole: object) -> bool:
    """Whether both are sizes, and `whole` is a multiple of `part`."""
    sizes = isinstance(part, int) and isinstance(whole, int) and part > 0
    return sizes and whole % part == 0  # type: ignore[operator]


def _text_prefix(checkpoint: Checkpoint) -> str:
    """VLMs keep the decoder under another name, depending on who saved them."""
    for prefix in ("model.language_model.", "language_model.model."):
        if f"{prefix}embed_tokens.weight" in checkpoint.tensors:
            return prefix
    return "model."


def _mrope_fields(checkpoint: Checkpoint, raw: Mapping[str, Any], family: Family) -> dict[str, Any]:
    found = rope_parameters(raw)[1] or {}
    sections = found.get("mrope_section", (16, 24, 24) if family == "qwen2_5_vl" else (24, 20, 20))
    numbers = isinstance(sections, list | tuple) and len(sections) == 3
    if not numbers or not all(type(n) is int and 0 <= n <= _LONGEST_SECTION for n in sections):
        raise unsupported(checkpoint, "rope_scaling", "mrope_section of three whole numbers", raw)
    interleaved = family == "qwen3_vl"
    if found.get("mrope_interleaved", interleaved) != interleaved:
        wanted = str(interleaved).lower()
        raise unsupported(checkpoint, "rope_scaling", f"mrope_interleaved {wanted}", raw)
    vision = checkpoint.config.get("vision_config")
    deep = _DEEPSTACK
    if isinstance(vision, Mapping):
        deep = vision.get("deepstack_visual_indexes", _DEEPSTACK)
    if not isinstance(deep, list | tuple):
        raise unsupported(
            checkpoint, "vision_config.deepstack_visual_indexes", "a list of blocks", vision
        )
    return {
        "mrope_section": tuple(sections),
        "mrope_interleaved": interleaved,
        "deepstack": len(deep) if family == "qwen3_vl" else 0,
    }


def _sections_fit(config: DecoderConfig) -> bool:
    half = config.head_dim // 2
    _, height, width = config.mrope_section or (0, 0, 0)
    if config.mrope_interleaved:
        return 3 * height - 2 < half + 1 and 3 * width - 1 < half + 1
    return len(config.rope_axes) == half


def tap_rule(layers: int, count: int = 5) -> tuple[int, ...]:
    """Blocks that DFlash taps: evenly from 1 to layers-3 (arXiv 2602.06036, its code)."""
    if layers < 5 or count == 1:
        return (layers // 2,)
    count = min(count, layers - 3)
    return tuple(round(1 + i * (layers - 4) / max(count - 1, 1)) for i in range(count))
