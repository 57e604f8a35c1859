"""What a checkpoint's config.json says, checked: Qwen3 targets and DFlash drafters."""

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


class DFlashConfig(Qwen3Config):
    """A DFlash drafter (arXiv 2602.06036): a Qwen3-style stack that reads target taps.

    Attributes:
        block: rows of a block, the anchor included.
        mask_token: stands where a token is to be drafted.
        taps: 0-based target blocks whose output residual is read.
        scaffold_in_block: fixed tokens stand in the block as themselves.
    """

    block: int = Field(gt=1, le=1 << 10)
    mask_token: int = Field(ge=0)
    taps: tuple[int, ...] = Field(min_length=1)
    scaffold_in_block: bool = False


def target_config(checkpoint: Checkpoint) -> Qwen3Config:
    """The sizes of a Qwen3ForCausalLM checkpoint.

    Raises:
        CheckpointError: another architecture, or an option that the graphs don't have.
    """
    _check_architecture(checkpoint, "Qwen3ForCausalLM")
    return _validated(checkpoint, Qwen3Config, _decoder_fields(checkpoint))


def drafter_config(checkpoint: Checkpoint, target: Qwen3Config) -> DFlashConfig:
    """The sizes of a DFlash checkpoint that drafts for this target.

    Raises:
        CheckpointError: another architecture, an unknown option, or sizes that don't fit.
    """
    _check_architecture(checkpoint, "DFlashDraftModel")
    raw = checkpoint.config
    own = raw.get("dflash_config") or {}
    if not isinstance(own, Mapping):
        raise _unsupported(checkpoint, "dflash_config", "an object")
    if raw.get("is_causal") or own.get("is_causal"):
        raise _unsupported(checkpoint, "is_causal", "false: a block is read in both directions")
    config = _validated(
        checkpoint,
        DFlashConfig,
        _decoder_fields(checkpoint)
        | {
            "block": raw.get("block_size", own.get("block_size")),
            "mask_token": own.get("mask_token_id", raw.get("mask_token_id")),
            "taps": own.get("target_layer_ids", raw.get("target_layer_ids")),
            "scaffold_in_block": own.get("scaffold_in_block", raw.get("scaffold_in_block", False)),
        },
    )
    if config.width != target.width or config.vocab != target.vocab:
        raise CheckpointError(
            f"{checkpoint.folder} does not fit the target",
            expected=f"hidden_size {target.width} and vocab_size {target.vocab}",
            found=f"hidden_size {config.width} and vocab_size {config.vocab}",
            fix="export a drafter that was trained for this target",
        )
    if not all(0 <= tap < target.layers for tap in config.taps):
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: target_layer_ids don't fit the target",
            expected=f"blocks 0..{target.layers - 1}",
            found=str(list(config.taps)),
            fix="export a drafter that was trained for this target",
        )
    if config.mask_token >= config.vocab:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: mask_token_id is outside of the vocabulary",
            expected=f"0..{config.vocab - 1}",
            found=str(config.mask_token),
            fix="set dflash_config.mask_token_id to the token the drafter was trained with",
        )
    return config


def tap_rule(layers: int, count: int = 5) -> tuple[int, ...]:
    """Blocks that DFlash taps: evenly from 1 to layers-3 (arXiv 2602.06036, its code)."""
    if layers < 5 or count == 1:
        return (layers // 2,)
    count = min(count, layers - 3)
    return tuple(round(1 + i * (layers - 4) / max(count - 1, 1)) for i in range(count))


_Config = TypeVar("_Config", bound=Qwen3Config)


def _check_architecture(checkpoint: Checkpoint, wanted: str) -> None:
    found = checkpoint.config.get("architectures")
    if found != [wanted]:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: unknown architecture",
            expected=f'"architectures": ["{wanted}"]',
            found=str(found),
            fix="slipstream exports a Qwen3 target and a DFlash drafter (--draft)",
        )


def _decoder_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    raw = checkpoint.config
    if raw.get("hidden_act", "silu") != "silu":
        raise _unsupported(checkpoint, "hidden_act", "silu")
    if raw.get("attention_bias"):
        raise _unsupported(checkpoint, "attention_bias", "false")
    if raw.get("use_sliding_window") or "sliding_attention" in str(raw.get("layer_types")):
        raise _unsupported(checkpoint, "use_sliding_window", "full attention in every layer")
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise _unsupported(checkpoint, "rope_parameters", "an object")
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise _unsupported(checkpoint, "rope_parameters", "rope_type default")
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
}


def _validated(checkpoint: Checkpoint, kind: type[_Config], fields: dict[str, Any]) -> _Config:
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


def _unsupported(checkpoint: Checkpoint, key: str, expected: str) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {key} has a value that can't be exported",
        expected=expected,
        found=repr(checkpoint.config.get(key)),
        fix="export a checkpoint without this option",
    )
