"""A target that drafts for itself on its way into a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import export.parity_self
from export.bundle import export_bundle
from export.checkpoint import CheckpointError
from export.differences import TOLERANCE
from export.parity_self import _seen
from export.rig import Camera, RigOptions
from export.self_draft import KEY
from planners.nets.qwen3 import load_target
from runtime.bundle import Bundle, Limits
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from runtime.graphs import Graphs
from runtime.scaffold import VALUE, Scaffold, Span
from runtime.schema import schema_blocks
from runtime.self_drafter import SelfDrafter
from runtime.settings import DRAFTING, DecodeSettings
from runtime.window import FRESH
from slipstream.estimate.bundle_shape import shape_of
from tests.export.conftest import LIMITS
from tests.vlm_families import Family, make_vlm

CHECKS = ("self draft over trunk", "self draft over trunk and branch")
SAID = {"block_size": 8, "mask_token_id": 257, "scaffold_in_block": True}
Alter = Callable[..., Path]


def test_a_bundle_that_drafts_for_itself(altered: Alter, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    manifest = export_bundle(altered(self_draft=SAID), None, out, limits=LIMITS)
    assert Bundle.open(out).manifest == manifest
    assert set(manifest.graphs) == {"embed", "target", "head"}
    assert manifest.draft is not None
    assert (manifest.draft.method, manifest.draft.block, manifest.draft.mask_token) == (
        "self",
        8,
        257,
    )
    assert manifest.networks == [manifest.target]
    assert all(0 < manifest.provenance.parity[check] <= TOLERANCE for check in CHECKS)


@pytest.mark.parametrize("block", [2, 5, 40])
def test_parity_of_any_width(altered: Alter, tmp_path: Path, block: int) -> None:
    target = altered(self_draft=SAID | {"block_size": block})
    manifest = export_bundle(target, None, tmp_path / "bundle", limits=LIMITS)
    assert max(manifest.provenance.parity.values()) <= TOLERANCE


def test_a_causal_pass_is_not_taken_for_a_draft(
    altered: Alter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can tell: a reference that sees no later row differs."""
    given = export.parity_self._seen

    def causal(length: int, first: int) -> Any:
        return given(length, length)

    monkeypatch.setattr(export.parity_self, "_seen", causal)
    with pytest.raises(SlipstreamError, match="differ from torch") as caught:
        export_bundle(altered(self_draft=SAID), None, tmp_path / "bundle", limits=LIMITS)
    assert all(check in caught.value.found for check in CHECKS)
    assert not (tmp_path / "bundle").exists()


