"""Which keys of a target's config.json are read, which change nothing, and what any other does.

A key that is not known might change what the network computes, and a graph that leaves it out would
be another network. So it is an error, unless it is switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from export.checkpoint import Checkpoint, CheckpointError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# of every decoder here: read by export.configs and export.rope
_READ = _words(
    """
    architectures attention_bias head_dim hidden_act hidden_size intermediate_size layer_types
    max_position_embeddings mlp_bias num_attention_heads num_hidden_layers num_key_value_heads
    rms_norm_eps rope_parameters rope_scaling rope_theta self_draft sliding_window
    tie_word_embeddings use_sliding_window vocab_size
    """
)
_READ_OF_VLM = _words(
    """
    image_token_id text_config video_token_id vision_config vision_end_token_id
    vision_start_token_id vision_token_id
    """
)
# of training, of generation, of the file's history, and of how others run the same network
_WITHOUT_EFFECT = _words(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path
    attention_dropout attn_implementation auto_map base_config_key bos_token_id chat_template
    do_sample dtype embd_pdrop eos_token_id finetuning_task gradient_checkpointing id2label
    initializer_range is_decoder is_llama_config label2id length_penalty max_length
    max_new_tokens max_window_layers min_length model_max_length model_type
    no_repeat_ngram_size num_beams output_attentions output_hidden_states pad_token
    pad_token_id pretraining_tp problem_type processor_class repetition_penalty resid_pdrop
    return_dict sep_token_id temperature tokenizer_class top_k top_p torch_dtype torchscript
    transformers.js_config transformers_version typical_p unsloth_fixed unsloth_version
    use_bfloat16 use_cache
    """
)
# where a key is not read, but one value of it is what the graphs compute
_ONLY: dict[str, tuple[Any, ...]] = {
    "chunk_size_feed_forward": (0,),  # pieces of the same product
    "partial_rotary_factor": (1, 1.0),
}


def check_keys(checkpoint: Checkpoint, raw: Mapping[str, Any], *, vlm: bool = False) -> None:
    """Insist that every key of a config (or of its text part) is understood or changes nothing.

    Raises:
        CheckpointError: naming the first key that might change the result.
    """
    if raw.get("quantization_config"):
        method = raw["quantization_config"]
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: quantization_config can't be exported",
            expected="weights in fp32, fp16 or bf16",
            found=f"{method.get('quant_method', method) if isinstance(method, dict) else method}",
            fix="export the checkpoint from before it was quantized; engines are reduced with "
            "`slipstream compile --precision`",
        )
    known = _READ | _WITHOUT_EFFECT | (_READ_OF_VLM if vlm else frozenset())
    for key in sorted(raw.keys() - known):
        value = raw[key]
        off = value is None or value is False or value in ([], {}, "")
        if off or value in _ONLY.get(key, ()):
            continue
        raise CheckpointError(
            f"{checkpoint.folder / 'config.json'}: {key} is unknown, and may change the result",
            expected=f"only keys that are understood: {', '.join(sorted(_READ))}",
            found=f"{key} = {value!r}"[:120],
            fix=f"if {key} changes nothing that the network computes, take it out of config.json",
        )
