"""What a checkpoint's config.json says, checked: the target, and what drafters share with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from export.checkpoint import Checkpoint, CheckpointError
from runtime.bundle import Count, Size


class Qwen3Config(BaseModel):
    """Sizes of a Qwen3 decoder (arXiv 2505.09388), as transformers writes them.

    Attributes:
        eps: of every RMSNorm.
        theta: RoPE base.
        tied: the head is the embedding table.
    """

    model_config = ConfigDict(frozen=True)

    layers: Count
    width: Size
    heads: Count
    kv_heads: Count
    head_dim: Size = Field(multiple_of=2)
    intermediate: Size
    vocab: Size
    eps: float = Field(gt=0, allow_inf_nan=False)
    theta: float = Field(gt=0, allow_inf_nan=False)
    max_position: Size
    tied: bool = False

    @model_validator(mode="after")
    def _heads_divide(self) -> Qwen3Config:
        if self.heads % self.kv_heads:
            raise ValueError(f"a multiple of {self.kv_heads} key/value heads")
        return self

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.heads // self.kv_heads


def target_config(checkpoint: Checkpoint) -> Qwen3Config:
    """The sizes of a Qwen3ForCausalLM checkpoint.

    Raises:
        CheckpointError: another architecture, or an option that the graphs don't have.
    """
    check_architecture(checkpoint, "Qwen3ForCausalLM")
    return validated(checkpoint, Qwen3Config, decoder_fields(checkpoint))


def tap_rule(layers: int, count: int = 5) -> tuple[int, ...]:
    """Blocks that DFlash taps: evenly from 1 to layers-3 (arXiv 2602.06036, its code)."""
    if layers < 5 or count == 1:
        return (layers // 2,)
    count = min(count, layers - 3)
    return tuple(round(1 + i * (layers - 4) / max(count - 1, 1)) for i in range(count))


_Config = TypeVar("_Config", bound=Qwen3Config)


def check_architecture(checkpoint: Checkpoint, *known: str) -> str:
    """The checkpoint's architecture, one of the known ones."""
    found = checkpoint.config.get("architectures")
    if found not in [[name] for name in known]:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: unknown architecture",
            expected=" or ".join(f'"architectures": ["{name}"]' for name in known),
            found=str(found),
            fix="slipstream exports a Qwen3 target and a DFlash, DFlare or EAGLE-3 drafter",
        )
    return str(found[0])


def decoder_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields of `Qwen3Config`, not validated yet; raises CheckpointError for an option."""
    raw = checkpoint.config
    if raw.get("hidden_act", "silu") != "silu":
        raise unsupported(checkpoint, "hidden_act", "silu")
    if raw.get("attention_bias"):
        raise unsupported(checkpoint, "attention_bias", "false")
    if raw.get("use_sliding_window") or "sliding_attention" in str(raw.get("layer_types")):
        raise unsupported(checkpoint, "use_sliding_window", "full attention in every layer")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise unsupported(checkpoint, "rope_parameters", "an object")
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise unsupported(checkpoint, "rope_parameters", "rope_type default")
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
        "max_position": raw.get("max_position_embeddings"),
        "tied": raw.get("tie_word_embeddings", False),
    }


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
    "mask_token": "dflash_config.mask_token_id",
    "taps": "dflash_config.target_layer_ids",
    "scaffold_in_block": "dflash_config.scaffold_in_block",
    "markov_rank": "markov_rank",
    "draft_vocab": "draft_vocab_size",
    "depth": "ttt_length",
    "fusion_softmax": "dflash_config.fusion_softmax",
    "heterogeneous_kv": "dflash_config.heterogeneous_kv",
    "fusion_fc": "dflash_config.fusion_fc",
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
            found=repr(fields.get(field)),
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


def unsupported(checkpoint: Checkpoint, key: str, expected: str) -> CheckpointError:
    """The error for an option that the graphs don't have."""
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {key} has a value that can't be exported",
        expected=expected,
        found=repr(checkpoint.config.get(key)),
        fix="export a checkpoint without this option",
    )
