"""Which keys and tensors of a drafter's checkpoint are understood; any other is an error.

An option that is left out gives another drafter: outputs stay right, but drafts silently get worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from export.checkpoint import Checkpoint, CheckpointError
from export.config_keys import check_keys
from export.decoder_config import unsupported
from export.rope import rope_parameters
from planners.drafter_layouts import BLOCK_OPTIONS


def _keys(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_SHARED = _keys(
    "draft_vocab_size embed_requires_grad mask_token_id num_target_layers target_hidden_size",
    "target_model_type",
)
_BLOCK = _SHARED | BLOCK_OPTIONS | {"dflash_config"}
_EAGLE3 = _SHARED | _keys(
    "eagle_aux_hidden_state_layer_ids eagle_config norm_before_residual qk_norm scaffold_runs",
    "ttt_length",
)
_OF_DFLASH = BLOCK_OPTIONS | {"causal", "swa_window_size", "use_swa"}
_OF_EAGLE = _keys("eagle_aux_hidden_state_layer_ids use_aux_hidden_state")
# not read, but one value of them is what the graphs compute
_ONLY: dict[str, Any] = {
    "attention_mode": "gqa",
    "is_neox_style": True,
    "markov_head_type": "vanilla",
    "projector_type": "dflash",
    "rope_is_neox_style": True,
}

_LINEAR = (
    r"(self_attn\.([qkvo]_proj|[kv]_proj_target)\.(weight|bias)|mlp\.(gate|up|down)_proj\.weight)"
)
_NORM = r"(input_layernorm|post_attention_layernorm|hidden_norm|self_attn\.[qk]_norm)\.weight"
_TENSORS = re.compile(
    rf"(layers\.\d+|midlayer)\.({_LINEAR}|{_NORM})"
    r"|(norm|hidden_norm|fc|lm_head|embed_tokens)\.weight|d2t|t2d|mask_embedding"
    r"|layer_fusion_weights|markov_head\.markov_w[12]\.weight"
    # of training, or what follows from the config
    r"|verifier_(norm|lm_head)\.weight|(.*\.)?rotary_emb\.inv_freq"
)


def check_block_keys(checkpoint: Checkpoint, own: Mapping[str, Any]) -> None:
    """Of DFlash and DFlare; `own` is their `dflash_config`."""
    _check(checkpoint, own, "dflash_config", _OF_DFLASH, _BLOCK)
    if (checkpoint.folder / "mask_embedding.pt").is_file():
        raise CheckpointError(
            f"{checkpoint.folder / 'mask_embedding.pt'} is pickled, and no pickle is ever loaded",
            expected="a tensor mask_embedding of shape [hidden_size] in model.safetensors",
            found="a file of torch.save",
            fix="load it in a safe place with torch.load(..., weights_only=True), and save it with "
            "the other weights with safetensors",
        )


def check_eagle3_keys(checkpoint: Checkpoint, own: Mapping[str, Any]) -> None:
    """Of EAGLE-3; `own` is its `eagle_config`."""
    _check(checkpoint, own, "eagle_config", _OF_EAGLE, _EAGLE3)


def check_tensors(checkpoint: Checkpoint) -> None:
    """Insist that every tensor is one that some drafter here has."""
    unknown = [name for name in sorted(checkpoint.tensors) if not _TENSORS.fullmatch(name)]
    if unknown:
        raise CheckpointError(
            f"{checkpoint.folder}: the tensor {unknown[0]} is unknown",
            expected="the tensors of DFlash, DFlare or EAGLE-3",
            found=f"{len(unknown)} more: {', '.join(unknown[:3])}"[:160],
            fix="export a drafter without this part",
        )


def _check(
    checkpoint: Checkpoint,
    own: Mapping[str, Any],
    place: str,
    known: frozenset[str],
    beside: frozenset[str],
) -> None:
    raw = checkpoint.config
    if "mrope_section" in (rope_parameters(raw)[1] or {}):
        raise unsupported(
            checkpoint,
            "rope_scaling",
            "no mrope_section: a drafter's positions have one row",
            {"rope_scaling": rope_parameters(raw)[1]},
        )
    for key, wanted in _ONLY.items():
        for part, name in ((own, f"{place}.{key}"), (raw, key)):
            if part.get(key) not in (None, wanted):
                raise unsupported(checkpoint, name, repr(wanted), {name: part[key]})
    for key in sorted(own.keys() - known - _ONLY.keys()):
        if own[key] not in (None, False, [], {}):
            raise unsupported(
                checkpoint,
                f"{place}.{key}",
                "no such key: it is unknown",
                {f"{place}.{key}": own[key]},
            )
    check_keys(checkpoint, {k: v for k, v in raw.items() if k not in beside | _ONLY.keys()})
