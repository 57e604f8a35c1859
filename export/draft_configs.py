"""What a drafter's config.json says, checked against the target: DFlash, DFlare, EAGLE-3."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from export.checkpoint import Checkpoint, CheckpointError
from export.configs import (
    Qwen3Config,
    check_architecture,
    decoder_fields,
    unsupported,
    validated,
)
from runtime.bundle import Size


class BlockDrafterConfig(Qwen3Config):
    """A block drafter: a Qwen3-style stack that reads target taps.

    Attributes:
        block: rows of a block, the anchor included.
        mask_token: stands where a token is to be drafted.
        taps: 0-based target blocks whose output residual is read.
        scaffold_in_block: fixed tokens stand in the block as themselves.
        markov_rank: of the head that adds W2 W1[token before] to a slot's logits (DSpark, arXiv
            2607.05147); 0 for none.
    """

    block: int = Field(gt=1, le=1 << 10)
    mask_token: int = Field(ge=0)
    taps: tuple[int, ...] = Field(min_length=1)
    scaffold_in_block: bool = False
    markov_rank: int = Field(default=0, ge=0, le=1 << 12)


class DFlashConfig(BlockDrafterConfig):
    """DFlash (arXiv 2602.06036): one projection of all taps is every layer's context."""


class DFlareConfig(BlockDrafterConfig):
    """DFlare (arXiv 2606.02091): every layer mixes the taps by weights of its own.

    Attributes:
        fusion_softmax: a layer's weights are a softmax; else they are used as they are.
        heterogeneous_kv: context rows have Wk and Wv of their own; else they share the block's.
        fusion_fc: a linear map [d, d], shared by the layers, follows the mixture.
    """

    fusion_softmax: bool = True
    heterogeneous_kv: bool = True
    fusion_fc: bool = False


class Eagle3Config(Qwen3Config):
    """EAGLE-3 (arXiv 2503.01840): one layer that drafts a token a pass; `layers` is 1.

    Attributes:
        draft_vocab: Vd, of the drafter's own head.
        taps: 0-based target blocks whose output residual is read.
        depth: drafts in a row that it was trained for.
        scaffold_runs: fixed tokens are passed with the token before them.
        qk_norm: RMS norm of query and key heads.
    """

    draft_vocab: Size
    taps: tuple[int, ...] = Field(min_length=1)
    depth: int = Field(gt=0, lt=1 << 10)
    scaffold_runs: bool = False
    qk_norm: bool = False


DrafterConfig = BlockDrafterConfig | Eagle3Config


# as the checkpoints name them: DFlare's is the name in AngelSlim, which trains it
_DRAFTERS: dict[str, type[BlockDrafterConfig]] = {
    "DFlashDraftModel": DFlashConfig,
    "QwenDFlareDraftModel": DFlareConfig,
}


# of SafeAILab's and SpecForge's checkpoints; the older ones are a LlamaForCausalLM with two heads
_EAGLE3 = "LlamaForCausalLMEagle3"


def drafter_config(checkpoint: Checkpoint, target: Qwen3Config) -> DrafterConfig:
    """The sizes of a drafter's checkpoint that drafts for this target.

    Raises:
        CheckpointError: another architecture, an unknown option, or sizes that don't fit.
    """
    name = check_architecture(checkpoint, *_DRAFTERS, _EAGLE3)
    if name == _EAGLE3:
        return _eagle3_config(checkpoint, target)
    return _block_drafter_config(checkpoint, target, _DRAFTERS[name])


def _block_drafter_config(
    checkpoint: Checkpoint, target: Qwen3Config, kind: type[BlockDrafterConfig]
) -> BlockDrafterConfig:
    raw = checkpoint.config
    own = raw.get("dflash_config") or {}
    if not isinstance(own, Mapping):
        raise unsupported(checkpoint, "dflash_config", "an object")
    if raw.get("is_causal") or own.get("is_causal"):
        raise unsupported(checkpoint, "is_causal", "false: a block is read in both directions")
    if raw.get("markov_rank") and raw.get("markov_head_type", "vanilla") != "vanilla":
        raise unsupported(checkpoint, "markov_head_type", "vanilla")
    options = DFlareConfig.model_fields.keys() - BlockDrafterConfig.model_fields.keys()
    config = validated(
        checkpoint,
        kind,
        decoder_fields(checkpoint)
        | {
            "block": raw.get("block_size", own.get("block_size")),
            "mask_token": own.get("mask_token_id", raw.get("mask_token_id")),
            "taps": own.get("target_layer_ids", raw.get("target_layer_ids")),
            "scaffold_in_block": own.get("scaffold_in_block", raw.get("scaffold_in_block", False)),
            "markov_rank": raw.get("markov_rank", 0),
        }
        | {name: own[name] for name in options & own.keys()},
    )
    _check_fits(checkpoint, config, target, "target_layer_ids")
    _check_unused(checkpoint, config)
    if config.mask_token >= config.vocab:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: mask_token_id is outside of the vocabulary",
            expected=f"0..{config.vocab - 1}",
            found=str(config.mask_token),
            fix="set dflash_config.mask_token_id to the token the drafter was trained with",
        )
    return config


