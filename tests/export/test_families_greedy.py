"""Greedy tokens of every family, decoded by the runtime, are those of transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from export.bundle import export_bundle
from export.checkpoint import Checkpoint
from export.configs import target_config
from export.reference import Reference
from runtime.bundle import Bundle, Limits
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.graphs import Graphs
from runtime.scaffold import VALUE, Scaffold, Span
from runtime.settings import DecodeSettings
from tests.families import FAMILIES

LIMITS = Limits(trunk=64, branch=32, rollouts=4, max_position=128)
PROMPTS, LENGTH, OUTPUT = 50, 10, 8


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    folder = FAMILIES[family](tmp_path / "target")
    bundle = tmp_path / "bundle"
    manifest = export_bundle(folder, None, bundle, limits=LIMITS, check_parity=False)
    vocab = manifest.target.vocab
    prompts = np.random.default_rng(5).integers(0, vocab, (PROMPTS, LENGTH))
    graphs = Graphs(Bundle.open(bundle), lambda path: OnnxEngine(path, threads=1))
    decoder, settings = Decoder(graphs, None), DecodeSettings("ar")
    free = Scaffold(
        np.full(OUTPUT, VALUE),
        np.zeros(OUTPUT, np.int64),
        np.ones((1, vocab), bool),
        (Span("text", 0, OUTPUT),),
    )
    found = [decoder.decode(prompt, free, settings, None).tokens[0] for prompt in prompts]
    np.testing.assert_array_equal(found, greedy(folder, prompts))


def greedy(folder: Path, prompts: NDArray[np.int64]) -> NDArray[np.int64]:
    """[prompts, OUTPUT] the likeliest tokens, from transformers' passes over whole sequences."""
    reference = Reference(folder, target_config(Checkpoint.open(folder)), (0,))
    rows = prompts
    with torch.inference_mode():
        for _ in range(OUTPUT):
            hidden, _ = reference.run(rows, 0)
            best = reference.model.lm_head(hidden[:, -1:]).argmax(-1)
            rows = np.hstack([rows, best.numpy()])
    return rows[:, LENGTH:]
