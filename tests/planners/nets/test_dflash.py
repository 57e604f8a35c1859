"""The drafter: its checkpoint's layout, and training blocks that equal decoding blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.dflash import DFlash, DFlashConfig
from planners.nets.drafters import load_drafter, save_drafter
from planners.nets.qwen3 import forward
from planners.training.blocks import Blocks, make_blocks
from runtime.errors import SlipstreamError

MASK = 39
LENGTH = 30


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, 39, (2, LENGTH), generator=torch.Generator().manual_seed(3))


@pytest.fixture
def is_value() -> Tensor:
    pattern = torch.tensor([True, True, False])
    return torch.cat([torch.zeros(6, dtype=torch.bool), pattern.repeat(8)])


def lay_out(
    tokens: Tensor, is_value: Tensor, anchors: list[list[int]], widths: list[list[int]]
) -> Blocks:
    return make_blocks(tokens, is_value, torch.tensor(anchors), torch.tensor(widths), 8, MASK)


def run(drafter: DFlash, target: Qwen3ForCausalLM, blocks: Blocks, taps: Tensor) -> Tensor:
    with torch.no_grad():
        hidden: Tensor = drafter(
            target.model.embed_tokens(blocks.tokens),
            blocks.positions,
            taps,
            torch.arange(taps.shape[1]).expand(taps.shape[:2]),
            blocks.mask,
        )
    return hidden


def taps_of(target: Qwen3ForCausalLM, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        taps = forward(target, tokens, taps=(1, 3)).taps
    assert taps is not None
    return taps


@pytest.mark.parametrize("width", [8, 5])
def test_a_training_block_equals_the_decoding_block(
    target: Qwen3ForCausalLM, drafter: DFlash, tokens: Tensor, is_value: Tensor, width: int
) -> None:
    taps = taps_of(target, tokens)
    anchors = [[5, 11, 20], [7, 8, 17]]
    blocks = lay_out(tokens, is_value, anchors, [[8, width, 8], [width, 8, 8]])
    trained = run(drafter, target, blocks, taps).view(2, 3, 8, -1)
    for row, which in ((0, 1), (1, 0)):
        at = anchors[row][which]
        block = tokens[row, at : at + width].clone()
        block[1:][is_value[at + 1 : at + width]] = MASK
        with torch.no_grad():
            decoded = drafter(
                target.model.embed_tokens(block)[None],
                torch.arange(at, at + width)[None],
                taps[row, :at][None],
                torch.arange(at)[None],
            )
        torch.testing.assert_close(trained[row, which, :width], decoded[0], rtol=1e-4, atol=1e-5)


def test_a_block_holds_anchor_scaffold_and_masks(tokens: Tensor, is_value: Tensor) -> None:
    blocks = lay_out(tokens, is_value, [[5, 26], [6, 9]], [[8, 8], [4, 8]])
    block = blocks.tokens[0, :8]
    assert block[0] == tokens[0, 5]  # the anchor, although position 5 could not be a value
    assert block.tolist()[1:] == [
        MASK,
        MASK,
        int(tokens[0, 8]),
        MASK,
        MASK,
        int(tokens[0, 11]),
        MASK,
    ]
    assert blocks.tokens[1, 0] == tokens[1, 6]  # a value position shows its token in slot 0
    assert is_value[6]
    assert blocks.positions[0, :8].tolist() == list(range(5, 13))
    assert blocks.drafted[0, :8].tolist() == [False, True, True, False, True, True, False, True]
    assert blocks.drafted[0, 8:].tolist() == [False, True, True] + [False] * 5  # the end
    assert blocks.drafted[1, :8].tolist() == [False, True, False, True] + [False] * 4  # width 4


def test_the_future_does_not_leak_into_a_block(
    target: Qwen3ForCausalLM, drafter: DFlash, tokens: Tensor, is_value: Tensor
) -> None:
    anchors, widths = [[10, 18], [10, 18]], [[8, 8], [8, 8]]
    taps = taps_of(target, tokens)
    before = run(drafter, target, lay_out(tokens, is_value, anchors, widths), taps)[:, :8]
    changed = tokens.clone()
    later = torch.arange(LENGTH) > 10
    values = later & is_value
    changed[:, values] = (changed[:, values] + 7) % 39
    changed[:, 19:] = (changed[:, 19:] + 3) % 39  # everything past the first block
    other_taps = taps.clone()
    other_taps[:, 10:] += 1.0
    after = run(drafter, target, lay_out(changed, is_value, anchors, widths), other_taps)[:, :8]
    assert torch.equal(before, after)
    nearer = taps.clone()
    nearer[:, 9] += 1.0  # the last context row does count
    moved = run(drafter, target, lay_out(tokens, is_value, anchors, widths), nearer)[:, :8]
    assert (moved - before).abs().max() > 1e-4


def test_rows_within_a_block_see_each_other_both_ways(
    target: Qwen3ForCausalLM, drafter: DFlash, tokens: Tensor, is_value: Tensor
) -> None:
    taps = taps_of(target, tokens)
    blocks = lay_out(tokens, is_value, [[10], [10]], [[8], [8]])
    before = run(drafter, target, blocks, taps)
    shown = tokens.clone()
    at = int(torch.nonzero(~is_value & (torch.arange(LENGTH) > 13))[0])  # a scaffold token
    shown[:, at] = (shown[:, at] + 1) % 39
    after = run(drafter, target, lay_out(shown, is_value, [[10], [10]], [[8], [8]]), taps)
    assert (after - before)[:, 1].abs().max() > 1e-4


def test_published_tensor_names_and_config(drafter: DFlash, tmp_path: Path) -> None:
    save_drafter(drafter, tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
        dtypes = {str(file.get_tensor(name).dtype) for name in names}
        assert list(file.get_tensor("fc.weight").shape) == [24, 48]
    assert dtypes == {"torch.bfloat16"}
    layer = [
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        *(f"self_attn.{x}_proj.weight" for x in "qkvo"),
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        *(f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")),
    ]
    expected = {"fc.weight", "hidden_norm.weight", "norm.weight"}
    assert names == expected | {f"layers.{i}.{name}" for i in range(2) for name in layer}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dflash_config"] == {"mask_token_id": MASK, "target_layer_ids": [1, 3]}
    assert (config["block_size"], config["scaffold_in_block"]) == (8, True)
    assert config["architectures"] == ["DFlashDraftModel"]


def test_a_saved_drafter_loads_again(drafter: DFlash, tmp_path: Path) -> None:
    save_drafter(drafter, tmp_path)
    again = load_drafter(tmp_path)
    assert again.config == drafter.config
    for name, value in drafter.state_dict().items():
        assert torch.equal(again.state_dict()[name], value.to(torch.bfloat16).float()), name


def shard(folder: Path) -> Path:
    """Split the folder's weights into two files and an index, as save_pretrained does."""
    whole = folder / "model.safetensors"
    tensors = load_file(whole)
    names = sorted(tensors)
    places = {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    whole.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_shards_are_read_like_one_file(drafter: DFlash, tmp_path: Path) -> None:
    save_drafter(drafter, tmp_path)
    whole = load_drafter(tmp_path).state_dict()
    shards = load_drafter(shard(tmp_path)).state_dict()
    assert whole.keys() == shards.keys()
    assert all(torch.equal(shards[name], value) for name, value in whole.items())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("a shard is gone", "00002-of-00002"),
        ("a shard lacks a tensor", "the shards lack"),
        ("outside", "outside of its folder"),
        ("no map", "no weight_map"),
    ],
)
def test_broken_shards_are_refused(drafter: DFlash, tmp_path: Path, damage: str, says: str) -> None:
    save_drafter(drafter, tmp_path)
    index = shard(tmp_path) / "model.safetensors.index.json"
    if damage == "a shard is gone":
        (tmp_path / "model-00002-of-00002.safetensors").unlink()
    elif damage == "a shard lacks a tensor":
        save_file({"fc.weight": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    elif damage == "outside":
        index.write_text('{"weight_map": {"fc.weight": "../elsewhere.safetensors"}}')
    else:
        index.write_text('{"weight_map": []}')
    with pytest.raises(SlipstreamError, match="can't be loaded as a drafter") as caught:
        load_drafter(tmp_path)
    assert says in caught.value.found


def test_a_config_with_rope_parameters_and_no_scaffold_key_is_read(drafter: DFlash) -> None:
    raw = drafter.config.to_json()
    del raw["scaffold_in_block"], raw["rope_theta"]
    raw["rope_parameters"] = {"rope_theta": 1e6, "rope_type": "default"}
    config = DFlashConfig.from_json(raw)
    assert (config.rope_theta, config.scaffold_in_block) == (1e6, False)


@pytest.mark.parametrize(
    "damage", ["no config", "no object", "no dflash_config", "no weights", "other tensors"]
)
def test_what_is_no_drafter_is_refused(drafter: DFlash, tmp_path: Path, damage: str) -> None:
    save_drafter(drafter, tmp_path)
    config = tmp_path / "config.json"
    if damage == "no config":
        config.unlink()
    elif damage == "no object":
        config.write_text("[1]")
    elif damage == "no dflash_config":
        config.write_text('{"hidden_size": 24}')
    elif damage == "no weights":
        (tmp_path / "model.safetensors").unlink()
    else:
        config.write_text(
            config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
        )
    with pytest.raises(SlipstreamError, match="can't be loaded as a drafter"):
        load_drafter(tmp_path)
