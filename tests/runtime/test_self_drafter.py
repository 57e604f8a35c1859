"""A target that drafts for itself: its own cache, nothing left behind, all methods and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import ValidationError

from runtime.bundle import Bundle, DraftDims, Manifest
from runtime.costs import draft_pass, measure
from runtime.decode import Decoder
from runtime.engines.around import EngineAround
from runtime.gate import Width
from runtime.graphs import Graphs
from runtime.proof import suite
from runtime.proof.cases import Case
from runtime.proof.results import Check, Control
from runtime.proof.suite import Options, Suite
from runtime.script import Rollouts, Script
from runtime.self_drafter import SelfDrafter
from runtime.settings import DRAFTING, FOLLOWING, RULES, DecodeSettings, Sampling
from runtime.telemetry import FrameStats
from runtime.tree import causal
from tests.runtime.filling import filling_graphs
from tests.runtime.tabular import TabularEngine, scaffold_of, tabular_graphs

PROMPT = [1, 3, 0, 2, 4]
PICTURES = ["10?2?|3??1??*2?", "?????|?????", "12|3?4"]


def self_graphs(folder: Path, vocab: int = 6, scaffold_in_block: bool = True) -> Graphs:
    """The tabular target without a drafter beside it."""
    base = tabular_graphs(folder, vocab, block=4, scaffold_in_block=scaffold_in_block).manifest
    assert base.draft is not None
    graphs = {name: file for name, file in base.graphs.items() if name != "draft"}
    draft = DraftDims(**{**base.draft.model_dump(), "method": "self"})
    manifest = Manifest(**{**dict(base), "draft": draft, "graphs": graphs})
    return Graphs(Bundle(folder, manifest), lambda path: TabularEngine(path.name, vocab, 0, 0.7))


@pytest.fixture
def graphs(tmp_path: Path) -> Graphs:
    return self_graphs(tmp_path)


def outputs(graphs: Graphs, picture: str, settings: DecodeSettings) -> list[list[int]]:
    decoder = Decoder(graphs, None)
    scaffold = scaffold_of(picture, vocab=6)
    found: list[list[int]] = decoder.decode(
        np.asarray(PROMPT), scaffold, settings, "tail"
    ).tokens.tolist()
    decoder.cache.check_integrity()
    return found


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("method", DRAFTING)
@pytest.mark.parametrize("block", [2, 3, 4])
def test_greedy_output_is_that_of_ar(graphs: Graphs, picture: str, method: str, block: int) -> None:
    for rollouts in (1, 3):
        plain = outputs(graphs, picture, DecodeSettings("ar", rollouts=rollouts))
        settings = DecodeSettings(method, block=block, nodes=6, rollouts=rollouts)  # type: ignore[arg-type]
        assert outputs(graphs, picture, settings) == plain


def test_rules_that_follow_the_target_draw_what_it_draws(graphs: Graphs) -> None:
    plain = DecodeSettings("ar", rollouts=6, sampling=Sampling(1.0), seed=5)
    wanted = outputs(graphs, PICTURES[0], plain)
    for method in DRAFTING:
        for rule in set(RULES[method]) & set(FOLLOWING):
            again = replace(plain, method=method, accept=rule, block=4)
            assert outputs(graphs, PICTURES[0], again) == wanted


@pytest.mark.parametrize("scaffold_in_block", [True, False])
@pytest.mark.parametrize("forked", [False, True])
def test_drafts_are_read_from_the_row_before_over_anchor_and_cache(
    tmp_path: Path, scaffold_in_block: bool, forked: bool
) -> None:
    """By the tabular model's definition: a row's state is the sum of the rows that it sees."""
    graphs = self_graphs(tmp_path, scaffold_in_block=scaffold_in_block)
    engine, head = graphs.engine("target"), graphs.engine("head")
    assert isinstance(engine, TabularEngine)
    assert isinstance(head, TabularEngine)
    mask = graphs.manifest.draft.mask_token  # type: ignore[union-attr]
    script = Script.of(np.asarray(PROMPT), scaffold_of("?2?|4?1????", vocab=6))
    limits = graphs.manifest.limits
    cache = graphs.cache(graphs.manifest.target, limits.trunk, limits.branch)
    graphs.target(graphs.embed(np.asarray([PROMPT[:4]])), np.arange(4)[None], causal(4), cache)
    cache.commit(np.ones((1, 4), np.bool_))
    rollouts = Rollouts(np.zeros(1, np.int64), script.tokens[None].copy(), np.full(1, 4))
    if forked:  # two rollouts, one token apart
        rollouts = rollouts.forked(np.arange(2))
        cache.fork(2)
        rollouts.tokens[:, 5] = [1, 3]
        inputs = graphs.embed(rollouts.tokens[:, 4:6])
        graphs.target(inputs, np.tile([4, 5], (2, 1)), causal(2), cache)
        cache.commit(np.asarray([[True, True], [True, False]]))
        rollouts.start[:] = [6, 5]
    used = cache.trunk.used, cache.branches.used
    drafter, stats = SelfDrafter(graphs, cache), FrameStats()
    found = drafter.marginals(rollouts, script, Width(4, 3), len(script), stats)
    assert (cache.trunk.used, cache.branches.used) == used
    cache.check_integrity()
    wanted = []
    for n, start in enumerate(rollouts.start.tolist()):
        known = rollouts.tokens[n, : start + 1].tolist()
        ahead = script.tokens[start + 1 : start + 4].tolist()
        shown = [mask if t < 0 or not scaffold_in_block else t for t in ahead]
        rows = [engine.code[t] * engine.turn[i] for i, t in enumerate([*known, *shown])]
        hidden = np.asarray(rows).sum(axis=0, dtype=np.float32)
        logits = head.run({"hidden": hidden[None, None]}, {})["top_logits"][0, 0]
        wanted += [logits for token in ahead[:2] if token < 0]
    np.testing.assert_allclose(found.logits, wanted, atol=1e-5)
    assert stats.draft_passes == 1
    assert (found.block.width, found.block.draft_width) == (3, 4)


@pytest.mark.parametrize(
    ("telling", "markov"),
    [(0.0, None), (np.inf, None), (0.0, "gated")],
    ids=["own drafts", "blunted drafts", "a gated head's drafts"],
)
def test_the_whole_proof(
    tmp_path: Path, monkeypatch, telling: float, markov: Literal["gated"] | None
) -> None:
    monkeypatch.setattr(suite, "TELLING", telling)
    graphs = filling_graphs(tmp_path, sharpness=0.7, markov=markov)
    scaffold = scaffold_of(PICTURES[0], vocab=6)
    cases = [
        Case(frame, np.random.default_rng(frame).integers(0, 6, 5), scaffold, "tail")
        for frame in range(4)
    ]
    checks: list[Check] = []
    controls: list[Control] = []
    proof = Suite(graphs, None, cases, Options(methods=DRAFTING, samples=1200))
    whole = SelfDrafter.read
    for found in proof.run():
        if isinstance(found, Control):
            controls.append(found)
        else:
            checks += found
    assert [check for check in checks if not check.passed] == []
    assert {c.decoder for c in checks} == {
        *DRAFTING,
        *(f"{m}:{rule}" for m in DRAFTING for rule in RULES[m]),
    }
    assert [control for control in controls if not control.caught] == []
    assert proof.blunted == (telling > 0)
    assert SelfDrafter.read is whole


def test_a_draft_pass_that_is_committed_is_caught(
    graphs: Graphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is dropped must be dropped: rows that saw masks would change the target's word."""
    plain = outputs(graphs, PICTURES[1], DecodeSettings("ar"))
    given = SelfDrafter.marginals

    def kept(self: SelfDrafter, *args: object) -> object:
        found = given(self, *args)  # type: ignore[arg-type]
        self.target_cache.commit(np.ones((1, found.block.width), np.bool_))
        return found

    monkeypatch.setattr(SelfDrafter, "marginals", kept)
    assert outputs(graphs, PICTURES[1], DecodeSettings("dflash", block=4)) != plain


