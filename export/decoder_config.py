"""What every decoder's config.json says, checked: targets' and drafters' alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from export.checkpoint import Checkpoint, CheckpointError
from export.rope import RopeScaling, rope_parameters, rope_scaling
from runtime.strict import Count, Size

Theta = Annotated[float, Field(strict=True, gt=1, le=1e30)]  # fp32 holds its powers


class DecoderConfig(BaseModel):
    """Sizes and options of a dense decoder with RMS norms, RoPE, grouped queries and SwiGLU.

    Qwen3 (arXiv 2505.09388), Qwen2 (2407.10671), Llama 3 (2407.21783) and the drafters made like
    them differ in these fields alone.

    Attributes:
        eps: of every RMSNorm.
        theta: RoPE base.
        rope: how RoPE is stretched.
        tied: the head is the embedding table.
        qk_norm: RMS norm of query and key heads.
        qkv_bias, o_bias, mlp_bias: of the projections.
        mrope_section: frequencies that turn with time, height and width (Qwen2-VL, arXiv
            2409.12191); positions then have three rows.
        mrope_interleaved: the three take turns, t h w t h w ..., instead of standing in a row.
    """

    model_config = ConfigDict(frozen=True)

    layers: Count
    width: Size
    heads: Count
    kv_heads: Count
    head_dim: Size = Field(multiple_of=2)
    intermediate: Size
    vocab: Size
    eps: float = Field(strict=True, gt=0, lt=1)
    theta: Theta
    max_position: Size
    tied: bool = Field(default=False, strict=True)
    rope: RopeScaling = RopeScaling()
    qk_norm: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    mrope_section: tuple[int, int, int] | None = None
    mrope_interleaved: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> DecoderConfig:
        if self.heads % self.kv_heads:
            raise ValueError(f"a multiple of {self.kv_heads} key/value heads")
        return self

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.heads // self.kv_heads

    @property
    def rope_axes(self) -> tuple[int, ...]:
        """[D/2] the row of positions that each frequency turns with: 0 time, 1 height, 2 width."""
        half = self.head_dim // 2
        if self.mrope_section is None:
            return (0,) * half
        if not self.mrope_interleaved:
            return tuple(axis for axis in range(3) for _ in range(self.mrope_section[axis]))
        turns = [i % 3 for i in range(half)]
        # height and width have their section's number of turns; what is left over is time
        return tuple(a if i < 3 * self.mrope_section[a] else 0 for i, a in enumerate(turns))


_Config = TypeVar("_Config", bound=DecoderConfig)


def check_architecture(checkpoint: Checkpoint, *known: str) -> str:
    """The checkpoint's architecture, one of the known ones."""
    found = checkpoint.config.get("architectures")
    if found not in [[name] for name in known]:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: unknown architecture",
            expected=" or ".join(f'"architectures": ["{name}"]' for name in known),
            found=repr(found)[:200],
            fix="docs/checkpoints.md says which targets and drafters slipstream exports",
        )
    return str(found[0])


def decoder_fields(checkpoint: Checkpoint, raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `DecoderConfig` that every config names alike, not validated yet.

    Args:
        raw: the decoder's part of config.json.

    Raises:
        CheckpointError: an option that the graphs don't have.
    """
    if raw.get("hidden_act", "silu") != "silu":
        raise unsupported(checkpoint, "hidden_act", "silu", raw)
    scaling = rope_scaling(checkpoint, raw)
    rope = rope_parameters(raw)[1] or {}
    return {
        "layers": raw.get("num_hidden_layers"),
        "width": raw.get("hidden_size"),
        "heads": raw.get("num_attention_heads"),
        "kv_heads": raw.get("num_key_value_heads"),
        "head_dim": raw.get("head_dim"),
        "intermediate": raw.get("intermediate_size"),
        "vocab": raw.get("vocab_size"),
        "eps": raw.get("rms_norm_eps"),
        "theta": rope.get("rope_theta", raw.get("rope_theta")),
        "rope": scaling,
        "max_position": raw.get("max_position_embeddings"),
        "tied": raw.get("tie_word_embeddings", False),
    }


def check_full_attention(checkpoint: Checkpoint, raw: Mapping[str, Any]) -> None:
    """Insist that every layer sees all rows before it."""
    types = raw.get("layer_types") or []
    if not isinstance(types, list):
        raise unsupported(checkpoint, "layer_types", "a list of full_attention", raw)
    kinds = set(map(str, types)) - {"full_attention"}
    if raw.get("use_sliding_window") or kinds:
        key = "layer_types" if kinds else "use_sliding_window"
        raise unsupported(checkpoint, key, "full attention in every layer", raw)


_NAMES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
    "eps": "rms_norm_eps",
    "theta": "rope_theta",
    "max_position": "max_position_embeddings",
    "tied": "tie_word_embeddings",
    "block": "block_size",
    "mask_token": "mask_token_id",
    "taps": "target_layer_ids (eagle_aux_hidden_state_layer_ids)",
    "markov_rank": "markov_rank",
    "draft_vocab": "draft_vocab_size",
    "depth": "ttt_length",
}


def validated(checkpoint: Checkpoint, kind: type[_Config], fields: dict[str, Any]) -> _Config:
    """A config of these fields; raises CheckpointError that names the key in config.json."""
    try:
        config = kind(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "heads"
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: {_NAMES.get(field, field)} is not valid",
            expected=first["msg"],
            found=repr(fields.get(field))[:120],
            fix="use the config.json that was saved with these weights",
        ) from error
    if any(f"layers.{config.layers}." in name for name in checkpoint.tensors):
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: num_hidden_layers is not valid",
            expected="as many layers as there are weights for",
            found=f"{config.layers}, and weights of a layer more",
            fix="use the config.json that was saved with these weights",
        )
    return config


def unsupported(
    checkpoint: Checkpoint, key: str, expected: str, raw: Mapping[str, Any] | None = None
) -> CheckpointError:
    """The error for an option that the graphs don't have; `raw` is the part that holds the key."""
    raw = checkpoint.config if raw is None else raw
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {key} has a value that can't be exported",
        expected=expected,
        found=repr(raw.get(key))[:120],
        fix="export a checkpoint without this option",
    )
