"""EAGLE-3 against its equations, and its checkpoint files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.eagle3 import (
    Eagle3,
    Eagle3Config,
    frequent_tokens,
    load_eagle3,
    new_eagle3,
    save_eagle3,
)
from runtime.errors import SlipstreamError

CONFIG = Eagle3Config(
    hidden_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    intermediate_size=32,
    vocab_size=40,
    draft_vocab_size=12,
    target_layer_ids=(0, 2, 3),
    rope_theta=500.0,
)
KEPT = torch.tensor([0, 1, 4, 5, 9, 12, 20, 21, 30, 33, 38, 39])


def shaken(config: Eagle3Config) -> Eagle3:
    drafter = new_eagle3(1, config, tokens=KEPT)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1))
    return drafter.eval()


@pytest.fixture(params=[False, True], ids=["llama", "qk-norm"])
def eagle(request: pytest.FixtureRequest) -> Eagle3:
    return shaken(replace(CONFIG, qk_norm=request.param))


def from_the_equations(
    drafter: Eagle3, embeddings: Tensor, taps: Tensor, start: int, drafts: int
) -> list[Tensor]:
    """Logits behind row start, and behind each of `drafts` rows that follow, one row at a time.

    Section 3.1 of the paper: g = fc([l, m, h]); row j is [norm(e_j), norm(g_{j-1})]; behind the
    verified rows the layer's own output a_{j-1} takes the place of g_{j-1}.
    """
    w = dict(drafter.state_dict())
    c, eps = drafter.config, drafter.config.rms_norm_eps

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean() + eps).sqrt() * w[name]

    def turn(x: Tensor, position: int) -> Tensor:
        half = c.head_dim // 2
        out = torch.empty_like(x)
        for i in range(half):
            angle = torch.tensor(position * c.rope_theta ** (-2 * i / c.head_dim))
            out[i] = x[i] * angle.cos() - x[i + half] * angle.sin()
            out[i + half] = x[i + half] * angle.cos() + x[i] * angle.sin()
        return out

    keys: list[list[Tensor]] = []
    values: list[list[Tensor]] = []
    logits, hidden = [], torch.zeros(c.hidden_size)
    for j in range(1, start + 1 + drafts):
        g = w["fc.weight"] @ taps[j - 1] if j <= start else hidden
        x = torch.cat(
            [
                norm(embeddings[j], "midlayer.input_layernorm.weight"),
                norm(g, "midlayer.hidden_norm.weight"),
            ]
        )
        q, k, v = (w[f"midlayer.self_attn.{p}_proj.weight"] @ x for p in "qkv")
        q_heads, k_heads = q.view(-1, c.head_dim), k.view(-1, c.head_dim)
        if c.qk_norm:
            q_heads = torch.stack([norm(h, "midlayer.self_attn.q_norm.weight") for h in q_heads])
            k_heads = torch.stack([norm(h, "midlayer.self_attn.k_norm.weight") for h in k_heads])
        keys.append([turn(h, j) for h in k_heads])
        values.append(list(v.view(-1, c.head_dim)))
        mixed = []
        for number, head in enumerate(q_heads):
            shared = number // (c.num_attention_heads // c.num_key_value_heads)
            scores = torch.stack([turn(head, j) @ row[shared] for row in keys]) / c.head_dim**0.5
            shares = scores.softmax(0)
            mixed.append(sum(s * row[shared] for s, row in zip(shares, values, strict=True)))
        h = g + w["midlayer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        y = norm(h, "midlayer.post_attention_layernorm.weight")
        gate = w["midlayer.mlp.gate_proj.weight"] @ y
        inner = gate * gate.sigmoid() * (w["midlayer.mlp.up_proj.weight"] @ y)
        hidden = h + w["midlayer.mlp.down_proj.weight"] @ inner
        if j >= start:
            logits.append(w["lm_head.weight"] @ norm(hidden, "norm.weight"))
    return logits


@torch.no_grad()
def test_it_computes_the_papers_equations(eagle: Eagle3) -> None:
    torch.manual_seed(0)
    embeddings, taps = torch.randn(9, 24), torch.randn(9, 72)
    start, drafts = 5, 3
    expected = from_the_equations(eagle, embeddings, taps, start, drafts)
    rows = torch.arange(1, start + 1)
    hidden, past = eagle(
        embeddings[None, 1 : start + 1],
        eagle.fuse(taps[None, :start]),
        rows[None],
        (rows[:, None] >= rows)[None],
    )
    found = [eagle.logits(hidden[0, -1])]
    for j in range(start + 1, start + 1 + drafts):
        hidden, past = eagle(
            embeddings[None, j : j + 1], hidden[:, -1:], torch.tensor([[j]]), None, past
        )
        found.append(eagle.logits(hidden[0, -1]))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_rows_in_pieces_are_rows_at_once(eagle: Eagle3) -> None:
    """Two sequences; keys and values of earlier rows, with and without their own attention."""
    torch.manual_seed(1)
    embeddings, features = torch.randn(2, 7, 24), torch.randn(2, 7, 24)
    positions = torch.arange(3, 10).expand(2, -1)
    causal = torch.ones(2, 7, 7, dtype=torch.bool).tril()
    whole, rows = eagle(embeddings, features, positions, causal)
    first = eagle.keys_values(embeddings[:, :4], features[:, :4], positions[:, :4])
    torch.testing.assert_close(first[0], rows[0][:, :, :4])
    second, both = eagle(embeddings[:, 4:], features[:, 4:], positions[:, 4:], causal[:, 4:], first)
    torch.testing.assert_close(second, whole[:, 4:])
    torch.testing.assert_close(both[1], rows[1])


def test_the_files_have_the_published_layout(eagle: Eagle3, tmp_path: Path) -> None:
    save_eagle3(eagle, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    norms = {"q_norm", "k_norm"} if eagle.config.qk_norm else set()
    assert set(weights) == {
        "d2t",
        "t2d",
        "fc.weight",
        "lm_head.weight",
        "norm.weight",
        *(f"midlayer.self_attn.{p}_proj.weight" for p in "qkvo"),
        *(f"midlayer.self_attn.{name}.weight" for name in norms),
        *(f"midlayer.mlp.{p}_proj.weight" for p in ("gate", "up", "down")),
        *(
            f"midlayer.{name}.weight"
            for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        ),
    }
    assert weights["midlayer.self_attn.q_proj.weight"].shape == (32, 48)
    assert torch.equal(weights["d2t"] + torch.arange(12), KEPT)
    assert torch.equal(weights["t2d"].nonzero()[:, 0], KEPT)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 2, 3]
    assert config["draft_vocab_size"] == 12
    again = load_eagle3(tmp_path)
    assert again.config == eagle.config
    for name, value in again.state_dict().items():
        assert torch.equal(value, weights[name].to(value.dtype))


def test_a_published_file_may_bring_the_embedding_and_leave_out_maps(tmp_path: Path) -> None:
    whole = new_eagle3(0, replace(CONFIG, draft_vocab_size=40))
    save_eagle3(whole, tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["d2t"], weights["t2d"]
    save_file(
        {**weights, "embed_tokens.weight": torch.zeros(40, 24)}, tmp_path / "model.safetensors"
    )
    assert torch.equal(load_eagle3(tmp_path).tokens, torch.arange(40))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"num_hidden_layers": 2}, "num_hidden_layers is 2"),
        ({"eagle_config": {}}, "eagle_aux_hidden_state_layer_ids"),
        ({"draft_vocab_size": 13}, "size mismatch"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path: Path, change, found) -> None:
    save_eagle3(new_eagle3(0, CONFIG, tokens=KEPT), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SlipstreamError, match="can't be loaded as a drafter") as caught:
        load_eagle3(tmp_path)
    assert found in caught.value.found


def test_maps_that_lead_outside_are_refused(tmp_path: Path) -> None:
    drafter = new_eagle3(0, CONFIG, tokens=KEPT)
    drafter.d2t[-1] = 40
    save_eagle3(drafter, tmp_path)
    with pytest.raises(SlipstreamError) as caught:
        load_eagle3(tmp_path)
    assert "d2t leads outside of the 40 tokens" in caught.value.found


def test_the_head_begins_as_the_targets(target: Qwen3ForCausalLM) -> None:
    drafter = new_eagle3(0, CONFIG, target, KEPT)
    hidden = torch.randn(3, 24)
    expected = target.lm_head(target.model.norm(hidden))[:, KEPT]
    torch.testing.assert_close(drafter.logits(hidden), expected)
    # a copy: training the drafter leaves the target alone
    with torch.no_grad():
        drafter.lm_head.weight.add_(1.0)
    torch.testing.assert_close(target.lm_head(target.model.norm(hidden))[:, KEPT], expected)


def test_frequent_tokens_are_kept() -> None:
    outputs = torch.tensor([[5, 5, 2, 7], [7, 7, 9, 2]])
    assert frequent_tokens(outputs, 12, 3).tolist() == [2, 5, 7]
    assert frequent_tokens(outputs, 12, 5).tolist() == [0, 2, 5, 7, 9]
