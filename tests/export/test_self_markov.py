"""The gated Markov head of a target that drafts for itself, on its way into a bundle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from export.bundle import export_bundle
from export.checkpoint import CheckpointError
from export.differences import TOLERANCE
from runtime.bundle import Bundle, Manifest
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from runtime.files import sha256
from runtime.graphs import Graphs
from runtime.markov import MARKOV, Markov
from runtime.scaffold import VALUE, Scaffold, Span
from runtime.settings import DecodeSettings
from tests.export.conftest import LIMITS

PLAIN = {"block_size": 8, "mask_token_id": 257}
SAID = PLAIN | {"markov_rank": 4}
Alter = Callable[..., Path]
Tensors = dict[str, torch.Tensor]


def head(dtype: torch.dtype = torch.bfloat16, **changes: torch.Tensor | None) -> Tensors:
    """A random head for `make_target`'s sizes; None takes a tensor out."""
    rng = torch.Generator().manual_seed(2)
    shapes = {"markov_w1": (300, 4), "markov_w2": (300, 4), "markov_gate": (4, 64)}
    made = {name: torch.randn(shape, generator=rng).to(dtype) for name, shape in shapes.items()}
    return {name: tensor for name, tensor in (made | changes).items() if tensor is not None}


@pytest.fixture
def headed(altered: Alter) -> Path:
    folder = altered(self_draft=SAID)
    save_file(head(), folder / MARKOV)
    return folder


def exported(target: Path, out: Path, drafter: Path | None = None) -> Manifest:
    return export_bundle(target, drafter, out, limits=LIMITS, check_parity=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_tables_and_the_gate_become_a_file_of_the_bundle(
    altered: Alter, tmp_path: Path, dtype: torch.dtype
) -> None:
    target, out = altered(self_draft=SAID), tmp_path / "bundle"
    save_file(head(dtype), target / MARKOV)
    manifest = export_bundle(target, None, out, limits=LIMITS)
    assert Bundle.open(out).manifest == manifest
    assert manifest.draft is not None
    assert (manifest.draft.markov, manifest.draft.markov_gated) == (MARKOV, True)
    assert manifest.files[MARKOV] == sha256(out / MARKOV)
    assert 0 < manifest.provenance.parity["gated markov"] <= TOLERANCE
    found = Markov.load(out / MARKOV, 300, 64)
    assert found.gate is not None
    np.testing.assert_array_equal(found.gate, head(dtype)["markov_gate"].float())


def test_parity_tells_another_gate(
    headed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_one(markov: Markov, hidden: Any) -> Any:
        assert markov.gate is not None
        return hidden @ markov.gate.T

    monkeypatch.setattr(Markov, "gates", without_one)
    with pytest.raises(SlipstreamError, match="differ from torch") as caught:
        export_bundle(headed, None, tmp_path / "bundle", limits=LIMITS)
    assert "gated markov" in caught.value.found
    assert not (tmp_path / "bundle").exists()


def test_it_decodes_what_the_target_says(headed: Path, tmp_path: Path) -> None:
    exported(headed, tmp_path / "bundle")
    graphs = Graphs(Bundle.open(tmp_path / "bundle"), lambda path: OnnxEngine(path, threads=1))
    assert graphs.markov is not None
    assert graphs.markov.gate is not None
    decoder, length = Decoder(graphs, None), 24
    scaffold = Scaffold(
        tokens=np.where(np.arange(length) % 5 == 2, 7, VALUE),
        allowed_id=np.zeros(length, np.int64),
        allowed_sets=np.arange(300)[None] < 12,
        sections=(Span("head", 0, 10), Span("tail", 10, length)),
    )
    for rollouts in (1, 3):
        plain, found = (
            decoder.decode(
                np.arange(20, 30),
                scaffold,
                DecodeSettings(method, block=8, rollouts=rollouts),
                "tail",
            )
            for method in ("ar", "scaffold-spec")
        )
        assert np.array_equal(found.tokens, plain.tokens)
        assert found.stats.proposed > 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, rf"{MARKOV} is missing"),
        (b"\x00" * 20, "no safetensors file"),
        (head(markov_w2=None), "lacks the tensor markov_w2"),
        (head(markov_gate=None), "lacks the tensor markov_gate"),
        (head(markov_w1=torch.ones(299, 4)), "markov_w1 has the wrong shape"),
        (head(markov_w2=torch.ones(300, 3)), "markov_w2 has the wrong shape"),
        (head(markov_gate=torch.ones(64, 4)), "markov_gate has the wrong shape"),
        (head(markov_w1=torch.full((300, 4), torch.nan)), "not finite"),
        (head(markov_gate=torch.full((4, 64), torch.inf).bfloat16()), "not finite"),
        (head(markov_w1=torch.ones(300, 4, dtype=torch.int64)), "markov_w1 can't be used"),
    ],
)
def test_a_broken_file_is_one_error(
    altered: Alter, tmp_path: Path, content: Tensors | bytes | None, says: str
) -> None:
    target = altered(self_draft=SAID)
    if isinstance(content, bytes):
        (target / MARKOV).write_bytes(content)
    elif content is not None:
        save_file(content, target / MARKOV)
    with pytest.raises(CheckpointError, match=says) as caught:
        exported(target, tmp_path / "bundle")
    assert caught.value.expected
    assert caught.value.fix
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("rank", [-1, 4097, 4.0, "4", True, None])
def test_a_rank_that_is_not_valid_is_named(altered: Alter, tmp_path: Path, rank: Any) -> None:
    target = altered(self_draft=SAID | {"markov_rank": rank})
    with pytest.raises(CheckpointError, match=r"self_draft\.markov_rank is not valid"):
        exported(target, tmp_path / "bundle")


def test_without_a_rank_the_file_says_nothing(altered: Alter, tmp_path: Path) -> None:
    target = altered(self_draft=PLAIN)
    before = exported(target, tmp_path / "before")
    (target / MARKOV).write_bytes(b"anything")
    config = json.loads((target / "config.json").read_text())
    config["self_draft"]["markov_rank"] = 0
    (target / "config.json").write_text(json.dumps(config))
    assert exported(target, tmp_path / "after") == before
    assert before.draft is not None
    assert (before.draft.markov, before.draft.markov_gated) == (None, False)


def test_its_file_counts_as_the_targets_weights(headed: Path, tmp_path: Path) -> None:
    first = exported(headed, tmp_path / "first").provenance.weights
    save_file(head(markov_w1=torch.ones(300, 4)), headed / MARKOV)
    assert exported(headed, tmp_path / "second").provenance.weights["target"] != first["target"]


def test_another_drafter_goes_before_it(headed: Path, drafter: Path, tmp_path: Path) -> None:
    (headed / MARKOV).write_bytes(b"not read")
    manifest = exported(headed, tmp_path / "bundle", drafter)
    assert manifest.draft is not None
    assert (manifest.draft.method, manifest.draft.markov) == ("dflash", None)
    assert MARKOV not in manifest.files
