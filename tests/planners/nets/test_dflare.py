"""The DFlare drafter against the paper's equations, its checkpoint's layout, where it starts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from safetensors import safe_open
from torch import Tensor

from planners.nets.block_drafter import BlockDrafterConfig
from planners.nets.dflare import DFlare, DFlareConfig, fusion_start
from planners.nets.dflash import DFlashConfig
from planners.nets.drafters import build_drafter, load_drafter, new_drafter, save_drafter
from runtime.errors import SlipstreamError

SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "vocab_size": 40,
    "block_size": 8,
    "mask_token_id": 39,
    "target_layer_ids": (0, 1, 2, 3),
    "rope_theta": 500.0,
}
OPTIONS = [
    {},
    {"fusion_softmax": False},
    {"heterogeneous_kv": False},
    {"fusion_fc": True},
    {"fusion_softmax": False, "heterogeneous_kv": False, "fusion_fc": True},
]
N, B, C = 2, 8, 5


def random_drafter(**options: Any) -> DFlare:
    drafter = DFlare(DFlareConfig(**SIZES | options))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1))
    return drafter.eval()


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    starts = torch.tensor([[5], [9]])
    context = torch.arange(C).expand(N, C) + starts - C
    return torch.randn(N, B, 24), starts + torch.arange(B), torch.randn(N, C, 4 * 24), context


def by_the_paper(
    drafter: DFlare, block: Tensor, at: Tensor, taps: Tensor, tap_at: Tensor, mask: Tensor | None
) -> Tensor:
    """One row, one layer and one head after another, from the tensors' names alone."""
    weight, config = drafter.state_dict(), drafter.config
    out = torch.zeros(N, B, 24)

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean() + config.rms_norm_eps).sqrt() * weight[name]

    def turn(x: Tensor, position: int) -> Tensor:
        turned = x.clone()
        for i in range(4):
            angle = position * config.rope_theta ** (-i / 4)
            c, s = math.cos(angle), math.sin(angle)
            turned[i], turned[i + 4] = x[i] * c - x[i + 4] * s, x[i + 4] * c + x[i] * s
        return turned

    for n in range(N):
        x = [block[n, row] for row in range(B)]
        for layer in range(3):
            name = f"layers.{layer}."
            share = weight["layer_fusion_weights"][layer]
            if config.fusion_softmax:
                share = share.exp() / share.exp().sum()
            kind = "_target" if config.heterogeneous_kv else ""
            keys, values = [], []
            for row in range(C):
                fused = torch.zeros(24)
                for tap in range(4):
                    fused = fused + share[tap] * taps[n, row, tap * 24 : (tap + 1) * 24]
                if config.fusion_fc:
                    fused = weight["fc.weight"] @ fused
                f = norm(fused, "hidden_norm.weight")
                key = weight[f"{name}self_attn.k_proj{kind}.weight"] @ f
                values.append(weight[f"{name}self_attn.v_proj{kind}.weight"] @ f)
                keys.append((key, int(tap_at[n, row])))
            normed = [norm(row, f"{name}input_layernorm.weight") for row in x]
            for row in range(B):
                key = weight[f"{name}self_attn.k_proj.weight"] @ normed[row]
                values.append(weight[f"{name}self_attn.v_proj.weight"] @ normed[row])
                keys.append((key, int(at[n, row])))
            after = []
            for row in range(B):
                query = weight[f"{name}self_attn.q_proj.weight"] @ normed[row]
                heads = []
                for head in range(4):
                    q = norm(query[head * 8 : head * 8 + 8], f"{name}self_attn.q_norm.weight")
                    q, kv = turn(q, int(at[n, row])), head // 2
                    own = slice(kv * 8, kv * 8 + 8)
                    scores = torch.stack(
                        [
                            q @ turn(norm(k[own], f"{name}self_attn.k_norm.weight"), place) / 8**0.5
                            for k, place in keys
                        ]
                    )
                    if mask is not None:
                        scores[~mask[n, row]] = -math.inf
                    shares = scores.exp() / scores.exp().sum()
                    heads.append(sum(w * v[own] for w, v in zip(shares, values, strict=True)))
                after.append(x[row] + weight[f"{name}self_attn.o_proj.weight"] @ torch.cat(heads))
            for row in range(B):
                y = norm(after[row], f"{name}post_attention_layernorm.weight")
                gate = weight[f"{name}mlp.gate_proj.weight"] @ y
                inner = gate / (1 + (-gate).exp()) * (weight[f"{name}mlp.up_proj.weight"] @ y)
                x[row] = after[row] + weight[f"{name}mlp.down_proj.weight"] @ inner
        for row in range(B):
            out[n, row] = norm(x[row], "norm.weight")
    return out


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_it_is_the_papers_network(options: dict[str, Any], masked: bool) -> None:
    drafter = random_drafter(**options)
    block, at, taps, tap_at = inputs()
    mask = None
    if masked:
        mask = torch.rand(N, B, C + B, generator=torch.Generator().manual_seed(2)) < 0.6
        mask[:, torch.arange(B), C + torch.arange(B)] = True
    with torch.no_grad():
        found = drafter(block, at, taps, tap_at, mask)
        expected = by_the_paper(drafter, block, at, taps, tap_at, mask)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_every_layer_reads_its_own_mixture() -> None:
    """A tap that only the last layer weighs changes nothing before it."""
    drafter = random_drafter(fusion_softmax=False)
    with torch.no_grad():
        drafter.layer_fusion_weights.zero_()
        drafter.layer_fusion_weights[2, 1] = 1.0
        drafter.layer_fusion_weights[:2, 0] = 1.0
    taps = inputs()[2]
    moved = taps.clone()
    moved[..., 24:48] += 1.0
    before, after = drafter.contexts(taps), drafter.contexts(moved)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert not torch.allclose(before[2], after[2])


