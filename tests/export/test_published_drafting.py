"""Drafters in published layouts draft: outputs are plain decoding's, caches a fresh pass's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from export.bundle import export_bundle
from runtime.bundle import Bundle
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.graphs import Graphs
from runtime.proof.cache import cache_check
from runtime.proof.cases import Case
from runtime.settings import DecodeSettings, Sampling
from tests import families
from tests.export import published
from tests.export.conftest import LIMITS
from tests.export.published import VOCAB, WIDTH
from tests.export.published_kinds import WINDOWED, exported, own_embedding, own_head, own_mask
from tests.runtime.tabular import scaffold_of

PROMPT = np.asarray([7, 3, 250, 90, 1, 40, 41, 42, 43, 44])


def case() -> Case:
    scaffold = scaffold_of("?3?|?12?*?0??????", vocab=VOCAB, small=(5, 80, 81))
    return Case(0, PROMPT, scaffold, "tail")


def drafters() -> dict[str, Callable[[Path], Path]]:
    return {
        "windows": lambda folder: published.dflash(folder, **WINDOWED),
        "own tables": lambda folder: published.dflash(
            folder, own_embedding() | own_mask() | own_head()
        ),
        "reduced": lambda folder: published.dflash(
            folder, published.reduced_head(40), draft_vocab_size=40
        ),
        "dflare": published.dflare,
        "own embedding": lambda folder: published.eagle3(folder, own_embedding()),
        "speculators dflash": lambda folder: published.speculators(folder, "dflash"),
        "speculators eagle3": lambda folder: published.speculators(folder, "eagle3"),
    }


@pytest.mark.parametrize("kind", drafters())
def test_the_runtime_drafts_with_them(target: Path, tmp_path: Path, kind: str) -> None:
    drafter = drafters()[kind](tmp_path / "drafter")
    export_bundle(target, drafter, tmp_path / "b", limits=LIMITS, check_parity=False)
    graphs = Graphs(Bundle.open(tmp_path / "b"), lambda path: OnnxEngine(path, threads=1))
    decoder, scaffold = Decoder(graphs, None), case().scaffold
    for rollouts, sampling, rule in ((1, Sampling(), None), (3, Sampling(1.0, top_k=5), "coupled")):
        plain = DecodeSettings("ar", rollouts=rollouts, sampling=sampling)
        expected = decoder.decode(PROMPT, scaffold, plain, "tail").tokens
        for method in ("dflash", "ddtree"):
            settings = DecodeSettings(
                method, rule, block=5, nodes=7, rollouts=rollouts, sampling=sampling
            )
            found = decoder.decode(PROMPT, scaffold, settings, "tail")
            assert np.array_equal(found.tokens, expected), (method, rollouts)
            assert found.stats.draft_passes > 0
    settings = DecodeSettings("dflash", block=5, rollouts=3, sampling=Sampling(1.0), seed=4)
    check = cache_check(graphs, case(), settings, "")
    assert check.passed, check.note


def other_targets() -> dict[str, Callable[[Path], Path]]:
    sizes = {"num_attention_heads": 4, "num_hidden_layers": 5}
    return {
        "qwen2": lambda folder: families.qwen2(folder, hidden_size=WIDTH, vocab_size=320, **sizes),
        "qwen2_5_vl": lambda folder: families.qwen2_5_vl(folder, text=sizes),
    }


@pytest.mark.parametrize("family", other_targets())
def test_targets_of_other_families_have_drafters(tmp_path: Path, family: str) -> None:
    """A drafter's positions have one row, also where the target's have three."""
    target = other_targets()[family](tmp_path / "target")
    vocab = 320 if family == "qwen2" else VOCAB
    drafter = published.dflash(tmp_path / "drafter", vocab_size=vocab, **WINDOWED)
    graphs = exported(target, drafter, tmp_path / "bundle")
    parity = graphs.manifest.provenance.parity
    assert all(0 < parity[f"draft{part}"] < 1e-4 for part in ("", " over trunk"))
    scaffold = scaffold_of("?3?|?12?*?0??????", vocab=vocab, small=(5, 80, 81))
    decoder = Decoder(graphs, None)
    expected = decoder.decode(PROMPT, scaffold, DecodeSettings("ar"), "tail").tokens
    for method in ("dflash", "ddtree"):
        settings = DecodeSettings(method, block=5, nodes=7)
        found = decoder.decode(PROMPT, scaffold, settings, "tail")
        assert np.array_equal(found.tokens, expected)
        assert found.stats.draft_passes > 0
