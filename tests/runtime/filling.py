"""A tabular target that fills blocks of masks itself, and section diffusion once more, by hand.

Its rows also know their own place, so that the slots of a block differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from runtime.bundle import Bundle, DraftDims, Manifest
from runtime.draws import Draws
from runtime.graphs import Graphs
from runtime.markov import GATE, TABLES
from runtime.sampling import distribution, restrict
from runtime.scaffold import VALUE, Scaffold, Span
from runtime.settings import Sampling
from tests.runtime.tabular import WIDTH, TabularEngine, tabular_graphs

Array = NDArray[Any]
VOCAB = 6


class FillingEngine(TabularEngine):
    """The tabular target, whose rows know their own place."""

    def _target(self, feeds: dict[str, Array]) -> dict[str, Array]:
        out = super()._target(feeds)
        return {**out, "hidden": out["hidden"] + self.turn[feeds["positions"]]}


def filling_graphs(
    folder: Path,
    block: int = 4,
    sharpness: float = 2.0,
    value_rows: bool = False,
    markov: Literal["plain", "gated"] | None = None,
) -> Graphs:
    """The runtime's own `Graphs` over three engines, and a Markov head's tables."""
    base = tabular_graphs(folder, VOCAB, block=block).manifest
    assert base.draft is not None
    graphs = {name: file for name, file in base.graphs.items() if name != "draft"}
    own: dict[str, Any] = {"method": "self", "value_rows": value_rows}
    if markov:
        rng = np.random.default_rng(11)
        tables = {name: rng.normal(size=(VOCAB, 3)).astype(np.float32) for name in TABLES}
        if markov == "gated":
            tables[GATE] = rng.normal(size=(3, WIDTH)).astype(np.float32)
        save_file(tables, folder / "markov.safetensors")
        own |= {"markov": "markov.safetensors", "markov_gated": markov == "gated"}
    draft = DraftDims(**{**base.draft.model_dump(), **own})
    manifest = Manifest(**{**dict(base), "draft": draft, "graphs": graphs})
    engine = lambda path: FillingEngine(path.name, VOCAB, 0, sharpness)  # noqa: E731
    return Graphs(Bundle(folder, manifest), engine)


def scaffold_in(*sections: str) -> Scaffold:
    """A scaffold from pictures of its sections, named s0, s1 ..; see `tabular.scaffold_of`."""
    cells, starts = "".join(sections), np.cumsum([0, *map(len, sections)]).tolist()
    allowed = np.zeros((2, VOCAB), np.bool_)
    allowed[0], allowed[1, [1, 2]] = True, True
    return Scaffold(
        tokens=np.asarray([VALUE if c in "?*" else int(c) for c in cells], np.int64),
        allowed_id=np.asarray([1 if c == "*" else 0 for c in cells], np.int64),
        allowed_sets=allowed,
        sections=tuple(
            Span(f"s{i}", start, start + len(text))
            for i, (start, text) in enumerate(zip(starts, sections, strict=False))
        ),
    )


def blocks_by_hand(scaffold: Scaffold, size: int) -> list[int]:
    """The definition, position by position; -1 in a section without values."""
    blocks, count = [-1] * len(scaffold), 0
    for span in scaffold.sections:
        values = [p for p in range(span.start, span.stop) if scaffold.is_value[p]]
        number = {value: count + i // size for i, value in enumerate(values)}
        for p in range(span.start, span.stop):
            if values:  # the nearest, and of two equally near ones the later
                nearest = min(values, key=lambda value: (abs(value - p), -value))
                blocks[p] = number[nearest]
        count += len(set(number.values()))
    return blocks


def filled_by_hand(
    graphs: Graphs,
    prompt: Sequence[int],
    scaffold: Scaffold,
    size: int,
    threshold: float,
    samplings: Sequence[Sampling],
    draws: Draws,
    rollout: int = 0,
) -> tuple[list[int], int]:
    """One output and how many passes filled it, straight from the definition, without any cache.

    Args:
        samplings: of each section.
    """
    engine, head = graphs.engine("target"), graphs.engine("head")
    assert isinstance(engine, FillingEngine)
    assert isinstance(head, FillingEngine)
    draft = graphs.manifest.draft
    assert draft is not None
    tokens: list[int] = scaffold.tokens.tolist()
    blocks, passes = blocks_by_hand(scaffold, size), 0
    for number in sorted(set(blocks) - {-1}):
        places = [p for p, block in enumerate(blocks) if block == number]
        section = scaffold.sections.index(scaffold.section_of(places[0]))
        while open_ := [p for p in places if tokens[p] == VALUE]:
            passes += 1
            shown = [*prompt, *tokens[: places[-1] + 1]]
            rows = [
                engine.code[draft.mask_token if t == VALUE else t] * engine.turn[j]
                for j, t in enumerate(shown)
            ]
            seen = np.asarray(rows, np.float32).sum(axis=0)
            sure, word = {}, {}
            for p in open_:
                hidden = seen + engine.turn[len(prompt) + p - 1]  # the row in front of it
                logits = head.run({"hidden": hidden[None, None]}, {})["top_logits"][0, 0]
                logits = restrict(logits, scaffold.bias_at(np.asarray(p)))
                sure[p] = float(distribution(logits, Sampling(1.0)).max())
                word[p] = int(logits.argmax())
                if samplings[section].temperature > 0:
                    at = np.asarray(len(prompt) + p)
                    race = draws.at_position(np.asarray(rollout), at)
                    word[p] = int(race.draw(distribution(logits, samplings[section])))
            stands = [p for p in open_ if sure[p] > threshold] or [max(open_, key=sure.__getitem__)]
            for p in stands:
                tokens[p] = word[p]
    return tokens, passes