def test_another_drafter_goes_before_it(altered: Alter, drafter: Path, tmp_path: Path) -> None:
    manifest = export_bundle(
        altered(self_draft=SAID), drafter, tmp_path / "bundle", limits=LIMITS, check_parity=False
    )
    assert manifest.draft is not None
    assert manifest.draft.method == "dflash"
    assert "draft" in manifest.graphs


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"block_size": 1}, "self_draft.block_size"),
        ({"block_size": "16"}, "self_draft.block_size"),
        ({"mask_token_id": 300}, "self_draft.mask_token_id"),
        ({"mask_token_id": -1}, "self_draft.mask_token_id"),
        ({"width": 3}, "self_draft.width"),
        ({"value_rows": "some"}, "self_draft.value_rows"),
        ("yes", "self_draft"),
        ([], "self_draft"),
    ],
)
def test_what_is_not_valid_is_named(altered: Alter, tmp_path: Path, said: Any, field: str) -> None:
    target = altered(self_draft=SAID | said if isinstance(said, dict) else said)
    with pytest.raises(CheckpointError, match=rf"{field} is not valid") as caught:
        export_bundle(target, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    assert caught.value.fix
    assert not (tmp_path / "bundle").exists()


def test_it_decodes_what_the_target_says(altered: Alter, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    export_bundle(altered(self_draft=SAID), None, out, limits=LIMITS, check_parity=False)
    graphs = Graphs(Bundle.open(out), lambda path: OnnxEngine(path, threads=1))
    decoder, length = Decoder(graphs, None), 24
    scaffold = Scaffold(
        tokens=np.where(np.arange(length) % 5 == 2, 7, VALUE),
        allowed_id=np.zeros(length, np.int64),
        allowed_sets=np.arange(300)[None] < 12,
        sections=(Span("head", 0, 10), Span("tail", 10, length)),
    )
    prompt = np.arange(20, 30)
    for rollouts in (1, 3):
        plain = decoder.decode(prompt, scaffold, DecodeSettings("ar", rollouts=rollouts), "tail")
        for method in DRAFTING:
            settings = DecodeSettings(method, block=8, nodes=6, paths=2, rollouts=rollouts)
            found = decoder.decode(prompt, scaffold, settings, "tail")
            assert np.array_equal(found.tokens, plain.tokens)
            assert found.stats.proposed > 0
            assert (found.stats.draft_passes > 0) == (method != "scaffold-spec")


@pytest.mark.parametrize("value_rows", [False, True])
def test_a_draft_ahead_is_that_of_torch(altered: Alter, tmp_path: Path, value_rows: bool) -> None:
    """Two layers of attention under one dense mask: masks see all, and what stands sees no mask."""
    target, out = altered(self_draft=SAID | {"value_rows": value_rows}), tmp_path / "bundle"
    export_bundle(target, None, out, limits=LIMITS, check_parity=False)
    graphs = Graphs(Bundle.open(out), lambda path: OnnxEngine(path, threads=1))
    model, drafted = load_target(target).eval(), 0
    scaffold = Scaffold(
        tokens=np.where(np.arange(24) % 5 == 2, 7, VALUE),
        allowed_id=np.zeros(24, np.int64),
        allowed_sets=np.ones((1, 300), np.bool_),
        sections=(Span("head", 0, 10), Span("tail", 10, 24)),
    )
    prompt, look = np.arange(20, 30), SelfDrafter.look
    fixed = np.concatenate([prompt, scaffold.tokens])

    def watched(drafter: SelfDrafter, said: Any, block: Any, accepted: Any, *rest: Any) -> None:
        nonlocal drafted
        look(drafter, said, block, accepted, *rest)
        assert block.ahead is not None
        for n, window in enumerate(drafter.windows):
            if len(window.places) == 0 or (window.rests != FRESH).any():
                continue
            end = block.positions[n][block.real[n]].max() + 1
            masks = block.positions[n][block.ahead[n]]
            known = rest[0].tokens[n, :end]
            shown = np.concatenate([known, np.where(fixed[masks] < 0, 257, fixed[masks])])
            seen = torch.ones(len(shown), len(shown)).tril()
            seen[end:] = 1
            bias = torch.zeros_like(seen).masked_fill(seen == 0, -1e30)[None, None]
            at = torch.from_numpy(np.concatenate([np.arange(end), masks]))[None]
            state = model.model(torch.from_numpy(shown)[None], attention_mask=bias, position_ids=at)
            rows = end + np.searchsorted(masks, window.places - 1)
            wanted = model.lm_head(state[0][0, rows]).detach().numpy()
            np.testing.assert_allclose(window.said.logits, wanted, atol=2e-3)
            drafted += len(rows)

    settings = DecodeSettings("scaffold-spec", block=5, rollouts=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SelfDrafter, "look", watched)
        Decoder(graphs, None).decode(prompt, scaffold, settings, "tail")
    assert drafted > 4


def test_section_diffusion_is_that_of_torch(altered: Alter, tmp_path: Path) -> None:
    """Two layers of attention, no cache: what is committed, pass by pass, under one dense mask.

    Rows before a block see no mask of it: keys and values of a pass that fills are never kept.
    """
    target, out = altered(self_draft=SAID), tmp_path / "bundle"
    export_bundle(target, None, out, limits=LIMITS, check_parity=False)
    graphs = Graphs(Bundle.open(out), lambda path: OnnxEngine(path, threads=1))
    model, threshold, size, length = load_target(target).eval(), 0.2, 5, 24
    scaffold = Scaffold(
        tokens=np.where(np.arange(length) % 5 == 2, 7, VALUE),
        allowed_id=np.zeros(length, np.int64),
        allowed_sets=np.arange(300)[None] < 12,
        sections=(Span("head", 0, 10), Span("tail", 10, length)),
    )
    prompt, blocks = np.arange(20, 30), schema_blocks(scaffold, size)
    tokens, passes = np.concatenate([prompt, scaffold.tokens]), 0
    for number in range(blocks.max() + 1):
        places = len(prompt) + np.flatnonzero(blocks == number)
        anchor, stop = int(places[tokens[places] < 0][0]) - 1, int(places[-1]) + 1
        while len(open_ := np.flatnonzero(tokens[:stop] < 0)):
            passes += 1
            shown = torch.from_numpy(np.where(tokens[:stop] < 0, 257, tokens[:stop]))
            bias = torch.zeros(stop, stop).masked_fill(~_seen(stop, anchor), -1e30)
            hidden = model.model(shown[None], attention_mask=bias[None, None])[0]
            logits = model.lm_head(hidden)[0, open_ - 1, :12].softmax(-1).detach().numpy()
            sure = logits.max(axis=-1)
            stands = sure > threshold
            if not stands.any():
                stands[sure.argmax()] = True
            tokens[open_[stands]] = logits.argmax(axis=-1)[stands]
    settings = DecodeSettings("section-diffusion", block=size, threshold=threshold, rollouts=2)
    found = Decoder(graphs, None).decode(prompt, scaffold, settings, "tail")
    assert found.tokens.tolist() == [tokens[len(prompt) :].tolist()] * 2
    assert passes > blocks.max() + 1
    assert found.stats.target_passes == passes + blocks.max()  # each is cached, but the last


def test_the_estimate_counts_it_once(altered: Alter, drafter: Path, tmp_path: Path) -> None:
    target = altered(self_draft=SAID)
    export_bundle(target, None, tmp_path / "own", limits=LIMITS, check_parity=False)
    export_bundle(target, drafter, tmp_path / "two", limits=LIMITS, check_parity=False)
    own, two = (shape_of(Bundle.open(tmp_path / name)) for name in ("own", "two"))
    assert own.draft is own.target
    assert (len(own.networks), len(two.networks)) == (1, 2)
    assert own.block == 8


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_vlm_that_drafts_for_itself(family: Family, tmp_path: Path) -> None:
    """As the published Fast-dDrive is: a text decoder with M-RoPE, and cameras."""
    target = make_vlm(tmp_path / "target", family)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {KEY: SAID}))
    rig = RigOptions([Camera("front", 96, 72)])
    limits = Limits(trunk=512, branch=64, rollouts=2, max_position=512)
    manifest = export_bundle(target, None, tmp_path / "bundle", limits=limits, rig=rig)
    assert manifest.draft is not None
    assert manifest.draft.of_target
    assert all(0 < manifest.provenance.parity[check] <= TOLERANCE for check in CHECKS)
