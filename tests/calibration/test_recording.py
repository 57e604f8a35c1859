"""What graphs are fed while they really plan: kinds of passes, copies of feeds, bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibration.recording import Recorder, Recording, record, usual_settings
from planners.planner import Planner
from runtime.decode import Decoder
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from runtime.graphs import Graphs
from runtime.settings import DecodeSettings, Sampling
from tests.calibration.recorded import graph, planner, recording, windows
from tests.runtime.engines.opaque import OpaqueDevice, opaque_graphs
from tests.runtime.filling import VOCAB, filling_graphs, scaffold_in
from tests.runtime.stepwise import step_graphs
from tests.runtime.tabular import tabular_graphs

PROMPT = np.asarray([1, 3, 0, 2, 4])
MAKE: dict[str, Callable[[Path], Graphs]] = {
    "self": filling_graphs,
    "dflash": lambda folder: tabular_graphs(folder, VOCAB),
    "eagle3": lambda folder: step_graphs(folder, VOCAB),
}
WARM = Sampling(temperature=0.5)
DRAFTED = DecodeSettings(method="dflash", block=24, rollouts=4, sampling=WARM)


def same(one: Recording, other: Recording) -> bool:
    return one.seen == other.seen and all(
        a.kind == b.kind and all(np.array_equal(a.feeds[name], b.feeds[name]) for name in a.feeds)
        for name, passes in one.passes.items()
        for a, b in zip(passes, other.passes[name], strict=True)
    )


def test_every_kind_of_pass_is_there() -> None:
    found = recording()
    assert set(found.seen["target"]) == {"prefill", "single", "verify"}
    assert set(found.seen["draft"]) == {"draft"}
    assert set(found.seen["head"]) == {"draft", "single", "verify"}
    assert set(found.seen["embed"]) == {"inputs"}
    assert found.seen["target"]["prefill"] == found.frames == 4
    for name, kinds in found.seen.items():
        for kind, count in kinds.items():
            assert len(found.feeds(name, kind)) == min(count, 8)
    assert len(found.feeds("target")) == 4 + 8 + 8


def test_both_parts_of_the_cache_are_filled() -> None:
    forked = [
        feeds
        for kind in ("verify", "single")
        for feeds in recording().feeds("target", kind)  # type: ignore[arg-type]
        if feeds["embeddings"].shape[0] == 4
    ]
    assert forked
    for feeds in forked:
        rows = feeds["embeddings"].shape[1]
        assert (feeds["trunk_bias"] == 0.0).sum() > 100  # the prompt and the prefix
        seen = feeds["branch_bias"][:, :, :-rows] == 0.0
        key = feeds["branch.past_key_values.4.key"]
        assert len(key) == seen.shape[2]
        assert np.abs(key[seen[0, 0]]).sum(axis=(1, 2, 3)).all()  # no row that is seen is empty
    assert max(int((f["branch_bias"][:, 0, :-1] == 0.0).any(axis=0).sum()) for f in forked) > 20


def test_a_recorded_pass_runs_again_to_the_bit() -> None:
    """Feeds are those from before it: an engine writes into the buffers that they are views of."""
    wanted: list[np.ndarray] = []
    graphs = planner().decoder.graphs
    recorder = Recorder(graphs.device, 10_000, 1 << 30, 0)

    class Kept:
        """An engine that keeps what it gave."""

        def __init__(self, engine: OnnxEngine) -> None:
            self.engine, self.inputs, self.outputs = engine, engine.inputs, engine.outputs

        def run(self, feeds, into):  # type: ignore[no-untyped-def]
            out = self.engine.run(feeds, into)
            wanted.append(out["hidden"].copy())
            return out

    def both(name, engine):  # type: ignore[no-untyped-def]
        return recorder.watch(name, Kept(engine) if name == "target" else engine)

    decoder = Decoder(graphs.wrapped(both), None)
    for window in windows()[100:600:250]:
        recorder.begin_frame()
        prompt, fork = planner().prompt(window.observation), planner().language.fork_section
        decoder.decode(prompt, planner().scaffold, DRAFTED, fork)
    found = recorder.recording().feeds("target")
    assert len(found) == len(wanted) > 10
    engine = OnnxEngine(graph("target"), threads=1)
    for feeds, hidden in zip(found, wanted, strict=True):
        assert all(array.base is None for array in feeds.values())
        np.testing.assert_array_equal(engine.run(feeds, {})["hidden"], hidden)


def test_the_planner_is_left_as_it_was_and_plans_the_same() -> None:
    window = windows()[300]
    settings = replace(DRAFTED, frame=window.observation.frame)
    before = planner().plan(window.observation, settings)
    one = record(planner(), [window], settings)
    after = planner().plan(window.observation, settings)
    np.testing.assert_array_equal(before.tokens, after.tokens)
    # every pass was seen: the prefill is not among those that a frame's stats count
    again = Planner(planner().bundle, planner().decoder.graphs, planner().threading)
    stats = again.plan(window.observation, settings).stats
    assert sum(one.seen["target"].values()) == stats.target_passes + 1
    assert sum(one.seen["draft"].values()) == stats.draft_passes


def test_the_same_seed_records_the_same_and_another_one_does_not() -> None:
    some = windows()[50:850:400]
    found = [record(planner(), some, DRAFTED, passes=3, seed=seed) for seed in (0, 0, 1)]
    assert same(found[0], found[1])
    assert not same(found[0], found[2])


def test_memory_is_bounded() -> None:
    some, settings = windows()[50:850:200], usual_settings(planner().bundle.manifest)
    limit = 12 << 20
    assert recording().nbytes > limit
    found = record(planner(), some, settings, passes=8, limit_bytes=limit)
    assert limit // 2 < found.nbytes <= limit
    assert {name: set(kinds) for name, kinds in found.seen.items()} == {
        name: set(kinds) for name, kinds in recording().seen.items()
    }
    for name, kinds in found.seen.items():
        assert all(found.feeds(name, kind) for kind in kinds)
    with pytest.raises(SlipstreamError, match="not even one of each kind"):
        record(planner(), some, settings, limit_bytes=1 << 20)


@pytest.mark.parametrize(
    ("drafter", "method"),
    [
        ("dflash", "dflash"),
        ("eagle3", "dflash"),
        ("self", "scaffold-spec"),
        ("self", "section-diffusion"),
    ],
)
def test_kinds_of_the_target_by_drafter(drafter: str, method: str, tmp_path: Path) -> None:
    graphs = MAKE[drafter](tmp_path)
    recorder = Recorder(graphs.device, 1000, 1 << 20, 0)
    decoder = Decoder(graphs.wrapped(recorder.watch), None)
    drafted = DecodeSettings(method=method, block=3, rollouts=3, sampling=WARM)  # type: ignore[arg-type]
    passes = drafts = 0
    frames = [drafted, drafted, DecodeSettings(method="ar")]
    for frame, settings in enumerate(frames):
        recorder.begin_frame()
        how = replace(settings, frame=frame)
        stats = decoder.decode(PROMPT, scaffold_in("?1??0?", "2???1??"), how, "s1").stats
        passes, drafts = passes + stats.target_passes, drafts + stats.draft_passes
    found = recorder.recording()
    own = drafter == "self"
    assert set(found.seen["target"]) == {"prefill", "verify", "single"} | (
        {"draft"} if own else set()
    )
    assert sum(found.seen["target"].values()) == passes + len(frames)
    if own:
        assert drafts == 0 < found.seen["target"]["draft"]
    else:
        assert found.seen["draft"] == {"draft": drafts}


def test_feeds_are_fetched_from_a_device(tmp_path: Path) -> None:
    device = OpaqueDevice()
    graphs = opaque_graphs(planner().bundle, device)
    recorder = Recorder(graphs.device, 4, 64 << 20, 0)
    decoder = Decoder(graphs.wrapped(recorder.watch), None)
    recorder.begin_frame()
    prompt = planner().prompt(windows()[400].observation)
    decoder.decode(prompt, planner().scaffold, DRAFTED, planner().language.fork_section)
    found = recorder.recording()
    engine = OnnxEngine(graph("target"), threads=1)
    for feeds in found.feeds("target"):
        assert all(type(array) is np.ndarray for array in feeds.values())
        assert np.isfinite(engine.run(feeds, {})["hidden"]).all()


def test_passes_before_the_first_frame_are_not_recorded() -> None:
    graphs = planner().decoder.graphs
    recorder = Recorder(graphs.device, 4, 1 << 20, 0)
    graphs.wrapped(recorder.watch).embed(np.zeros((1, 3), np.int32))
    assert recorder.recording().passes == {}


def test_the_usual_settings_run_on_what_there_is(tmp_path: Path) -> None:
    for drafter, make in MAKE.items():
        graphs = make(tmp_path)
        methods = [each.method for each in usual_settings(graphs.manifest)]
        assert methods == ["scaffold-spec" if drafter == "self" else "dflash"] * 3 + ["ar"]
        for settings in usual_settings(graphs.manifest):
            Decoder(graphs, None).decode(PROMPT, scaffold_in("?1??0?", "2???1??"), settings, "s1")
    alone = graphs.manifest.model_copy(update={"draft": None})
    assert [each.method for each in usual_settings(alone)] == ["ar"]


def test_no_pass_of_a_graph_is_an_error_that_says_so() -> None:
    found = record(planner(), windows()[:1], DecodeSettings(method="ar-scaffold"))
    with pytest.raises(SlipstreamError, match="no pass of draft was recorded"):
        found.feeds("draft")
    with pytest.raises(SlipstreamError, match="no pass of target") as caught:
        found.feeds("target", "draft")
    assert "1 prefill" in caught.value.found


@pytest.mark.parametrize(
    "wrong", [{"passes": 0}, {"limit_bytes": 0}, {"seed": -1}, {"windows": ()}, {"settings": ()}]
)
def test_nothing_to_record_is_refused(wrong: dict[str, object]) -> None:
    given = {"windows": windows()[:1], "settings": DRAFTED, **wrong}
    with pytest.raises(SlipstreamError, match="no passes can be recorded"):
        record(planner(), **given)  # type: ignore[arg-type]
