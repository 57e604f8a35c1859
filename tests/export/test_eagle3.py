"""EAGLE-3 from checkpoint to bundle: the graphs' contract, parity, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")

import torch
from onnx import numpy_helper
from safetensors.torch import load_file, save_file

import export.bundle
from export.bundle import export_bundle
from export.checkpoint import CheckpointError
from export.differences import TOLERANCE
from export.graphs.storage import save_graph
from export.source import Source
from planners.nets.eagle3 import Eagle3Config, new_eagle3, save_eagle3
from runtime.bundle import Bundle, GraphFile, GraphName
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.engines.profiles import default_profiles
from runtime.errors import SlipstreamError
from runtime.graphs import Graphs
from runtime.proof.cache import cache_check
from runtime.proof.cases import Case
from runtime.settings import DRAFTING, FOLLOWING, RULES, DecodeSettings, Sampling
from tests.export.conftest import LIMITS, graph_models, make_target
from tests.runtime.tabular import scaffold_of

CHECKS = {"fuse", "draft", "draft over trunk", "draft tree", "draft head", "draft logsumexp"}


def make_eagle(folder: Path, seed: int = 1, **sizes: Any) -> Path:
    """A random EAGLE-3 checkpoint that fits `make_target`'s."""
    known: dict[str, Any] = {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 80,
        "vocab_size": 300,
        "draft_vocab_size": 40,
        "target_layer_ids": (0, 2, 4),
        "max_position_embeddings": 256,
        "scaffold_runs": True,
    }
    config = Eagle3Config(**known | sizes)
    generator = torch.Generator().manual_seed(seed)
    tokens = (
        torch.randperm(config.vocab_size, generator=generator)[: config.draft_vocab_size]
        .sort()
        .values
    )
    drafter = new_eagle3(seed, config, tokens=tokens)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2 + (parameter.dim() == 1))
    save_eagle3(drafter, folder)
    return folder


@pytest.fixture(scope="module")
def eagle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_eagle(tmp_path_factory.mktemp("eagle"))


@pytest.fixture(scope="module")
def graphs(target: Path, eagle: Path, tmp_path_factory: pytest.TempPathFactory) -> Graphs:
    out = tmp_path_factory.mktemp("bundles") / "bundle"
    export_bundle(target, eagle, out, limits=LIMITS)
    return Graphs(Bundle.open(out), lambda path: OnnxEngine(path, threads=1))


def test_the_bundle_says_what_it_is(graphs: Graphs) -> None:
    draft, parity = graphs.manifest.draft, graphs.manifest.provenance.parity
    assert draft is not None
    assert draft.stepwise
    assert (draft.method, draft.block, draft.head_top_k) == ("eagle3", 8, 40)
    assert draft.scaffold_in_block
    assert graphs.manifest.target.taps == [0, 2, 4]
    assert set(graphs.manifest.graphs) == {"embed", "target", "head", "draft", "fuse", "draft_head"}
    assert set(parity) > CHECKS
    assert all(parity[check] <= TOLERANCE for check in CHECKS)


@pytest.mark.parametrize(
    "sizes",
    [
        {"qk_norm": True},
        {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8},
        {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32},
        {"draft_vocab_size": 300},
    ],
)
def test_other_sizes_agree_with_torch(target: Path, tmp_path: Path, sizes: dict[str, Any]) -> None:
    drafter = make_eagle(tmp_path / "d", **sizes)
    manifest = export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS)
    assert max(manifest.provenance.parity.values()) <= TOLERANCE


def test_a_feature_is_compared_as_large_as_it_is(target: Path, tmp_path: Path) -> None:
    """The residual stream is not normed; a trained drafter's is large, and its last bits are."""
    folder = make_eagle(tmp_path / "d")
    weights = load_file(folder / "model.safetensors")
    weights["fc.weight"] *= 4096
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    parity = export_bundle(target, folder, tmp_path / "bundle", limits=LIMITS).provenance.parity
    assert max(parity[name] for name in CHECKS) <= TOLERANCE


def test_a_large_vocabulary_returns_its_likeliest_tokens(tmp_path: Path) -> None:
    target = make_target(tmp_path / "t", vocab_size=4500)
    drafter = make_eagle(tmp_path / "d", vocab_size=4500, draft_vocab_size=4200)
    manifest = export_bundle(target, drafter, tmp_path / "bundle", limits=LIMITS)
    assert manifest.draft is not None
    assert manifest.draft.head_top_k == 64
    assert manifest.provenance.parity["draft top k"] <= TOLERANCE


def test_the_graphs_are_valid_and_standard(target: Path, eagle: Path) -> None:
    for name, model in graph_models(Source.open(target, eagle)).items():
        onnx.checker.check_model(model, full_check=True)
        assert {node.domain for node in model.graph.node} == {""}
        if name == "draft":
            inputs = [value.name for value in model.graph.input]
            assert inputs[:5] == [
                "embeddings",
                "features",
                "positions",
                "trunk_bias",
                "branch_bias",
            ]


