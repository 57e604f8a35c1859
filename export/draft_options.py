"""What a drafter's config.json says, checked against its weights and the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from export.checkpoint import Checkpoint, CheckpointError
from export.configs import TargetConfig
from export.decoder_config import (
    DecoderConfig,
    check_architecture,
    check_full_attention,
    decoder_fields,
    unsupported,
    validated,
)
from export.draft_configs import (
    BlockDrafterConfig,
    DFlareConfig,
    DFlashConfig,
    DrafterConfig,
    Eagle3Config,
    LayerKind,
)
from export.draft_keys import check_block_keys, check_eagle3_keys, check_tensors
from export.shared_tables import shares_embedding, shares_head
from planners.drafter_layouts import (
    MASK_EMBEDDING,
    eagle3_layer,
    eagle3_taps,
    flat_config,
    layer_kinds,
)

# as the checkpoints name them: DFlare's is the name in AngelSlim, which trains it
_DRAFTERS: dict[str, type[BlockDrafterConfig]] = {
    "DFlashDraftModel": DFlashConfig,
    "QwenDFlareDraftModel": DFlareConfig,
}
# SpecForge's, AngelSlim's and SafeAILab's; the oldest call themselves a LlamaForCausalLM
_EAGLE3 = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "LlamaForCausalLM")


def drafter_config(
    checkpoint: Checkpoint, target: TargetConfig, weights: Checkpoint | None = None
) -> DrafterConfig:
    """The sizes and options of a drafter's checkpoint that drafts for this target.

    Args:
        weights: the target's checkpoint: a table that is the same in both is the target's;
            without it every table counts as the drafter's own.

    Raises:
        CheckpointError: another architecture, an unknown option, or sizes that don't fit.
    """
    checkpoint = replace(checkpoint, config=flat_config(checkpoint.config))
    name = check_architecture(checkpoint, *_DRAFTERS, *_EAGLE3)
    if name in _EAGLE3:
        config: DrafterConfig = _eagle3_config(checkpoint, target)
        taps = "eagle_aux_hidden_state_layer_ids"
    else:
        config = _block_config(checkpoint, target, weights, _DRAFTERS[name])
        taps = "target_layer_ids"
    _check_fits(checkpoint, config, target, taps)
    _check_unused(checkpoint, config)
    check_tensors(checkpoint)
    if config.draft_vocab is not None and config.draft_vocab > config.vocab:
        raise unsupported(checkpoint, "draft_vocab_size", f"at most vocab_size, {config.vocab}")
    own = not shares_embedding(checkpoint, target, weights)
    return config.model_copy(update={"own_embedding": own})


def _block_config(
    checkpoint: Checkpoint,
    target: TargetConfig,
    weights: Checkpoint | None,
    kind: type[BlockDrafterConfig],
) -> BlockDrafterConfig:
    raw = checkpoint.config
    own = raw.get("dflash_config") or {}
    if not isinstance(own, Mapping):
        raise unsupported(checkpoint, "dflash_config", "an object")
    check_block_keys(checkpoint, own)
    more = kind.model_fields.keys() - BlockDrafterConfig.model_fields.keys()
    config = validated(
        checkpoint,
        kind,
        decoder_fields(checkpoint, raw)
        | {
            "block": raw.get("block_size"),
            "mask_token": raw.get("mask_token_id"),
            "taps": raw.get("target_layer_ids"),
            "kinds": _kinds(checkpoint),
            "scaffold_in_block": raw.get("scaffold_in_block", False),
            "markov_rank": raw.get("markov_rank", 0),
            "embedding_scale": raw.get("input_embedding_scale", 1.0),
            "logit_scale": raw.get("output_multiplier", 1.0),
            "softcap": raw.get("final_logit_softcapping") or None,
            "qkv_bias": bool(raw.get("attention_bias")),
            "o_bias": bool(raw.get("attention_bias")),
            "draft_vocab": _own_vocabulary(checkpoint, target, weights),
            "mask_embedding": MASK_EMBEDDING in checkpoint.tensors,
        }
        | {name: raw[name] for name in more & raw.keys()},
    )
    _check_head(checkpoint, config)
    if config.mask_token >= config.vocab:
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: mask_token_id is outside of the vocabulary",
            expected=f"0..{config.vocab - 1}",
            found=str(config.mask_token),
            fix="set mask_token_id to the token that the drafter was trained with",
        )
    return config


def _kinds(checkpoint: Checkpoint) -> tuple[LayerKind, ...]:
    layers = checkpoint.config.get("num_hidden_layers")
    try:
        return tuple(layer_kinds(checkpoint.config, layers if type(layers) is int else 0))
    except ValueError as error:
        expected = {
            "layer_types": "full_attention or sliding_attention for each layer",
            "sliding_window": "a whole number of positions above 0",
            "is_causal": "true, false or null",
            "use_sliding_window": "layer_types beside it, which say what slides",
        }
        raise unsupported(checkpoint, str(error), expected[str(error)]) from error


def _own_vocabulary(
    checkpoint: Checkpoint, target: TargetConfig, weights: Checkpoint | None
) -> Any:
    """Vd of the drafter's own head; None where there is none, or it is a copy of the target's."""
    reduced = checkpoint.config.get("draft_vocab_size")
    if "lm_head.weight" in checkpoint.tensors:
        shared = shares_head(checkpoint, target, weights)
        return None if shared else reduced or checkpoint.config.get("vocab_size")
    if reduced not in (None, target.vocab):
        raise unsupported(checkpoint, "draft_vocab_size", "lm_head.weight in the checkpoint")
    return None


def _check_head(checkpoint: Checkpoint, config: BlockDrafterConfig) -> None:
    if config.softcap is not None and config.draft_vocab is None:
        key = "final_logit_softcapping"
        raise unsupported(
            checkpoint, key, "none, or a head of its own in the checkpoint", {key: config.softcap}
        )
    if config.markov_rank and config.draft_vocab not in (None, config.vocab):
        raise unsupported(checkpoint, "draft_vocab_size", "the whole vocabulary beside markov_rank")


def _eagle3_config(checkpoint: Checkpoint, target: TargetConfig) -> Eagle3Config:
    raw = checkpoint.config
    own = raw.get("eagle_config") or {}
    if not isinstance(own, Mapping):
        raise unsupported(checkpoint, "eagle_config", "an object")
    if own.get("use_aux_hidden_state") is False:
        raise unsupported(checkpoint, "eagle_config", "use_aux_hidden_state true")
    check_eagle3_keys(checkpoint, own)
    if raw.get("num_hidden_layers", 1) != 1:
        raise unsupported(checkpoint, "num_hidden_layers", "1, the layer of EAGLE-3")
    check_full_attention(checkpoint, raw)
    fields = decoder_fields(checkpoint, raw)
    heads, width = fields["heads"], fields["width"]
    if fields["head_dim"] is None and isinstance(width, int) and isinstance(heads, int) and heads:
        fields["head_dim"] = width // heads  # Llama's rule
    layer = eagle3_layer(checkpoint.tensors)
    return validated(
        checkpoint,
        Eagle3Config,
        fields
        | {
            "layers": 1,
            "kv_heads": fields["kv_heads"] or heads,
            "draft_vocab": raw.get("draft_vocab_size") or raw.get("vocab_size"),
            "taps": eagle3_taps(raw, target.layers),
            "depth": raw.get("ttt_length", 7),
            "scaffold_runs": raw.get("scaffold_runs", False),
            "norm_before_residual": raw.get("norm_before_residual", False),
            "layer": layer,
            "qk_norm": f"{layer}.self_attn.q_norm.weight" in checkpoint.tensors,
            "qkv_bias": bool(raw.get("attention_bias")),
            "o_bias": bool(raw.get("attention_bias")),
        },
    )


def _check_fits(
    checkpoint: Checkpoint, config: DrafterConfig, target: DecoderConfig, taps: str
) -> None:
    """Insist on the target's width and vocabulary, and on taps that it has; `taps` is their key."""
    if config.width != target.width or config.vocab != target.vocab:
        raise CheckpointError(
            f"{checkpoint.folder} does not fit the target",
            expected=f"hidden_size {target.width} and vocab_size {target.vocab}",
            found=f"hidden_size {config.width} and vocab_size {config.vocab}",
            fix="export a drafter that was trained for this target",
        )
    if checkpoint.config.get("target_hidden_size") not in (None, target.width):
        raise unsupported(checkpoint, "target_hidden_size", f"the target's width {target.width}")
    if not all(0 <= tap < target.layers for tap in config.taps):
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: {taps} don't fit the target",
            expected=f"blocks 0..{target.layers - 1}",
            found=str(list(config.taps)),
            fix="export a drafter that was trained for this target",
        )


def _check_unused(checkpoint: Checkpoint, config: DrafterConfig) -> None:
    """Refuse weights that the config leaves out: a drafter without them is another drafter."""
    block = config if isinstance(config, BlockDrafterConfig) else None
    flare = config if isinstance(config, DFlareConfig) else None
    unused = {
        "markov_head.": ("markov_rank", block is not None and block.markov_rank > 0),
        "_proj_target.": ("heterogeneous_kv", flare is not None and flare.heterogeneous_kv),
        "layer_fusion_weights": ("architectures", flare is not None),
        MASK_EMBEDDING: ("architectures", block is not None),
        "fc.": ("fusion_fc", flare is None or flare.fusion_fc),
        "_proj.bias": ("attention_bias", config.qkv_bias),
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
