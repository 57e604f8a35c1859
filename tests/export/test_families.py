"""Every family of targets: parity with transformers, greedy tokens, files, and what is kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.bundle import export_bundle
from export.checkpoint import Checkpoint
from export.configs import target_config
from export.differences import TOLERANCE
from export.graphs.builder import weights_beside
from export.graphs.storage import save_graph
from export.source import Source
from export.special import Said
from planners.published import text_waypoints
from runtime.bundle import Bundle, Limits, Manifest
from runtime.engines.onnx import OnnxEngine
from tests.families import FAMILIES, YARN_ROPE, edit_config
from tests.vlm_families import rename_tensors

LIMITS = Limits(trunk=64, branch=32, rollouts=4, max_position=128)
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
BIASED = {"attention_bias": True, "mlp_bias": True}
CHECKS = {"prefill", "chain", "rollouts", "tree", "head", "logsumexp", "top k"}
VLM_CHECKS = {"pictures", "behind pictures"}

Exported = tuple[Path, Manifest]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    """Each family's checkpoint and bundle, made once."""
    made: dict[str, Exported] = {}
    home = tmp_path_factory.mktemp("families")

    def export(family: str) -> Exported:
        if family not in made:
            folder = FAMILIES[family](home / family / "target")
            made[family] = folder, export_bundle(folder, None, bundle_of(folder), limits=LIMITS)
        return made[family]

    return export


def bundle_of(folder: Path) -> Path:
    return folder.parent / "bundle"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_agrees_with_transformers(
    family: str, exported: Callable[[str], Exported]
) -> None:
    _, manifest = exported(family)
    vlm = manifest.target.mrope
    wanted = CHECKS | (VLM_CHECKS if vlm else set())
    found = manifest.provenance.parity
    assert wanted <= found.keys()
    assert max(found.values()) <= TOLERANCE
    assert vlm == family.endswith("vl")
    assert manifest.target.deepstack == (2 if family == "qwen3_vl" else 0)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("qwen2", {"rope_parameters": YARN_ROPE, "tie_word_embeddings": True}),
        ("llama", {"rope_parameters": LINEAR, **BIASED, "dtype": torch.float16}),
        ("qwen3", {"rope_parameters": DYNAMIC, "attention_bias": True, "dtype": torch.bfloat16}),
        ("qwen2_5_vl", {"tied": True, "dtype": torch.float16}),
    ],
)
def test_options_agree_with_transformers(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    folder = FAMILIES[family](tmp_path / "target", **options)
    manifest = export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS)
    assert max(manifest.provenance.parity.values()) <= TOLERANCE


def test_a_scaling_changes_the_result(tmp_path: Path) -> None:
    """The options above are not without effect at the positions that are checked."""
    plain = FAMILIES["llama"](tmp_path / "plain", rope_parameters={"rope_theta": 10000.0})
    tables = []
    for rope in (None, LINEAR, DYNAMIC, YARN_ROPE):
        if rope:
            edit_config(plain, rope_parameters=rope)
        config = target_config(Checkpoint.open(plain))
        tables.append(config.rope.frequencies(config.theta, config.head_dim) * config.rope.gain)
    np.testing.assert_array_equal(tables[0], tables[2])
    for scaled in (tables[1], tables[3]):
        assert np.abs(scaled - tables[0]).max() > 0.01


def graphs_equal(
    one: Path, two: Path, names: tuple[str, ...] = ("embed", "target", "head")
) -> bool:
    return all(
        (one / f"{name}.onnx").read_bytes() == (two / f"{name}.onnx").read_bytes() for name in names
    )