@pytest.mark.parametrize(
    ("graph", "weight", "check"),
    [
        ("fuse", "fc", "fuse"),
        ("draft", "layers.0.hidden_norm", "draft"),
        ("draft", "layers.0.o", "draft tree"),
        ("draft_head", "head", "draft head"),
    ],
)
def test_a_broken_weight_fails_parity(
    target: Path,
    eagle: Path,
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
    with pytest.raises(SlipstreamError, match="differ from torch") as caught:
        export_bundle(target, eagle, tmp_path / "bundle", limits=LIMITS)
    assert check in caught.value.found


def test_the_head_maps_to_the_targets_tokens(target: Path, eagle: Path) -> None:
    source = Source.open(target, eagle)
    assert source.drafter is not None
    (head,) = (build() for name, build in source.graphs(128) if name == "draft_head")
    tokens = source.drafter.integers("d2t", 40) + np.arange(40)
    constants = [numpy_helper.to_array(w) for w in head.graph.initializer if w.data_type == 6]
    assert any(np.array_equal(constant, tokens) for constant in constants)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hidden_size": 32}, "does not fit the target"),
        ({"draft_vocab_size": 301}, "draft_vocab_size"),
        ({"num_hidden_layers": 2}, "num_hidden_layers"),
        ({"norm_before_fc": True}, "norm_before_fc"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"draft_vocab_size": "many"}, "draft_vocab_size"),
        ({"ttt_length": 0}, "ttt_length"),
        (
            {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 5]}},
            "eagle_aux_hidden_state_layer_ids",
        ),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "eagle_config"),
        ({"architectures": ["MedusaModel"]}, "unknown architecture"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    target: Path, tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    folder = make_eagle(tmp_path / "d")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=problem):
        Source.open(target, folder)


def test_taps_that_the_config_leaves_out_are_those_of_the_published_training(
    target: Path, tmp_path: Path
) -> None:
    folder = make_eagle(tmp_path / "d")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["eagle_config"], config["ttt_length"], config["qk_norm"], config["scaffold_runs"]
    del config["num_hidden_layers"]
    path.write_text(json.dumps(config))
    manifest = export_bundle(target, folder, tmp_path / "bundle", limits=LIMITS)
    assert manifest.target.taps == [1, 1, 1]  # of five layers
    assert manifest.draft is not None
    assert manifest.draft.block == 8
    assert not manifest.draft.scaffold_in_block


def test_maps_with_a_token_twice_are_refused(target: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = make_eagle(tmp_path / "d")
    weights = load_file(folder / "model.safetensors")
    weights["d2t"][1] = weights["d2t"][0] - 1
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="d2t can't be used"):
        graph_models(Source.open(target, folder))


# The whole loop on the exported graphs.

PICTURE, PROMPT = "?3?|?12?*?0", np.asarray([7, 3, 250, 90, 1])


def case() -> Case:
    return Case(0, PROMPT, scaffold_of(PICTURE, vocab=300, small=(5, 80, 81)), "tail")


@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("rollouts", [1, 3])
def test_outputs_are_those_of_plain_decoding(graphs: Graphs, method: str, rollouts: int) -> None:
    decoder, scaffold = Decoder(graphs, None), case().scaffold
    for sampling in (Sampling(), Sampling(1.0, top_k=5)):
        plain = DecodeSettings("ar", rollouts=rollouts, sampling=sampling)
        expected = decoder.decode(PROMPT, scaffold, plain, "tail").tokens
        rules = [rule for rule in RULES[method] if rule in FOLLOWING] if sampling.top_k else [None]
        for rule in rules:
            settings = DecodeSettings(
                method, rule, block=5, nodes=7, paths=2, rollouts=rollouts, sampling=sampling
            )
            found = decoder.decode(PROMPT, scaffold, settings, "tail")
            assert np.array_equal(found.tokens, expected)
            assert found.stats.draft_passes > 0


@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("rollouts", [1, 3])
def test_the_caches_are_those_of_a_fresh_pass(graphs: Graphs, method: str, rollouts: int) -> None:
    settings = DecodeSettings(
        method, block=5, nodes=7, paths=2, rollouts=rollouts, sampling=Sampling(1.0), seed=4
    )
    check = cache_check(graphs, case(), settings, "")
    assert check.passed, check.note
    assert check.samples > 2


def test_every_pass_fits_the_engines_profiles(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What TensorRT engines are built for holds every shape that decoding feeds."""
    seen: set[tuple[GraphName, tuple[tuple[str, int], ...]]] = set()
    whole = OnnxEngine.run
    names = {id(graphs.engine(name)): name for name in graphs.manifest.graphs}

    def watched(engine: OnnxEngine, feeds: Any, into: Any) -> Any:
        sizes = {
            dim: size
            for name, spec in engine.inputs.items()
            for dim, size in zip(spec.shape, np.shape(feeds[name]), strict=True)
            if isinstance(dim, str) and "+" not in dim
        }
        seen.add((names[id(engine)], tuple(sorted(sizes.items()))))
        return whole(engine, feeds, into)

    monkeypatch.setattr(OnnxEngine, "run", watched)
    decoder = Decoder(graphs, None)
    for method in DRAFTING:
        for rollouts in (1, 4):
            settings = DecodeSettings(
                method, nodes=7, paths=2, rollouts=rollouts, sampling=Sampling(1.0)
            )
            decoder.decode(PROMPT, case().scaffold, settings, "tail")
    assert {name for name, _ in seen} == set(graphs.manifest.graphs)
    for name, sizes in seen:
        profiles = default_profiles(graphs.manifest, name)
        assert any(profile.fits(dict(sizes)) for profile in profiles), (name, sizes)
