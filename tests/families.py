"""Small random checkpoints of every family, in the layout that they are published in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.vlm_families import make_vlm

VOCAB = 320
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}
LLAMA3_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


def qwen3(folder: Path, **options: Any) -> Path:
    """Qwen3: q/k norms, heads wider than the width over their number, tied."""
    own = {"head_dim": 16, "tie_word_embeddings": True}
    return _text(Qwen3ForCausalLM, Qwen3Config, folder, own, **options)


def qwen2(folder: Path, **options: Any) -> Path:
    """Qwen2.5: biases of queries, keys and values; no q/k norms, untied."""
    return _text(Qwen2ForCausalLM, Qwen2Config, folder, {}, **options)


def llama(folder: Path, **options: Any) -> Path:
    """Llama 3.1: stretched RoPE, no biases, untied."""
    return _text(LlamaForCausalLM, LlamaConfig, folder, {"rope_parameters": LLAMA3_ROPE}, **options)


def smollm2(folder: Path, **options: Any) -> Path:
    """SmolLM2: a tied Llama whose config says nothing of head_dim and much that has no effect."""
    own = {"tie_word_embeddings": True, "rope_parameters": {"rope_theta": 100000.0}}
    _text(LlamaForCausalLM, LlamaConfig, folder, own, **options)
    keys = {"is_llama_config": True, "rope_interleaved": False, "pretraining_tp": 1}
    edit_config(folder, drop=("head_dim",), **keys)
    return folder


def qwen2_5_vl(folder: Path, **options: Any) -> Path:
    """Qwen2.5-VL: M-RoPE in sections, a vision tower with windows of attention."""
    return make_vlm(folder, "qwen2_5_vl", **{"dtype": torch.float32, **options})


def qwen3_vl(folder: Path, **options: Any) -> Path:
    """Qwen3-VL: interleaved M-RoPE, and features of pictures added after the first blocks."""
    return make_vlm(folder, "qwen3_vl", **{"dtype": torch.float32, **options})


FAMILIES: dict[str, Callable[..., Path]] = {
    "qwen3": qwen3,
    "qwen2": qwen2,
    "llama": llama,
    "smollm2": smollm2,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
}


def edit_config(folder: Path, *, drop: tuple[str, ...] = (), **values: Any) -> None:
    """Set or take out keys of a checkpoint's config.json."""
    path = folder / "config.json"
    config = {k: v for k, v in json.loads(path.read_text()).items() if k not in drop}
    path.write_text(json.dumps(config | values, indent=2))


def save_tokenizer(folder: Path, *special: str) -> None:
    """A byte-level tokenizer of 256 tokens and the special ones behind them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(special))
    inner.save(str(folder / "tokenizer.json"))
    config = {
        "chat_template": CHAT_TEMPLATE,
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[0],
        "tokenizer_class": "Qwen2Tokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    generation = {"eos_token_id": [258, 256], "pad_token_id": 256, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2))


def _text(
    kind: type[PreTrainedModel],
    config: type[Any],
    folder: Path,
    own: dict[str, Any],
    *,
    dtype: torch.dtype = torch.float32,
    shard: str | None = None,
    **options: Any,
) -> Path:
    torch.manual_seed(0)
    _save(kind(config(**SIZES | own | options)), folder, dtype, shard)
    save_tokenizer(folder, *SPECIAL)
    return folder


def _save(model: PreTrainedModel, folder: Path, dtype: torch.dtype, shard: str | None) -> None:
    """Weights away from where they start, so that a lost or misplaced one shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