def _eagle3_config(checkpoint: Checkpoint, target: Qwen3Config) -> Eagle3Config:
    raw = checkpoint.config
    own = raw.get("eagle_config") or {}
    if not isinstance(own, Mapping):
        raise unsupported(checkpoint, "eagle_config", "an object")
    if own.get("use_aux_hidden_state") is False:
        raise unsupported(checkpoint, "eagle_config", "use_aux_hidden_state true")
    if raw.get("num_hidden_layers", 1) != 1:
        raise unsupported(checkpoint, "num_hidden_layers", "1, the layer of EAGLE-3")
    if raw.get("norm_before_residual"):
        raise unsupported(checkpoint, "norm_before_residual", "false")
    fields = decoder_fields(checkpoint)
    heads, width = fields["heads"], fields["width"]
    if fields["head_dim"] is None and isinstance(width, int) and isinstance(heads, int) and heads:
        fields["head_dim"] = width // heads  # Llama's rule
    config = validated(
        checkpoint,
        Eagle3Config,
        fields
        | {
            "draft_vocab": raw.get("draft_vocab_size", raw.get("vocab_size")),
            "taps": own.get("eagle_aux_hidden_state_layer_ids", _eagle3_taps(target.layers)),
            "depth": raw.get("ttt_length", 7),
            "scaffold_runs": raw.get("scaffold_runs", False),
            "qk_norm": "midlayer.self_attn.q_norm.weight" in checkpoint.tensors,
        },
    )
    _check_fits(checkpoint, config, target, "eagle_aux_hidden_state_layer_ids")
    if config.draft_vocab > config.vocab:
        raise unsupported(checkpoint, "draft_vocab_size", f"at most vocab_size, {config.vocab}")
    return config


def _eagle3_taps(layers: int) -> tuple[int, ...]:
    """Low, middle and high, where a checkpoint doesn't say: the rule of SpecForge's training."""
    return (1, layers // 2 - 1, layers - 4)


def _check_fits(
    checkpoint: Checkpoint, config: DrafterConfig, target: Qwen3Config, taps: str
) -> None:
    """Insist on the target's width and vocabulary, and on taps that it has; `taps` is their key."""
    if config.width != target.width or config.vocab != target.vocab:
        raise CheckpointError(
            f"{checkpoint.folder} does not fit the target",
            expected=f"hidden_size {target.width} and vocab_size {target.vocab}",
            found=f"hidden_size {config.width} and vocab_size {config.vocab}",
            fix="export a drafter that was trained for this target",
        )
    if not all(0 <= tap < target.layers for tap in config.taps):
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: {taps} don't fit the target",
            expected=f"blocks 0..{target.layers - 1}",
            found=str(list(config.taps)),
            fix="export a drafter that was trained for this target",
        )


def _check_unused(checkpoint: Checkpoint, config: BlockDrafterConfig) -> None:
    """Refuse weights that the config leaves out: a drafter without them is another drafter."""
    separate = isinstance(config, DFlareConfig) and config.heterogeneous_kv
    fc = not isinstance(config, DFlareConfig) or config.fusion_fc
    unused = {
        "markov_head.": ("markov_rank", bool(config.markov_rank)),
        "_proj_target.": ("dflash_config.heterogeneous_kv", separate),
        "layer_fusion_weights": ("architectures", isinstance(config, DFlareConfig)),
        "fc.": ("dflash_config.fusion_fc", fc),
    }
    for part, (key, used) in unused.items():
        found = [name for name in sorted(checkpoint.tensors) if part in name]
        if found and not used:
            raise CheckpointError(
                f"{checkpoint.folder / 'config.json'}: {key} does not fit the weights",
                expected="a config that uses all of them",
                found=f"no use for {found[0]}",
                fix="use the config.json that was saved with these weights",
            )
