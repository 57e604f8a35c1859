"""The lean forward pass against transformers' own, and checkpoints that transformers reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from planners.nets.qwen3 import Cache, forward, load_target, round_to_bf16, save_target
from runtime.errors import SlipstreamError


def tokens_of(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, 39, (rows, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def test_hidden_states_equal_transformers(target: Qwen3ForCausalLM) -> None:
    tokens = tokens_of(3, 17)
    theirs = target.model(tokens).last_hidden_state
    torch.testing.assert_close(forward(target, tokens).hidden, theirs, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_tap_is_the_stream_after_its_block(target: Qwen3ForCausalLM) -> None:
    tokens = tokens_of(2, 11)
    states = target.model(tokens, output_hidden_states=True).hidden_states
    taps = forward(target, tokens, taps=(0, 2)).taps
    assert taps is not None
    after = torch.cat([states[1], states[3]], -1)
    torch.testing.assert_close(taps, after, rtol=1e-4, atol=1e-5)
    before = torch.cat([states[0], states[2]], -1)
    assert (taps - before).abs().max() > 0.1  # the off-by-one would be seen


@torch.no_grad()
def test_the_last_tap_is_taken_before_the_final_norm(target: Qwen3ForCausalLM) -> None:
    run = forward(target, tokens_of(1, 9), taps=(3,))
    assert run.taps is not None
    torch.testing.assert_close(target.model.norm(run.taps), run.hidden, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("cuts", [(1, 1), (5, 1), (4, 6)])
def test_passes_over_the_cache_equal_one_pass(
    target: Qwen3ForCausalLM, cuts: tuple[int, int]
) -> None:
    tokens = tokens_of(2, 12)
    whole = forward(target, tokens, taps=(1,))
    first, second = cuts[0], cuts[0] + cuts[1]
    cache = Cache(target.config, rows=2, capacity=14)
    forward(target, tokens[:, :first], cache=cache)
    middle = forward(target, tokens[:, first:second], taps=(1,), cache=cache)
    assert cache.length == second
    torch.testing.assert_close(middle.hidden, whole.hidden[:, first:second], rtol=1e-4, atol=1e-5)
    assert whole.taps is not None
    assert middle.taps is not None
    torch.testing.assert_close(middle.taps, whole.taps[:, first:second], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_first_output_leaves_out_rows_and_changes_none(target: Qwen3ForCausalLM) -> None:
    tokens = tokens_of(2, 12)
    part = forward(target, tokens, first_output=7)
    assert part.hidden.shape[1] == 5
    whole = forward(target, tokens).hidden[:, 7:]
    torch.testing.assert_close(part.hidden, whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="last block"):
        forward(target, tokens, taps=(3,), first_output=7)


@torch.no_grad()
def test_a_saved_target_is_a_transformers_checkpoint(
    target: Qwen3ForCausalLM, tmp_path: Path
) -> None:
    round_to_bf16(target)
    save_target(target, tmp_path)
    tokens = tokens_of(2, 10)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert type(theirs) is Qwen3ForCausalLM
    assert torch.equal(theirs(tokens).logits, target(tokens).logits)
    ours = load_target(tmp_path)
    assert torch.equal(ours(tokens).logits, target(tokens).logits)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"


def test_rounding_moves_each_weight_to_a_bf16_number(target: Qwen3ForCausalLM) -> None:
    weight = target.model.layers[0].mlp.up_proj.weight
    before = weight.detach().clone()
    round_to_bf16(target)
    assert weight.dtype == torch.float32
    assert torch.equal(weight, before.to(torch.bfloat16).float())
    assert not torch.equal(weight, before)


def test_shards_are_read_like_one_file(target: Qwen3ForCausalLM, tmp_path: Path) -> None:
    save_target(target, tmp_path / "whole")
    whole = load_target(tmp_path / "whole")
    whole.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    assert not (tmp_path / "shards" / "model.safetensors").exists()
    shards = load_target(tmp_path / "shards")
    for name, value in whole.state_dict().items():
        assert torch.equal(shards.state_dict()[name], value), name
    next((tmp_path / "shards").glob("model-*.safetensors")).unlink()
    with pytest.raises(SlipstreamError, match="can't be loaded"):
        load_target(tmp_path / "shards")


def test_weights_that_are_not_there_are_not_made_up(
    target: Qwen3ForCausalLM, tmp_path: Path
) -> None:
    save_target(target, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(SlipstreamError, match="can't be loaded") as caught:
        load_target(tmp_path)
    assert "model.layers.1.mlp.up_proj.weight" in caught.value.found


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match=r"no target checkpoint"):
        load_target(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(SlipstreamError, match="can't be loaded"):
        load_target(tmp_path)


def test_another_family_is_refused_by_name(target: Qwen3ForCausalLM, tmp_path: Path) -> None:
    save_target(target, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["Qwen2_5_VLForConditionalGeneration"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SlipstreamError, match="can't be trained") as caught:
        load_target(tmp_path)
    assert "Qwen2_5_VL" in caught.value.found
    assert "--draft" in caught.value.fix
