"""DFlare and the Markov head on their way into a bundle: one contract, parity with torch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, numpy_helper
from safetensors.numpy import load_file, save_file

from export.bundle import export_bundle
from export.checkpoint import Checkpoint, CheckpointError
from export.configs import target_config
from export.differences import TOLERANCE
from export.draft_configs import BlockDrafterConfig, DFlareConfig
from export.draft_options import drafter_config
from export.graphs.precision import reduce_precision
from export.source import Source
from planners.nets import dflare
from planners.nets.dflash import DFlashConfig
from planners.nets.drafters import load_drafter
from runtime.bundle import Bundle
from runtime.errors import BundleError, SlipstreamError
from runtime.graphs import Graphs
from runtime.markov import Markov
from tests.export.conftest import LIMITS, graph_models, make_drafter, make_target
from tests.export.test_graphs import signature

OPTIONS = [
    {},
    {"fusion_softmax": False},
    {"heterogeneous_kv": False},
    {"fusion_fc": True},
    {"num_hidden_layers": 1, "target_layer_ids": (2,)},
]
DRAFT_CHECKS = ("draft", "draft over trunk", "draft over trunk and branch")


def make_dflare(folder: Path, **options: Any) -> Path:
    return make_drafter(folder, dflare.DFlareConfig, **options)


def config_of(target: Path, drafter: Path) -> BlockDrafterConfig:
    config = drafter_config(Checkpoint.open(drafter), target_config(Checkpoint.open(target)))
    assert isinstance(config, BlockDrafterConfig)
    return config


@pytest.mark.parametrize("options", OPTIONS)
def test_parity_of_every_kind_of_fusion(
    target: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """N > 1, and context that comes in pieces: see `export.parity_block`."""
    drafter = make_dflare(tmp_path / "drafter", **options)
    manifest = export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS)
    parity = manifest.provenance.parity
    assert all(0 < parity[check] <= TOLERANCE for check in DRAFT_CHECKS)
    assert manifest.draft is not None
    assert (manifest.draft.method, manifest.draft.markov) == ("dflare", None)


def test_fusion_weights_that_were_altered_break_parity(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can tell: a softmax that is left out is no bundle."""
    drafter = make_dflare(tmp_path / "drafter")

    def plain(checkpoint: Checkpoint, config: DFlareConfig) -> np.ndarray:
        return checkpoint.tensor("layer_fusion_weights", config.layers, len(config.taps))

    monkeypatch.setattr("export.graphs.fusion._mixture", plain)
    with pytest.raises(SlipstreamError, match="differ from torch"):
        export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS)
    assert not (tmp_path / "bundle").exists()


def test_the_graphs_contract_is_dflashs(target: Path, drafter: Path, tmp_path: Path) -> None:
    other = make_dflare(tmp_path / "drafter")
    graphs = [graph_models(Source.open(target, each))["draft"] for each in (drafter, other)]
    assert signature(graphs[0].graph.input) == signature(graphs[1].graph.input)
    assert signature(graphs[0].graph.output) == signature(graphs[1].graph.output)


