"""A language model small enough to enumerate, behind the real engine interface.

A row's hidden state is the sum, over all rows it may see, of a random vector of (token, position).
So one wrongly visible, missing or misplaced cache row changes every logit behind it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import Bundle, DraftDims, GraphFile, Limits, Manifest, Provenance, TargetDims
from runtime.engines.base import TensorSpec
from runtime.graphs import Graphs
from runtime.scaffold import VALUE, Scaffold, Span

Array = NDArray[Any]
WIDTH = 8  # of the hidden state, and of a cache row
POSITIONS = 64


class TabularEngine:
    """One of the four graphs, in numpy."""

    def __init__(self, graph: str, vocab: int, seed: int, sharpness: float) -> None:
        rng = np.random.default_rng(seed)
        self.graph, self.vocab, self.sharpness = graph, vocab, sharpness
        self.code = rng.normal(size=(vocab, WIDTH)).astype(np.float32)
        self.turn = rng.normal(size=(POSITIONS, WIDTH)).astype(np.float32)
        self.output = rng.normal(size=(WIDTH, vocab)).astype(np.float32)
        self.inputs: dict[str, TensorSpec] = {}
        self.outputs = {
            name: TensorSpec(name, np.dtype(np.float32), ("N", "S", *ending))
            for name, ending in {
                "embed": {"embeddings": (WIDTH,)},
                "head": {"top_logits": (vocab,), "top_tokens": (vocab,)},
                "target": {
                    "hidden": (WIDTH,),
                    "taps": (WIDTH,),
                    "present.0.key": (1, WIDTH),
                    "present.0.value": (1, WIDTH),
                },
                "draft": {
                    "hidden": (WIDTH,),
                    "present.0.key": (1, WIDTH),
                    "present.0.value": (1, WIDTH),
                },
            }[graph].items()
        }

    def run(self, feeds: dict[str, Array], into: dict[str, Array]) -> dict[str, Array]:
        out = getattr(self, f"_{self.graph}")(feeds)
        for name, array in into.items():
            array[...] = out[name]
            out[name] = array
        return dict(out)

    def _embed(self, feeds: dict[str, Array]) -> dict[str, Array]:
        return {"embeddings": self.code[feeds["tokens"]]}

    def _head(self, feeds: dict[str, Array]) -> dict[str, Array]:
        logits = np.tanh(feeds["hidden"]) @ self.output * np.float32(self.sharpness)
        return {"top_logits": logits}

    def _target(self, feeds: dict[str, Array]) -> dict[str, Array]:
        new = feeds["embeddings"] * self.turn[feeds["positions"]]  # [N, S, d]
        seen = _visible(feeds["branch_bias"])
        branch = feeds["branch.past_key_values.0.key"][:, :, 0]  # [T, N, d]
        rows = np.concatenate([branch.transpose(1, 0, 2), new], axis=1)
        hidden = self._trunk(feeds) + seen @ rows
        present = new.transpose(1, 0, 2)[:, :, None]
        return {
            "hidden": hidden,
            "taps": new,
            "present.0.key": present,
            "present.0.value": present,
        }

    def _draft(self, feeds: dict[str, Array]) -> dict[str, Array]:
        context = feeds["taps"]
        block = feeds["block_embeddings"] * self.turn[feeds["block_positions"]]
        seen = _visible(feeds["branch_bias"])
        branch = feeds["branch.past_key_values.0.key"][:, :, 0]
        rows = np.concatenate([branch.transpose(1, 0, 2), context, block], axis=1)
        hidden = self._trunk(feeds) + seen @ rows + 0.3 * self.turn[feeds["block_positions"]]
        present = context.transpose(1, 0, 2)[:, :, None]
        return {"hidden": hidden, "present.0.key": present, "present.0.value": present}

    @staticmethod
    def _trunk(feeds: dict[str, Array]) -> Array:
        return _visible(feeds["trunk_bias"]) @ feeds["trunk.past_key_values.0.key"][:, 0]


def _visible(bias: Array) -> Array:
    return (bias == 0).astype(np.float32)


def tabular_graphs(
    folder: Path,
    vocab: int = 5,
    seed: int = 0,
    sharpness: float = 0.7,
    block: int = 4,
    scaffold_in_block: bool = True,
    trunk: int = 64,
    branch: int = 64,
) -> Graphs:
    """The runtime's own `Graphs` over four tabular engines."""
    digest = "0" * 64
    manifest = Manifest(
        name="tabular",
        target=TargetDims(
            layers=1, heads=1, kv_heads=1, head_dim=WIDTH, width=WIDTH, vocab=vocab, taps=[0]
        ),
        draft=DraftDims(
            layers=1,
            heads=1,
            kv_heads=1,
            head_dim=WIDTH,
            block=block,
            mask_token=vocab - 1,
            scaffold_in_block=scaffold_in_block,
        ),
        graphs={
            name: GraphFile(file=name, sha256=digest)
            for name in ("embed", "target", "draft", "head")
        },
        head_top_k=vocab,
        mask_token=vocab - 1,
        null_token=0,
        eos_token=0,
        limits=Limits(trunk=trunk, branch=branch, rollouts=16, max_position=POSITIONS),
        provenance=Provenance(target="none"),
    )
    bundle = Bundle(folder, manifest)
    return Graphs(bundle, lambda path: TabularEngine(path.name, vocab, seed, sharpness))


def scaffold_of(text: str, vocab: int = 5, small: tuple[int, ...] = (1, 2)) -> Scaffold:
    """A scaffold from a picture: digits are fixed tokens, `?` any token, `*` one of `small`,
    `|` starts the section that rollouts part at."""
    head, _, tail = text.partition("|")
    cells = head + tail
    allowed = np.zeros((2, vocab), np.bool_)
    allowed[0] = True
    allowed[1, list(small)] = True
    return Scaffold(
        tokens=np.asarray([VALUE if c in "?*" else int(c) for c in cells], np.int64),
        allowed_id=np.asarray([1 if c == "*" else 0 for c in cells], np.int64),
        allowed_sets=allowed,
        sections=(Span("head", 0, len(head)), Span("tail", len(head), len(cells))),
    )


def probabilities(
    graphs: Graphs, prompt: list[int], scaffold: Scaffold
) -> dict[tuple[int, ...], float]:
    """Every output's exact probability at temperature 1, straight from the definition."""
    target, head = graphs._engines["target"], graphs._engines["head"]
    assert isinstance(target, TabularEngine)
    done: dict[tuple[int, ...], float] = {(): 1.0}
    for i in range(len(scaffold)):
        longer: dict[tuple[int, ...], float] = {}
        for output, p in done.items():
            tokens = [*prompt, *output]
            rows = target.code[tokens] * target.turn[: len(tokens)]
            hidden = rows.sum(axis=0)[None, None]
            logits = head.run({"hidden": hidden}, {})["top_logits"][0, 0].astype(np.float64)
            logits = logits + scaffold.bias_at(np.asarray(i))
            share = np.exp(logits - logits.max())
            share /= share.sum()
            for token in np.flatnonzero(share):
                longer[(*output, int(token))] = p * float(share[token])
        done = longer
    return done