def test_every_parameter_gets_a_gradient() -> None:
    drafter = random_drafter(fusion_fc=True, markov_rank=4)
    hidden = drafter(*inputs())
    markov = drafter.markov
    assert markov is not None
    loss = hidden.square().sum() + (markov(torch.arange(6)) * torch.randn(6, 40)).sum()
    loss.backward()
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_both_starts_are_the_published_ones() -> None:
    """7 layers and 9 taps, as published for Qwen3."""
    sizes = SIZES | {"num_hidden_layers": 7, "target_layer_ids": tuple(range(9))}
    onset = fusion_start(DFlareConfig(**sizes))
    assert [row.nonzero().flatten().tolist() for row in onset] == [
        [0],
        [1],
        [2],
        [3],
        [5],
        [6],
        [7],
    ]
    assert onset.max() == 2.0
    distance = fusion_start(DFlareConfig(**sizes, fusion_init="distance"))
    assert distance.argmax(1).tolist() == [0, 1, 3, 4, 5, 7, 8]
    assert distance[0].tolist() == [0.0, -2.0, -4.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0]
    for init in ("onset", "distance"):
        with_softmax = new_drafter(0, DFlareConfig(**sizes, fusion_init=init))
        without = new_drafter(0, DFlareConfig(**sizes, fusion_init=init, fusion_softmax=False))
        assert isinstance(with_softmax, DFlare)
        assert isinstance(without, DFlare)
        torch.testing.assert_close(with_softmax.mixture(), without.mixture())
        torch.testing.assert_close(with_softmax.mixture().sum(1), torch.ones(7))


def test_one_layer_and_one_tap_start_somewhere() -> None:
    for init in ("onset", "distance"):
        sizes = SIZES | {"num_hidden_layers": 1, "target_layer_ids": (2,), "fusion_init": init}
        assert new_drafter(0, DFlareConfig(**sizes)).contexts(torch.ones(1, 2, 24))[0].shape == (
            1,
            2,
            24,
        )


def test_a_new_markov_head_adds_nothing_and_learns() -> None:
    drafter = new_drafter(0, DFlashConfig(**SIZES, markov_rank=4))
    markov = drafter.markov
    assert markov is not None
    assert markov(torch.arange(40)).abs().max() == 0
    (markov(torch.arange(3)) * torch.randn(3, 40)).sum().backward()
    grad = markov.markov_w2.weight.grad
    assert grad is not None
    assert grad.abs().max() > 0
    assert new_drafter(0, DFlashConfig(**SIZES)).markov is None


def test_a_markov_head_is_the_product_of_its_tables() -> None:
    drafter = random_drafter(markov_rank=4)
    markov, tensors = drafter.markov, drafter.state_dict()
    assert markov is not None
    w1, w2 = (tensors[f"markov_head.markov_w{i}.weight"] for i in (1, 2))
    assert w1.shape == w2.shape == (40, 4)
    previous = torch.tensor([[3, 7], [0, 39]])
    for n in range(2):
        for k in range(2):
            expected = [float(w2[y] @ w1[previous[n, k]]) for y in range(40)]
            found = markov(previous)[n, k]
            torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_published_tensor_names_and_config(tmp_path: Path) -> None:
    save_drafter(random_drafter(), tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert list(file.get_tensor("layer_fusion_weights").shape) == [3, 4]
    layer = [
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        *(f"self_attn.{x}_proj.weight" for x in "qkvo"),
        *(f"self_attn.{x}_proj_target.weight" for x in "kv"),
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        *(f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")),
    ]
    expected = {"layer_fusion_weights", "hidden_norm.weight", "norm.weight"}
    assert names == expected | {f"layers.{i}.{name}" for i in range(3) for name in layer}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["QwenDFlareDraftModel"]
    assert config["dflash_config"]["target_layer_ids"] == [0, 1, 2, 3]
    assert "markov_rank" not in config


@pytest.mark.parametrize("options", [*OPTIONS, {"markov_rank": 4, "fusion_init": "distance"}])
def test_a_saved_drafter_loads_again(options: dict[str, Any], tmp_path: Path) -> None:
    drafter = random_drafter(**options)
    save_drafter(drafter, tmp_path)
    again = load_drafter(tmp_path)
    assert again.config == drafter.config
    for name, value in drafter.state_dict().items():
        assert torch.equal(again.state_dict()[name], value.to(torch.bfloat16).float()), name


def test_a_config_without_our_options_is_the_papers(tmp_path: Path) -> None:
    save_drafter(random_drafter(), tmp_path)
    path = tmp_path / "config.json"
    raw = json.loads(path.read_text())
    raw["dflash_config"] = {"mask_token_id": 39, "target_layer_ids": [0, 1, 2, 3]}
    path.write_text(json.dumps(raw))
    assert load_drafter(tmp_path).config == DFlareConfig(**SIZES)


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": ["DFlash2DraftModel"]},
        {"architectures": []},
        {"markov_rank": 4},
        {"markov_rank": 4, "markov_head_type": "gated"},
        {"dflash_config": {"mask_token_id": 39, "target_layer_ids": [0, 1]}},
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    save_drafter(random_drafter(), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(SlipstreamError, match="can't be loaded as a drafter"):
        load_drafter(tmp_path)


def test_each_config_builds_its_own_network() -> None:
    configs: list[BlockDrafterConfig] = [DFlashConfig(**SIZES), DFlareConfig(**SIZES)]
    assert [type(build_drafter(config)).__name__ for config in configs] == ["DFlash", "DFlare"]
