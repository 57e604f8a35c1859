"""What published drafters have that is not supported: each is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from export.checkpoint import CheckpointError
from export.source import Source
from tests.export import published
from tests.export.published import WIDTH


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"own": {"attention_sink_bias": True}}, "attention_sink_bias"),
        ({"own": {"projector_type": "domino"}}, "projector_type"),
        ({"own": {"sample_from_anchor": True}}, "sample_from_anchor"),
        ({"own": {"enable_confidence_head": True}}, "enable_confidence_head"),
        ({"own": {"markov_head_type": "gated"}}, "markov_head_type"),
        ({"is_neox_style": False}, "is_neox_style"),
        ({"add_swa_attention_sink_bias": True}, "add_swa_attention_sink_bias"),
        ({"target_hidden_size": 128}, "target_hidden_size"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 3, "sliding_window": None}, "sliding_window"),
        ({"layer_types": 3}, "layer_types"),
        ({"layer_types": None, "use_sliding_window": True}, "use_sliding_window"),
        (
            {"own": {"use_swa": True, "swa_window_size": 5}, "num_hidden_layers": "3"},
            "num_hidden_layers",
        ),
        ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "rope_type"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [4, 4, 4]}}, "mrope"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"draft_vocab_size": 40}, "draft_vocab_size"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    target: Path, tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    folder = published.dflash(tmp_path / "drafter", **options)
    with pytest.raises(CheckpointError, match=named) as caught:
        Source.open(target, folder)
    assert caught.value.fix


@pytest.mark.parametrize("kind", ["dflash", "eagle3"])
def test_an_option_around_a_nested_decoder_is_refused_by_name(
    target: Path, tmp_path: Path, kind: str
) -> None:
    folder = published.speculators(tmp_path / "drafter", kind, fc_norm=True)
    with pytest.raises(CheckpointError, match="fc_norm"):
        Source.open(target, folder)


def test_the_head_needs_a_size(target: Path, tmp_path: Path) -> None:
    head = published.reduced_head(40)
    folder = published.dflash(tmp_path / "drafter", head, draft_vocab_size="many")
    with pytest.raises(CheckpointError, match="draft_vocab_size is not valid"):
        Source.open(target, folder)


@pytest.mark.parametrize(
    ("tensor", "shape", "key"),
    [
        ("midlayer.self_attn.q_proj.bias", (96,), "attention_bias"),
        ("mask_embedding", (1, WIDTH), "architectures"),
    ],
)
def test_eagle3_leaves_no_weight_out(
    target: Path, tmp_path: Path, tensor: str, shape: tuple[int, ...], key: str
) -> None:
    folder = published.eagle3(tmp_path / "drafter", published.random_weights({tensor: shape}))
    with pytest.raises(CheckpointError, match=f"{key} does not fit the weights") as caught:
        Source.open(target, folder)
    assert tensor in caught.value.found


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [("layers.0.attention_conv.base_kernel", (2, 2)), ("candidate_selector.w", (4,))],
)
def test_a_tensor_that_no_drafter_here_has_is_named(
    target: Path, tmp_path: Path, tensor: str, shape: tuple[int, ...]
) -> None:
    more = published.random_weights({tensor: shape})
    with pytest.raises(CheckpointError, match=tensor):
        Source.open(target, published.dflash(tmp_path / "drafter", more))


def test_a_pickled_mask_is_never_loaded(target: Path, tmp_path: Path) -> None:
    folder = published.dflash(tmp_path / "drafter")
    torch.save({"embedding": torch.zeros(WIDTH)}, folder / "mask_embedding.pt")
    with pytest.raises(CheckpointError, match="no pickle is ever loaded"):
        Source.open(target, folder)