def test_no_second_cache(graphs: Graphs) -> None:
    decoder = Decoder(graphs, None)
    assert decoder.draft_cache is None
    scaffold = scaffold_of(PICTURES[1], vocab=6)
    sizes = [
        decoder.decode(np.asarray(PROMPT), scaffold, DecodeSettings(method, block=block), "tail")
        for method, block in (("ar", None), ("dflash", 4))
    ]
    assert sizes[0].stats.cache_bytes == sizes[1].stats.cache_bytes
    assert sizes[1].stats.draft_passes > 0


def test_rollouts_that_have_not_parted_are_drafted_for_once(graphs: Graphs) -> None:
    """The first draft behind the fork is one rollout's; the outputs are those of plain decoding."""
    rows: list[int] = []

    class Counted(EngineAround):
        def run(self, feeds: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
            rows.append(len(feeds["embeddings"]))
            return self._engine.run(feeds, into)

    seen = graphs.wrapped(lambda name, engine: Counted(engine) if name == "target" else engine)
    hot = DecodeSettings("dflash", "coupled", block=4, rollouts=3, sampling=Sampling(1.0))
    found = outputs(seen, PICTURES[0], hot)
    forked = rows[rows.index(3) - 1 :]
    assert forked[:2] == [1, 3], "a draft of one, verified for three"
    assert found == outputs(
        graphs, PICTURES[0], DecodeSettings("ar", rollouts=3, sampling=hot.sampling)
    )


def test_a_draft_costs_a_pass_of_the_target(graphs: Graphs) -> None:
    draft_pass(graphs, 2, 4, 16)()
    curve = measure(graphs)
    assert np.isfinite(curve.draft).all()
    assert (curve.draft > 0).all()
    decoder = Decoder(graphs, curve)
    gated = DecodeSettings("dflash", rollouts=3)
    scaffold = scaffold_of(PICTURES[0], vocab=6)
    plain = outputs(graphs, PICTURES[0], DecodeSettings("ar", rollouts=3))
    for _ in range(8):  # the gate tries its ways
        found = decoder.decode(np.asarray(PROMPT), scaffold, gated, "tail")
        assert found.tokens.tolist() == plain


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"layers": 2}, "draft.layers 2 of a target that has 1"),
        ({"markov_gated": True}, "drafts for itself, with markov"),
        (
            {"markov": "markov.safetensors", "markov_gated": True, "method": "dflash"},
            "drafts for itself, with markov",
        ),
        ({"head_top_k": 4}, "a head of its own"),
    ],
)
def test_a_manifest_that_contradicts_itself(
    graphs: Graphs, changes: dict[str, object], expected: str
) -> None:
    raw = graphs.manifest.model_dump(mode="json")
    assert Manifest.model_validate(raw) == graphs.manifest
    raw["draft"] |= changes
    with pytest.raises(ValidationError, match=expected):
        Manifest.model_validate(raw)


def test_only_a_targets_own_draft_leaves_rows_out(tmp_path: Path) -> None:
    raw = tabular_graphs(tmp_path).manifest.model_dump(mode="json")
    raw["draft"]["value_rows"] = True
    with pytest.raises(ValidationError, match="value_rows belongs to a target that drafts"):
        Manifest.model_validate(raw)
