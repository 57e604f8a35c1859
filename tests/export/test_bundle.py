"""From checkpoints to a bundle: parity with torch, all or nothing, the same bytes every time."""

from __future__ import annotations

import builtins
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import export.bundle
from export.bundle import export_bundle
from export.differences import TOLERANCE
from export.graphs.storage import save_graph
from export.record import checkpoint_name, folder_name
from export.source import Source
from runtime.bundle import Bundle, GraphFile, Limits, Manifest
from runtime.errors import SlipstreamError
from runtime.files import sha256
from tests.export.conftest import LIMITS, graph_models, make_drafter, make_target

TARGET_CHECKS = {"prefill", "chain", "rollouts", "tree"}
DRAFT_CHECKS = {"draft", "draft over trunk", "draft over trunk and branch"}


def test_a_bundle_opens_and_says_what_it_is(target: Path, drafter: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    manifest = export_bundle(
        target, drafter, out, limits=LIMITS, name="tiny", data=["Boreas"], licences=["CC BY 4.0"]
    )
    opened = Bundle.open(out).manifest
    assert opened == manifest
    assert (opened.target.layers, opened.target.width, opened.target.taps) == (5, 64, [1, 2, 4])
    assert opened.draft is not None
    assert (opened.draft.block, opened.draft.mask_token) == (8, 257)
    assert opened.head_top_k == 300
    assert (opened.null_token, opened.mask_token, opened.eos_token) == (256, 257, 258)
    assert opened.provenance.data == ["Boreas"]
    parity = opened.provenance.parity
    assert TARGET_CHECKS | DRAFT_CHECKS | {"head", "logsumexp"} <= set(parity)
    assert all(0 < parity[check] <= TOLERANCE for check in TARGET_CHECKS | DRAFT_CHECKS)
    assert str(target.parent) not in (out / "bundle.json").read_text()


def exported(target: Path, drafter: Path | None, out: Path, **said: Any) -> Manifest:
    return export_bundle(target, drafter, out, limits=LIMITS, check_parity=False, **said)


def test_the_record_follows_the_same_weights_and_no_others(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    home = tmp_path / "lynx"
    shutil.copytree(target, home / "target")
    shutil.copytree(drafter, home / "drafter")
    said = {"data": ["Boreas 2021-08-05-13-34, first 80 %"], "licences": ["CC BY 4.0"]}
    first = exported(home / "target", home / "drafter", home / "bundle", name="Lynx", **said)
    elsewhere = exported(home / "target", home / "drafter", tmp_path / "elsewhere")
    assert elsewhere == first
    alone = exported(home / "target", None, tmp_path / "alone")
    assert (alone.name, alone.provenance.data) == ("Lynx", first.provenance.data)
    silent = exported(home / "target", home / "drafter", tmp_path / "silent", data=[])
    assert silent.provenance.data == []  # said to be nothing
    assert silent.provenance.licences == ["CC BY 4.0"]

    other = make_drafter(home / "drafter2", intermediate_size=64)
    unlike = exported(home / "target", other, tmp_path / "unlike")
    assert (unlike.name, unlike.provenance.data) == ("lynx", [])
    # in place, with a new target: its record would be a lie
    shutil.rmtree(home / "target")
    make_target(home / "target", rope_theta=500.0, num_hidden_layers=6)
    replaced = exported(home / "target", None, home / "bundle")
    assert (replaced.name, replaced.provenance.data) == ("lynx", [])


def test_a_damaged_record_is_none(target: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for text in ("", "{}", '{"version": 9}'):
        (tmp_path / "out" / "bundle.json").write_text(text)
        assert exported(target, None, tmp_path / "out").provenance.data == []


@pytest.mark.parametrize(
    ("folder", "name", "checkpoint"),
    [
        ("lynx/target", "lynx", "lynx/target"),
        ("lynx/checkpoint-1200", "lynx", "lynx/checkpoint-1200"),
        ("lynx/weights/final", "lynx", "lynx/final"),
        ("lynx/3", "lynx", "lynx/3"),
        ("Qwen3-4B", "Qwen3-4B", "Qwen3-4B"),
        ("targeted", "targeted", "targeted"),
    ],
)
def test_a_folder_named_for_its_kind_gives_its_parents_name(
    folder: str, name: str, checkpoint: str, tmp_path: Path
) -> None:
    assert folder_name(tmp_path / folder) == name
    assert checkpoint_name(tmp_path / folder) == checkpoint


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_untied_heads_and_other_groupings_agree_with_torch(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    sizes: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8}
    if dtype == torch.float32:
        sizes = {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32}
    target = make_target(tmp_path / "t", dtype=dtype, tie_word_embeddings=False, **sizes)
    drafter = make_drafter(tmp_path / "d", **sizes)
    manifest = export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS)
    assert max(manifest.provenance.parity.values()) <= TOLERANCE


def test_large_vocabularies_return_their_most_likely_tokens(tmp_path: Path) -> None:
    target = make_target(tmp_path / "t", vocab_size=4200, num_hidden_layers=2)
    manifest = export_bundle(target, None, tmp_path / "bundle", limits=LIMITS)
    assert manifest.head_top_k == 64
    assert manifest.draft is None
    assert not (tmp_path / "bundle" / "draft.onnx").exists()
    assert manifest.provenance.parity["top k"] <= TOLERANCE


def test_the_same_checkpoints_give_the_same_bytes(
    target: Path, drafter: Path, tmp_path: Path
) -> None:
    digests = []
    for name in ("one", "two"):
        export_bundle(
            target, drafter, tmp_path / name, limits=LIMITS, name="tiny", check_parity=False
        )
        digests.append({path.name: sha256(path) for path in (tmp_path / name).iterdir()})
    assert digests[0] == digests[1]
    assert len(digests[0]) == 6


@pytest.mark.parametrize(
    ("graph", "weight", "check"),
    [
        ("target", "layers.3.o", "chain"),
        ("target", "layers.0.k_norm", "prefill"),
        ("draft", "fc", "draft"),
        ("head", "head", "head"),
    ],
)
def test_a_broken_weight_fails_parity_and_leaves_the_old_bundle(
    target: Path,
    drafter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    graph: str,
    weight: str,
    check: str,
) -> None:
    def damage(model: onnx.ModelProto, path: Path) -> GraphFile:
        if path.stem == graph:
            onnx.load_external_data_for_model(model, str(path.parent))
            (place,) = (w for w in model.graph.initializer if w.name == f"{weight}.bf16")
            raw = bytearray(place.raw_data)
            raw[1] ^= 0x80  # the sign of one number
            place.raw_data = bytes(raw)
        return save_graph(model, path)

    monkeypatch.setattr(export.bundle, "save_graph", damage)
    out = tmp_path / "bundle"
    out.mkdir()
    (out / "kept").write_text("the bundle of before")
    with pytest.raises(SlipstreamError, match="differ from torch") as caught:
        export_bundle(target, drafter, out, limits=LIMITS)
    assert check in caught.value.found
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert [path.name for path in out.iterdir()] == ["kept"]


def test_without_torch_parity_has_to_be_waived(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_import = builtins.__import__

    def no_parity(name: str, *rest: Any) -> Any:
        if name == "export.parity":
            raise ModuleNotFoundError("No module named 'torch'")
        return true_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_parity)
    with pytest.raises(SlipstreamError, match="can't be checked against torch") as caught:
        export_bundle(target, None, tmp_path / "bundle", limits=LIMITS)
    assert "--no-parity" in caught.value.fix
    assert list(tmp_path.iterdir()) == []
    manifest = export_bundle(target, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    assert manifest.provenance.parity == {}
    assert "parity not checked" in manifest.provenance.exported_by


@pytest.mark.parametrize("max_position", [32, 257])
def test_positions_beyond_the_checkpoint_are_refused(
    target: Path, tmp_path: Path, max_position: int
) -> None:
    limits = Limits(trunk=64, branch=32, rollouts=4, max_position=max_position)
    with pytest.raises(SlipstreamError, match="max_position"):
        export_bundle(target, None, tmp_path / "bundle", limits=limits)


def test_a_target_without_tokenizer_is_refused(target: Path, tmp_path: Path) -> None:
    for path in target.iterdir():
        if path.name != "tokenizer.json":
            (tmp_path / "t").mkdir(exist_ok=True)
            (tmp_path / "t" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(SlipstreamError, match=r"lacks tokenizer\.json"):
        export_bundle(tmp_path / "t", None, tmp_path / "bundle", limits=LIMITS)
    assert not (tmp_path / "bundle").exists()


def test_keys_appended_in_place_are_those_of_a_free_output(target: Path, tmp_path: Path) -> None:
    """Writing into a slice of the very cache that the pass reads gives the same bytes."""
    from runtime.engines.onnx import OnnxEngine

    export_bundle(target, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    engine = OnnxEngine(tmp_path / "bundle" / "target.onnx", threads=2)
    rng, n, s, rows = np.random.default_rng(0), 2, 3, 16
    branch = {
        name: rng.standard_normal((rows, n, 2, 16), np.float32)
        for name in engine.inputs
        if name.startswith("branch.past")
    }
    bias = np.full((n, s, rows + s), -30000.0, np.float32)
    bias[:, :, :5] = 0.0
    bias[:, np.arange(s), rows + np.arange(s)] = 0.0
    feeds: dict[str, Any] = {
        "embeddings": rng.standard_normal((n, s, 64), np.float32),
        "positions": np.full((n, s), 9, np.int32),
        "trunk_bias": np.zeros(4, np.float32),
        "branch_bias": bias,
        **branch,
    }
    for name, spec in engine.inputs.items():
        if name.startswith("trunk.past"):
            feeds[name] = rng.standard_normal((4, *spec.shape[1:]), np.float32)
    free = {name: array.copy() for name, array in engine.run(feeds, {}).items()}
    before = {name: array.copy() for name, array in branch.items()}
    into = {
        name.replace("branch.past_key_values", "present"): array[5 : 5 + s]
        for name, array in branch.items()
    }
    inplace = engine.run(feeds, into)
    np.testing.assert_array_equal(inplace["hidden"], free["hidden"])
    for name, array in branch.items():
        present = name.replace("branch.past_key_values", "present")
        np.testing.assert_array_equal(array[5 : 5 + s], free[present])
        np.testing.assert_array_equal(array[:5], before[name][:5])
        np.testing.assert_array_equal(array[5 + s :], before[name][5 + s :])


def test_initializers_hold_the_checkpoint_bit_for_bit(target: Path, drafter: Path) -> None:
    source = Source.open(target, drafter)
    graphs = graph_models(source)
    weights = {w.name: w for w in graphs["target"].graph.initializer}
    found = numpy_helper.to_array(weights["layers.2.down.bf16"]).astype(np.float32)
    stored = source.target.tensor("model.layers.2.mlp.down_proj.weight", 64, 96)
    np.testing.assert_array_equal(found.T, stored)