def test_layouts_of_one_network_give_the_same_graphs(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    """Old and new names of tensors, nested and flat configs, one file and shards."""
    folder, _ = exported("qwen2_5_vl")
    flat = tmp_path / "flat" / "target"
    shutil.copytree(folder, flat)
    text = json.loads((flat / "config.json").read_text())["text_config"]
    rope = text.pop("rope_parameters")
    scaling = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    edit_config(
        flat,
        drop=("text_config", "dtype"),
        **{k: v for k, v in text.items() if k not in ("model_type", "layer_types")},
        rope_scaling=scaling,
        rope_theta=rope["rope_theta"],
        torch_dtype="float32",
    )
    renamed = tmp_path / "renamed" / "target"
    shutil.copytree(folder, renamed)
    rename_tensors(renamed, "model.", "model.language_model.")
    for other in (flat, renamed):
        export_bundle(other, None, bundle_of(other), limits=LIMITS, check_parity=False)
        assert graphs_equal(bundle_of(folder), bundle_of(other))


def test_shards_and_mixed_types_give_what_one_file_gives(tmp_path: Path) -> None:
    whole = FAMILIES["qwen3"](tmp_path / "whole" / "target", dtype=torch.bfloat16)
    parts = FAMILIES["qwen3"](tmp_path / "parts" / "target", dtype=torch.bfloat16, shard="40KB")
    mixed = tmp_path / "mixed" / "target"
    shutil.copytree(whole, mixed)
    tensors = {
        name: values.float() if "norm" in name else values
        for name, values in load_file(whole / "model.safetensors").items()
    }
    save_file(tensors, mixed / "model.safetensors", metadata={"format": "pt"})
    assert len(list(parts.glob("model-*.safetensors"))) > 2
    for folder in (whole, parts, mixed):
        export_bundle(folder, None, bundle_of(folder), limits=LIMITS, check_parity=False)
    assert graphs_equal(bundle_of(whole), bundle_of(parts))
    assert graphs_equal(bundle_of(whole), bundle_of(mixed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_keep_their_type_in_the_file(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = FAMILIES["qwen2"](tmp_path / "target", dtype=dtype)
    wanted = {
        torch.float16: onnx.TensorProto.FLOAT16,
        torch.bfloat16: onnx.TensorProto.BFLOAT16,
        torch.float32: onnx.TensorProto.FLOAT,
    }[dtype]
    export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    for name in ("embed", "target", "head"):
        model = onnx.load(tmp_path / "bundle" / f"{name}.onnx")
        large = [w for w in model.graph.initializer if len(w.raw_data) > 4096]
        kinds = {w.data_type for w in large if not w.name.startswith("rope.")}
        assert kinds == {wanted}


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_pass_the_checker_with_their_weights_inside_and_beside(
    family: str, exported: Callable[[str], Exported], tmp_path: Path, monkeypatch: Any
) -> None:
    folder, _ = exported(family)
    for path in bundle_of(folder).glob("*.onnx"):
        onnx.checker.check_model(str(path), full_check=True)
    monkeypatch.setattr(
        "export.bundle.save_graph", lambda model, path: save_graph(model, path, 1000)
    )
    export_bundle(folder, None, tmp_path / "beside", limits=LIMITS, check_parity=False)
    opened = Bundle.open(tmp_path / "beside").manifest
    for name, graph in opened.graphs.items():
        assert list(graph.external) == [f"{name}.onnx.data"]
        path = tmp_path / "beside" / graph.file
        onnx.checker.check_model(str(path), full_check=True)
        inside = bundle_of(folder) / graph.file
        model = onnx.load(path)  # with what lies beside it
        assert model.SerializeToString(deterministic=True) == inside.read_bytes()
        OnnxEngine(path, threads=1)


def test_special_tokens_and_the_chat_template_are_the_checkpoint_s(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    folder, manifest = exported("qwen2")
    assert manifest.eos_token == 258  # <|im_end|>, which tokenizer_config.json names
    assert manifest.stop_tokens == [258, 256]  # the list of generation_config.json
    # the padding token ends outputs too, so NULL and MASK are a row that no text uses
    assert (manifest.null_token, manifest.mask_token) == (259, 259)
    template = (bundle_of(folder) / "chat_template.jinja").read_text()
    assert template == json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    assert "chat_template.jinja" in manifest.files

    said = Said(null="<|im_start|>", mask=300, eos="<|endoftext|>")
    other = export_bundle(
        folder, None, tmp_path / "said", limits=LIMITS, special=said, check_parity=False
    )
    assert (other.null_token, other.mask_token, other.eos_token) == (257, 300, 256)


def test_a_language_that_pads_nothing_needs_no_null(tmp_path: Path) -> None:
    folder = FAMILIES["qwen2"](tmp_path / "target")
    text_waypoints().save(folder / "language.json")  # numbers alone: every place has its token
    made = export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    assert made.language == "language.json"
    assert made.null_token == 259  # a row that no text uses


@pytest.mark.parametrize(
    ("generation", "tokenizer", "eos", "stops"),
    [
        ({"eos_token_id": 256}, {"eos_token": "<|im_end|>"}, 256, [256]),
        ({"eos_token_id": [256, 258]}, {}, 256, [256, 258]),
        ({"eos_token_id": [256, 258]}, {"eos_token": {"content": "<|im_end|>"}}, 258, [256, 258]),
        ({}, {"eos_token": "<|im_end|>"}, 258, []),
        ({}, {}, 256, []),
    ],
)
def test_the_end_of_an_output_is_found(
    exported: Callable[[str], Exported],
    tmp_path: Path,
    generation: dict[str, Any],
    tokenizer: dict[str, Any],
    eos: int,
    stops: list[int],
) -> None:
    folder = tmp_path / "target"
    shutil.copytree(exported("qwen3")[0], folder)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    manifest = export_bundle(folder, None, tmp_path / "b", limits=LIMITS, check_parity=False)
    assert (manifest.eos_token, manifest.stop_tokens) == (eos, stops)
    assert "chat_template.jinja" not in manifest.files


def test_memory_holds_a_weight_at_a_time(tmp_path: Path) -> None:
    """Graphs are built with their weights on disk: the model in memory only refers to them."""
    source = Source.open(FAMILIES["llama"](tmp_path / "target"), None)
    for name, build in source.graphs(128):
        with weights_beside(tmp_path / f"{name}.data"):
            model = build()
        weights = [w for w in model.graph.initializer if not w.name.startswith("constant.")]
        assert max(len(w.raw_data) for w in weights) <= 1024
        assert (tmp_path / f"{name}.data").stat().st_size > 10000
