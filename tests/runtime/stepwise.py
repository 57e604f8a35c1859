"""The tabular model with a stepwise drafter, and that drafter once more, without any cache.

A drafter's row is a vector of its token, position and feature; a row's hidden state is the sum of
the rows it may see, and of its own feature. So a wrong feature, position or row shows in every
draft behind it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import Bundle, DraftDims, GraphFile, Limits, Manifest, Provenance, TargetDims
from runtime.engines.base import TensorSpec
from runtime.graphs import Graphs
from runtime.script import Script
from tests.runtime.tabular import POSITIONS, WIDTH, TabularEngine, _visible

Array = NDArray[Any]
NAMES = ("embed", "target", "draft", "head", "fuse", "draft_head")


class StepEngine(TabularEngine):
    """One of the six graphs, in numpy; the drafter knows only some of the tokens."""

    def __init__(
        self, graph: str, vocab: int, seed: int, sharpness: float, known: list[int]
    ) -> None:
        base = {"fuse": "draft", "draft_head": "head"}.get(graph, graph)
        super().__init__(base, vocab, seed, sharpness)
        self.graph, self.known = graph, np.asarray(known, np.int32)
        self.mix = np.random.default_rng(seed + 1).normal(size=(WIDTH, WIDTH)).astype(np.float32)
        if graph == "fuse":
            self.outputs = {"features": self.outputs["hidden"]}
        if graph == "draft_head":
            size = ("N", "S", len(known))
            self.outputs["top_logits"] = TensorSpec("top_logits", np.dtype(np.float32), size)

    def _fuse(self, feeds: dict[str, Array]) -> dict[str, Array]:
        return {"features": np.tanh(feeds["taps"] @ self.mix)}

    def _draft(self, feeds: dict[str, Array]) -> dict[str, Array]:
        new = self.rows(feeds["embeddings"], feeds["features"], feeds["positions"])
        branch = feeds["branch.past_key_values.0.key"][:, :, 0]
        rows = np.concatenate([branch.transpose(1, 0, 2), new], axis=1)
        hidden = self._trunk(feeds) + _visible(feeds["branch_bias"]) @ rows
        present = new.transpose(1, 0, 2)[:, :, None]
        hidden = self.stream(hidden, feeds["features"])
        return {"hidden": hidden, "present.0.key": present, "present.0.value": present}

    def _draft_head(self, feeds: dict[str, Array]) -> dict[str, Array]:
        logits = self._head(feeds)["top_logits"][..., self.known]
        return {"top_logits": logits, "top_tokens": np.broadcast_to(self.known, logits.shape)}

    def rows(self, embeddings: Array, features: Array, positions: Array) -> Array:
        """[..., d] what a row leaves in the cache."""
        return np.asarray(embeddings * self.turn[positions] + 0.5 * np.tanh(features))

    def stream(self, seen: Array, features: Array) -> Array:
        """[..., d] hidden states from the sum of the rows that are seen."""
        return np.asarray(np.tanh(seen * np.float32(0.5)) + 0.5 * features)


def step_graphs(
    folder: Path,
    vocab: int = 5,
    seed: int = 0,
    block: int = 4,
    runs: bool = True,
    known: list[int] | None = None,
    trunk: int = 64,
    branch: int = 64,
) -> Graphs:
    """The runtime's own `Graphs` over six tabular engines."""
    dims = {"layers": 1, "heads": 1, "kv_heads": 1, "head_dim": WIDTH}
    tokens = list(range(vocab)) if known is None else known
    manifest = Manifest(
        name="tabular",
        target=TargetDims(**dims, width=WIDTH, vocab=vocab, taps=[0]),
        draft=DraftDims(
            **dims,
            method="eagle3",
            block=block,
            mask_token=0,
            scaffold_in_block=runs,
            head_top_k=len(tokens),
        ),
        graphs={name: GraphFile(file=name, sha256="0" * 64) for name in NAMES},
        head_top_k=vocab,
        mask_token=0,
        null_token=0,
        eos_token=0,
        limits=Limits(trunk=trunk, branch=branch, rollouts=16, max_position=POSITIONS),
        provenance=Provenance(target="none"),
    )
    engine = lambda path: StepEngine(path.name, vocab, seed, 0.7, tokens)  # noqa: E731
    return Graphs(Bundle(folder, manifest), engine)


def draft_logits(
    graphs: Graphs, script: Script, sequence: list[int], start: int, runs: bool
) -> Array:
    """[V] the drafter's logits of the token behind `sequence`, anchored at `start`: row by row.

    Args:
        sequence: every token up to the place, drafts and fixed tokens included.
    """
    engine, head = graphs.engine("draft"), graphs.engine("draft_head")
    assert isinstance(engine, StepEngine)
    assert isinstance(head, StepEngine)
    embedded = engine.code[sequence]
    taps = embedded * engine.turn[: len(sequence)]
    verified = np.tanh(taps @ engine.mix)
    total, feature = np.zeros(WIDTH, np.float32), verified[0]
    hidden = feature
    for j in range(1, len(sequence)):
        if j <= start:
            feature = verified[j - 1]
        elif not (runs and script.fixed[j]):  # a draft reads the hidden state in front of it
            feature = hidden
        total = total + engine.rows(embedded[j], feature, np.asarray(j))
        hidden = engine.stream(total, feature)
    feeds = {"hidden": np.ascontiguousarray(hidden, np.float32)[None, None]}
    logits = np.full(engine.vocab, -np.inf)
    logits[head.known] = head.run(feeds, {})["top_logits"][0, 0]
    return logits
