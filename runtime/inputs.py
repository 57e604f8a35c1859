"""What passes read at the places of a frame's sequence: embeddings, and pictures in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import TwoPartCache
from runtime.engines.device import Buffer
from runtime.graphs import Graphs
from runtime.prompt import Prompt
from runtime.telemetry import FrameStats
from runtime.tree import causal

Array = NDArray[Any]
Ints = NDArray[np.int64]
Run = tuple[bool, Ints]  # of places in a row: whether pictures stand there, and which columns


class Inputs:
    """One frame's inputs. Rows of pictures stay on the device, from `vision` to the pass.

    Args:
        prompt: checked against the bundle.
    """

    def __init__(self, graphs: Graphs, prompt: Prompt) -> None:
        self.graphs, self.prompt = graphs, prompt
        vision = graphs.manifest.vision
        self._rows = prompt.picture_rows(vision) if prompt.patches is not None else None
        self._embeddings: Buffer | None = None
        self._deepstack: Buffer | None = None

    def encode(self, first: int, stats: FrameStats) -> None:
        """Run `vision`, unless no place from `first` on shows a picture."""
        if self._rows is None or not (self._rows[first:] >= 0).any():
            return
        assert self.prompt.patches is not None
        with stats.stage("encode"):
            self._embeddings, self._deepstack = self.graphs.vision(self.prompt.patches)

    def embed(self, tokens: Ints, places: Ints, draft: bool = False) -> Buffer:
        """[N, S, d] of tokens [N, S] at places [N, S] of the sequence, the same in every rollout
        where a picture stands.

        Args:
            draft: for the drafter, whose embedding of text may be its own.
        """
        rows = self._shown(places)
        embed = self.graphs.embed_draft if draft else self.graphs.embed
        if rows is None:
            return embed(tokens)
        text = np.cumsum(rows < 0) - 1  # place among the text's embeddings
        n, count = len(tokens), int((rows < 0).sum())
        words = embed(tokens[:, rows < 0]) if count else None
        parts: list[tuple[Buffer, Ints]] = []
        for pictured, columns in _runs(rows):
            if pictured:
                assert self._embeddings is not None, "encode comes first"
                parts.append((self._embeddings, np.tile(rows[columns], (n, 1))))
            else:
                assert words is not None
                parts.append((words, count * np.arange(n)[:, None] + text[columns]))
        mixed: Buffer = self.graphs.device.gather(parts)
        return mixed

    def deepstack(self, places: Ints) -> Buffer | None:
        """[N, S, Ld*d] what the target adds behind its first blocks, 0 for text; None: nothing."""
        rows = self._shown(places)
        if rows is None or self._deepstack is None:
            return None
        n = len(places)
        nothing = self.graphs.no_deepstack(1)
        features: Buffer = self.graphs.device.gather(
            [
                (self._deepstack, np.tile(rows[columns], (n, 1)))
                if pictured
                else (nothing, np.zeros((n, len(columns)), np.int64))
                for pictured, columns in _runs(rows)
            ]
        )
        return features

    def _shown(self, places: Ints) -> Ints | None:
        """[S] the pictures' rows at these places; None where there is text alone."""
        if self._rows is None or int(places.min()) >= len(self._rows):
            return None
        inside = places < len(self._rows)
        rows = np.where(inside, self._rows[np.where(inside, places, 0)], -1)
        assert (rows == rows[:1]).all(), "rollouts share the prompt"
        return rows[0] if (rows[0] >= 0).any() else None


def whole_pass(graphs: Graphs, prompt: Prompt, cache: TwoPartCache) -> tuple[Buffer, Buffer]:
    """hidden [1, S, d] and taps [1, S, K*d] of one causal pass over a whole prompt, whose rows are
    written into an empty cache and not committed."""
    inputs, places = Inputs(graphs, prompt), np.arange(len(prompt))[None]
    inputs.encode(0, FrameStats())
    embeddings, deepstack = inputs.embed(prompt.tokens[None], places), inputs.deepstack(places)
    turned = prompt.rotary(len(prompt))
    positions = places if turned is None else turned[..., None, :]
    return graphs.target(embeddings, positions, causal(len(prompt)), cache, deepstack)


def _runs(rows: Ints) -> Iterator[Run]:
    """Neighbouring columns [S] that show pictures, or don't."""
    pictured = rows >= 0
    ends = np.flatnonzero(np.diff(pictured)) + 1
    for columns in np.split(np.arange(len(rows)), ends):
        yield bool(pictured[columns[0]]), columns
