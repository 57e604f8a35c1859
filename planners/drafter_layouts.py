"""The layouts that drafters are published in, brought to one: config.json with flat keys.

DFlash's own (arXiv 2602.06036) and DFlare's in AngelSlim have some options in `dflash_config`, and
some of them beside it; EAGLE-3's in SafeAILab, SpecForge and AngelSlim are flat. vLLM's speculators
nest the decoder under `transformer_layer_config`, and number the target's blocks by their input:
block i's input is what block i - 1 writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MASK_EMBEDDING = "mask_embedding"  # tensor [d] or [1, d]: stands in the block where it drafts
# of a block drafter: they stand in `dflash_config`, or beside it
BLOCK_OPTIONS = frozenset({
    "block_size",
    "final_logit_softcapping",
    "fusion_fc",
    "fusion_init",
    "fusion_softmax",
    "heterogeneous_kv",
    "input_embedding_scale",
    "is_causal",
    "markov_head_type",
    "markov_rank",
    "mask_token_id",
    "num_target_layers",
    "output_multiplier",
    "scaffold_in_block",
    "target_layer_ids",
})  # fmt: skip
_MOST_LAYERS = 1 << 10  # a count that is checked elsewhere must not fill the memory here
_NESTED = "transformer_layer_config"
_WRAPPING = frozenset({  # speculators' keys that are read here, or are of training
    _NESTED,
    "aux_hidden_state_layer_ids",
    "max_anchors",
    "sliding_window_non_causal",
    "speculators_config",
    "speculators_model_type",
    "speculators_version",
})  # fmt: skip


def flat_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the keys of the flat layouts; one that is flat already is only copied.

    A key that is not known stays where it is or comes up, so that it can be refused by name.
    """
    inner, kind = raw.get(_NESTED), raw.get("speculators_model_type")
    if not isinstance(inner, Mapping) or kind not in ("dflash", "eagle3"):
        return _options_beside(raw)
    flat = {key: value for key, value in raw.items() if key not in _WRAPPING} | dict(inner)
    return flat | (_dflash(raw) if kind == "dflash" else _eagle3(raw))


def _options_beside(raw: Mapping[str, Any]) -> dict[str, Any]:
    """With the options of `dflash_config` beside it; vLLM's for who sees whom in z-lab's words."""
    flat, own = dict(raw), raw.get("dflash_config")
    if not isinstance(own, Mapping):
        return flat
    flat |= {key: own[key] for key in BLOCK_OPTIONS & own.keys() if own[key] is not None}
    if own.get("causal") is not None:
        flat["is_causal"] = own["causal"]
    types, layers = raw.get("layer_types"), raw.get("num_hidden_layers")
    if own.get("use_swa") and not (isinstance(types, list) and "sliding_attention" in types):
        flat["layer_types"] = ["sliding_attention"] * _count(layers)
        if types is None and flat.get("is_causal") is None:
            flat["is_causal"] = False
    if own.get("swa_window_size") is not None:
        flat["sliding_window"] = own["swa_window_size"]
    return flat


def _dflash(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What speculators' DFlash says in other words."""
    flat = {
        "architectures": ["DFlashDraftModel"],
        "target_layer_ids": _before(raw.get("aux_hidden_state_layer_ids")),
    }
    return flat | ({"is_causal": False} if raw.get("sliding_window_non_causal") else {})


def _eagle3(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What speculators' EAGLE-3 says in other words, and its defaults that differ."""
    flat: dict[str, Any] = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "norm_before_residual": raw.get("norm_before_residual", True),
    }
    said = raw.get("speculators_config")
    methods = said.get("proposal_methods") if isinstance(said, Mapping) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    if isinstance(first, Mapping) and first.get("speculative_tokens"):
        flat["ttt_length"] = first["speculative_tokens"]
    return flat


def eagle3_taps(raw: Mapping[str, Any], layers: int) -> Any:
    """0-based blocks of the target, of `layers` blocks, whose output an EAGLE-3 drafter reads.

    `eagle_config` numbers them by output (SpecForge, SGLang), the key beside it by input (vLLM,
    speculators). Without either: low, middle and high as SafeAILab's and SpecForge's code has it.
    """
    own = raw.get("eagle_config")
    own = own if isinstance(own, Mapping) else {}
    name = "eagle_aux_hidden_state_layer_ids"
    if own.get(name):
        return own[name]
    if raw.get(name):
        return _before(raw[name])
    return (1, layers // 2 - 1, layers - 4)


def eagle3_layer(names: Iterable[str]) -> str:
    """The prefix of the one layer's tensors: `midlayer`, or `layers.0` in speculators."""
    return "layers.0" if any(name.startswith("layers.0.") for name in names) else "midlayer"


def of_network(name: str) -> bool:
    """Whether a tensor is the drafter's; others are for training, or follow from the config."""
    return not name.startswith("verifier_") and not name.endswith("rotary_emb.inv_freq")


def layer_kinds(raw: Mapping[str, Any], layers: int) -> list[tuple[bool, int | None]]:
    """Of each layer of a block drafter: whether the block is read causally, and the window.

    `is_causal` is for all layers; without it those of sliding attention are causal and the others
    read the block in both directions (z-lab's code). A window of W lets a row see keys less than W
    positions away.

    Args:
        raw: config.json with flat keys.

    Raises:
        ValueError: names the key that has no meaning.
    """
    types = raw.get("layer_types") or ["full_attention"] * _count(layers)
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list | tuple) or not all(each in known for each in types):
        raise ValueError("layer_types")
    if len(types) != _count(layers):
        raise ValueError("layer_types")
    if raw.get("use_sliding_window") and not raw.get("layer_types"):
        raise ValueError("use_sliding_window")  # transformers would derive the types from it
    window, given = raw.get("sliding_window"), raw.get("is_causal")
    if "sliding_attention" in types and not (type(window) is int and 0 < window < 1 << 31):
        raise ValueError("sliding_window")
    if not isinstance(given, bool | None):
        raise ValueError("is_causal")
    sliding = [each == "sliding_attention" for each in types]
    return [(each if given is None else bool(given), window if each else None) for each in sliding]


def _count(layers: Any) -> int:
    """The number of layers, 0 where it is none that a config may have."""
    return layers if type(layers) is int and 0 < layers <= _MOST_LAYERS else 0


def _before(ids: Any) -> Any:
    """Blocks numbered by their input, numbered by their output; anything else as it is."""
    if not isinstance(ids, list | tuple) or not all(type(each) is int for each in ids):
        return ids
    return [each - 1 for each in ids]