def test_fusion_weights_are_constants(target: Path, tmp_path: Path) -> None:
    drafter = make_dflare(tmp_path / "drafter")
    graph = graph_models(Source.open(target, drafter))["draft"].graph
    (stored,) = (weight for weight in graph.initializer if weight.name == "fusion")
    mixture = numpy_helper.to_array(stored)
    loaded = load_drafter(drafter)
    assert isinstance(loaded, dflare.DFlare)
    np.testing.assert_allclose(mixture, loaded.mixture().detach(), atol=1e-7)
    np.testing.assert_allclose(mixture.sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_the_graph_can_be_reduced(target: Path, tmp_path: Path, precision: Any) -> None:
    drafter = make_dflare(tmp_path / "drafter", fusion_fc=True)
    model = graph_models(Source.open(target, drafter))["draft"]
    reduced = reduce_precision(model, precision)
    onnx.checker.check_model(reduced)
    low = TensorProto.FLOAT16 if precision == "fp16" else TensorProto.BFLOAT16
    for part in ("fusion", "fc", "layers.0.context"):
        (kind,) = (w.data_type for w in reduced.graph.initializer if w.name.startswith(part))
        assert kind == low, part


@pytest.mark.parametrize("kind", [DFlashConfig, dflare.DFlareConfig])
def test_a_markov_head_becomes_a_file_of_the_bundle(
    target: Path, tmp_path: Path, kind: type[Any]
) -> None:
    drafter = make_drafter(tmp_path / "drafter", kind, markov_rank=4)
    out = tmp_path / "bundle"
    manifest = export_bundle(target, drafter, out, limits=LIMITS)
    assert manifest.draft is not None
    assert manifest.draft.markov == "markov.safetensors"
    assert manifest.provenance.parity["markov"] <= TOLERANCE
    bundle = Bundle.open(out)
    head = load_drafter(drafter).markov
    assert head is not None
    tables = load_file(out / "markov.safetensors")
    assert {name: table.shape for name, table in tables.items()} == {
        "markov_w1": (300, 4),
        "markov_w2": (300, 4),
    }
    previous = np.arange(300)
    every = np.broadcast_to(previous, (300, 300))
    found = Markov.load(out / "markov.safetensors", 300).bias(previous, every)
    assert np.abs(found).max() > 0.01
    with torch.no_grad():
        np.testing.assert_allclose(found, head(torch.arange(300)), atol=1e-5)
    (out / "markov.safetensors").write_bytes(b"\x00" * 64)
    with pytest.raises(BundleError, match="was altered"):
        Bundle.open(bundle.folder)


def test_the_manifest_must_hold_the_tables_hash(target: Path, tmp_path: Path) -> None:
    drafter = make_drafter(tmp_path / "drafter", markov_rank=4)
    out = tmp_path / "bundle"
    export_bundle(target, drafter, out, limits=LIMITS, check_parity=False)
    path = out / "bundle.json"
    raw = json.loads(path.read_text())
    del raw["files"]["markov.safetensors"]
    path.write_text(json.dumps(raw))
    with pytest.raises(BundleError, match="lists no SHA-256 for markov"):
        Bundle.open(out)


def test_tables_of_another_vocabulary_are_refused(target: Path, tmp_path: Path) -> None:
    drafter = make_drafter(tmp_path / "drafter", markov_rank=4)
    out = tmp_path / "bundle"
    export_bundle(target, drafter, out, limits=LIMITS, check_parity=False)
    table = np.zeros((299, 4), np.float32)
    save_file({"markov_w1": table, "markov_w2": table}, out / "markov.safetensors")
    bundle = Bundle(out, Bundle.open(resigned(out)).manifest)
    with pytest.raises(BundleError, match="is no Markov head") as caught:
        Graphs(bundle, lambda path: pytest.fail("engines are opened later"))
    assert "299" in caught.value.found


def resigned(folder: Path) -> Path:
    """The bundle with its tables' hash brought up to date."""
    from runtime.files import sha256

    path = folder / "bundle.json"
    raw = json.loads(path.read_text())
    raw["files"]["markov.safetensors"] = sha256(folder / "markov.safetensors")
    path.write_text(json.dumps(raw))
    return folder


def test_a_drafter_is_understood(target: Path, tmp_path: Path) -> None:
    drafter = make_dflare(tmp_path / "drafter", markov_rank=4, fusion_fc=True)
    config = config_of(target, drafter)
    assert isinstance(config, DFlareConfig)
    assert (config.markov_rank, config.fusion_fc) == (4, True)
    assert config.fusion_softmax
    assert config.heterogeneous_kv


def test_a_config_as_its_authors_write_it_is_understood(target: Path, tmp_path: Path) -> None:
    """AngelSlim's has the taps and the mask in `dflash_config`, and none of our options."""
    drafter = altered(
        make_dflare(tmp_path / "drafter"),
        dflash_config={"mask_token_id": 257, "target_layer_ids": [1, 2, 4]},
    )
    config = config_of(target, drafter)
    assert isinstance(config, DFlareConfig)
    assert config.taps == (1, 2, 4)
    assert config.heterogeneous_kv
    assert not config.fusion_fc


@pytest.mark.parametrize(
    ("options", "changes", "named"),
    [
        ({}, {"architectures": ["DFlareDraftModel"]}, "unknown architecture"),
        ({}, {"architectures": ["DFlashDraftModel"]}, "does not fit the weights"),
        ({}, {"own": {"heterogeneous_kv": False}}, "heterogeneous_kv does not fit"),
        ({"fusion_fc": True}, {"own": {"fusion_fc": False}}, "fusion_fc does not fit"),
        ({}, {"own": {"fusion_softmax": "perhaps"}}, "fusion_softmax is not valid"),
        ({"markov_rank": 4}, {"markov_rank": 0}, "markov_rank does not fit"),
        ({"markov_rank": 4}, {"markov_rank": -1}, "markov_rank is not valid"),
        ({"markov_rank": 4}, {"markov_head_type": "gated"}, "markov_head_type"),
    ],
)
def test_a_config_that_does_not_fit_is_named(
    target: Path,
    tmp_path: Path,
    options: dict[str, Any],
    changes: dict[str, Any],
    named: str,
) -> None:
    drafter = altered(make_dflare(tmp_path / "drafter", **options), **changes)
    with pytest.raises(CheckpointError, match=named) as caught:
        config_of(target, drafter)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("options", "changes", "named"),
    [
        ({}, {"own": {"fusion_fc": True}}, "lacks the tensor fc.weight"),
        ({"heterogeneous_kv": False}, {"own": {"heterogeneous_kv": True}}, "k_proj_target"),
        ({}, {"markov_rank": 4}, "lacks the tensor markov_head.markov_w1"),
        ({"markov_rank": 4}, {"markov_rank": 8}, "markov_w1.weight has the wrong shape"),
    ],
)
def test_weights_that_are_missing_are_named(
    target: Path,
    tmp_path: Path,
    options: dict[str, Any],
    changes: dict[str, Any],
    named: str,
) -> None:
    drafter = altered(make_dflare(tmp_path / "drafter", **options), **changes)
    with pytest.raises(CheckpointError, match=named):
        export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    assert not (tmp_path / "bundle").exists()


def altered(folder: Path, own: dict[str, Any] | None = None, **values: Any) -> Path:
    """The checkpoint with other values in config.json; `own` changes its `dflash_config`."""
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    raw["dflash_config"] |= own or {}
    path.write_text(json.dumps(raw | values))
    return folder


def test_the_same_checkpoint_gives_the_same_bytes(tmp_path: Path) -> None:
    target = make_target(tmp_path / "target")
    drafter = make_dflare(tmp_path / "drafter", markov_rank=4)
    for out in ("one", "two"):
        export_bundle(target, drafter, tmp_path / out, limits=LIMITS, check_parity=False)
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name
    shutil.rmtree(tmp_path / "two")
