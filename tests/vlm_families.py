"""Small random checkpoints of driving VLMs' families, in the published folder layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import tokenizers
import torch
from safetensors.torch import load_file, save_file
from tokenizers import decoders, models, pre_tokenizers
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from planners.tokens import SpecialNames

Family = Literal["qwen2_5_vl", "qwen3_vl"]
VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
VOCAB = 300
# as in the published chat templates, without tools and system prompts of their own
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}
_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
_VISION: dict[Family, dict[str, Any]] = {
    "qwen2_5_vl": {"window_size": 112, "fullatt_block_indexes": [1, 3], "patch_size": 14},
    "qwen3_vl": {
        "num_position_embeddings": 100,
        "deepstack_visual_indexes": [0, 2],
        "patch_size": 16,
    },
}
_COMMON_VISION: dict[str, Any] = {
    "depth": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "out_hidden_size": 64,
    "initializer_range": 0.1,
}


def make_vlm(
    folder: Path,
    family: Family,
    *,
    dtype: torch.dtype = torch.bfloat16,
    text: dict[str, Any] | None = None,
    vision: dict[str, Any] | None = None,
    processor: dict[str, Any] | None = None,
    shard: str = "5GB",
    tied: bool = False,
) -> Path:
    """A random checkpoint with tokenizer, chat template, generation and preprocessor config.

    Args:
        text, vision: values of text_config and vision_config beside or instead of the small ones.
        processor: values of preprocessor_config.json.
        shard: most bytes of a weight file.
    """
    torch.manual_seed(0)
    tokens = _save_tokenizer(folder)
    vision = _COMMON_VISION | _VISION[family] | (vision or {})
    words = _TEXT | {"rope_parameters": dict(_ROPE)} | (text or {})
    ids = {
        "vision_start_token_id": tokens[VISION_TOKENS[0]],
        "vision_end_token_id": tokens[VISION_TOKENS[1]],
        "image_token_id": tokens[VISION_TOKENS[2]],
        "video_token_id": tokens[VISION_TOKENS[3]],
        "tie_word_embeddings": tied,
    }
    model: torch.nn.Module
    if family == "qwen2_5_vl":
        words["hidden_size"] = words["num_attention_heads"] * 16
        vision["out_hidden_size"] = words["hidden_size"]
        config = Qwen2_5_VLConfig(text_config=words, vision_config=vision, **ids)
        model = Qwen2_5_VLForConditionalGeneration(config)
    else:
        words = {"head_dim": 16} | words
        words["rope_parameters"] = {"mrope_interleaved": True} | words["rope_parameters"]
        vision["out_hidden_size"] = words["hidden_size"]
        config = Qwen3VLConfig(text_config=words, vision_config=vision, **ids)
        model = Qwen3VLForConditionalGeneration(config)
    _shake(model)
    model.generation_config.eos_token_id = [tokens["<|im_end|>"], tokens[SpecialNames().eos]]
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    _save_processor(folder, family, vision, processor or {})
    return folder


def image_processor(folder: Path) -> Qwen2VLImageProcessorPil:
    """transformers' image processor of a checkpoint: the one that needs no torchvision."""
    return Qwen2VLImageProcessorPil.from_pretrained(folder)


def rename_tensors(folder: Path, old: str, new: str) -> None:
    """Write a checkpoint's tensors anew under names that begin in another way."""
    path = folder / "model.safetensors"
    tensors = {
        new + name.removeprefix(old) if name.startswith(old) else name: values
        for name, values in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})


def _shake(module: torch.nn.Module) -> None:
    """Move norms and biases away from their start, so that a lost or misplaced one shows."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))


def _save_tokenizer(folder: Path) -> dict[str, int]:
    """A byte-level tokenizer without merges; returns the special tokens' ids."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    names = SpecialNames()
    texts = [str(names.null), str(names.mask), str(names.eos), "<|im_start|>", "<|im_end|>"]
    texts += VISION_TOKENS
    inner.add_special_tokens(texts)
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>"})
    )
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return {text: inner.token_to_id(text) for text in texts}


def _save_processor(
    folder: Path, family: Family, vision: dict[str, Any], changes: dict[str, Any]
) -> None:
    half = [0.5, 0.5, 0.5]
    values: dict[str, Any] = {"patch_size": vision["patch_size"]}
    if family == "qwen3_vl":
        values |= {"image_mean": half, "image_std": half}
        values["size"] = {"shortest_edge": 65536, "longest_edge": 16777216}
    Qwen2VLImageProcessorPil(**values).save_pretrained(folder)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes, indent=2))
