"""What stays in the trunks from frame to frame: as many rows as can, and the same outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.bundle import AttentionDims, CameraDims, VisionDims
from runtime.cache import TwoPartCache
from runtime.decode import Decoder
from runtime.errors import CacheFullError
from runtime.graphs import Graphs
from runtime.prompt import Prompt
from runtime.proof.cache import CacheWatcher
from runtime.proof.cases import Case, outputs
from runtime.reuse import LEAST, TrunkMemory
from runtime.settings import DecodeSettings, Sampling
from tests.runtime.stepwise import step_graphs
from tests.runtime.tabular import scaffold_of, tabular_graphs

HOT = Sampling(1.0)
SHARED = np.random.default_rng(0).integers(0, 4, 40)
# the model knows 64 positions: a prompt of 46, an output of 11
SCAFFOLD = scaffold_of("1?*|?1*?0*?")
RIG = VisionDims(
    family="qwen2_5_vl",
    cameras=[
        CameraDims(name=name, width=4, height=4, grid=(1, 2, 2), frames=1) for name in ("a", "b")
    ],
    patch=1,
    temporal_patch=2,
    merge=2,
    mean=(0.5, 0.5, 0.5),
    std=(1, 1, 1),
    image_token=9,
    vision_start=7,
    vision_end=8,
)


@pytest.fixture(params=["block", "stepwise"])
def graphs(request: pytest.FixtureRequest, tmp_path: Path) -> Graphs:
    return (tabular_graphs if request.param == "block" else step_graphs)(tmp_path)


def prompt(frame: int, shared: int = 40) -> np.ndarray:
    """46 tokens, the first `shared` the same in every frame."""
    own = np.random.default_rng(frame + 1).integers(0, 4, 46)
    return np.concatenate([SHARED[:shared], own[shared:]])


def common(one: int, other: int) -> int:
    return int(np.argmin(np.append(prompt(one) == prompt(other), False)))


@pytest.mark.parametrize("rollouts", [1, 3])
@pytest.mark.parametrize(
    ("method", "accept"),
    [("ar", None), ("dflash", "block"), ("dflash", "coupled"), ("ddtree", "traversal")],
)
def test_outputs_are_those_of_a_fresh_start(graphs, method, accept, rollouts) -> None:
    """Drafts decide what the rules for drawn tokens give: the drafter's rows are right as well."""
    settings = DecodeSettings(
        method, accept, block=4, nodes=6, rollouts=rollouts, sampling=HOT, prefix_sampling=HOT
    )
    going, fresh = Decoder(graphs, None), Decoder(graphs, None)
    ahead = int(graphs.manifest.draft.stepwise) if method != "ar" else 0
    for frame in range(12):
        fresh.forget()
        each = replace(settings, frame=frame)
        found = going.decode(prompt(frame), SCAFFOLD, each, "tail")
        expected = fresh.decode(prompt(frame), SCAFFOLD, each, "tail")
        assert np.array_equal(found.tokens, expected.tokens)
        assert expected.stats.kept_rows == 0
        assert found.stats.kept_rows == (common(frame - 1, frame) - ahead if frame else 0)
        assert found.stats.prompt_rows >= 45


@pytest.mark.parametrize("rollouts", [1, 4])
def test_kept_rows_are_what_a_fresh_prefill_gives(graphs, rollouts) -> None:
    settings = DecodeSettings("ddtree", block=4, nodes=6, rollouts=rollouts, sampling=HOT)
    case = Case(1, prompt(1), SCAFFOLD, "tail")
    decoded = outputs(Decoder(graphs, None), [case], settings)[0]
    watcher = CacheWatcher(graphs, case, decoded)
    decoder = Decoder(graphs, None)
    outputs(decoder, [Case(0, prompt(0), SCAFFOLD, "tail")], settings)
    decoder.observe = watcher
    assert np.array_equal(outputs(decoder, [case], settings)[0], decoded)
    assert not watcher.fault
    assert watcher.rounds > 0
    assert watcher.worst < 1e-5


def test_a_frame_again_keeps_what_it_kept_and_decoders_may_change(graphs) -> None:
    """A replay plans a frame with one decoder after another: none finds the other's prefill."""
    decoder = Decoder(graphs, None)
    plain, drafted = DecodeSettings("ar"), DecodeSettings("dflash", block=4)
    kept: dict[tuple[int, str], int] = {}
    for frame in range(4):
        order = (plain, drafted) if frame % 2 else (drafted, plain)
        for settings in (*order, order[0]):
            done = decoder.decode(prompt(frame), SCAFFOLD, replace(settings, frame=frame), "tail")
            rows = done.stats.kept_rows
            assert kept.setdefault((frame, settings.method), rows) == rows
    assert kept[0, "ar"] == kept[0, "dflash"] == 0
    ahead = int(graphs.manifest.draft.stepwise)
    for frame in range(1, 4):
        assert kept[frame, "ar"] == common(frame - 1, frame)
        assert kept[frame, "dflash"] == common(frame - 1, frame) - ahead


def test_a_broken_frame_leaves_nothing_behind(tmp_path: Path) -> None:
    graphs = tabular_graphs(tmp_path, trunk=50)
    decoder, settings = Decoder(graphs, None), DecodeSettings("ar")
    short = scaffold_of("?|?")
    decoder.decode(prompt(0), short, settings, "tail")
    with pytest.raises(CacheFullError):
        decoder.decode(prompt(1), SCAFFOLD, replace(settings, frame=1), "tail")
    done = decoder.decode(prompt(2), short, replace(settings, frame=2), "tail")
    assert done.stats.kept_rows == 0
    again = decoder.decode(prompt(3), short, replace(settings, frame=3), "tail")
    assert again.stats.kept_rows == common(2, 3)
    decoder.forget()
    done = decoder.decode(prompt(4), short, replace(settings, frame=4), "tail")
    assert done.stats.kept_rows == 0


def test_a_short_prefix_is_not_worth_keeping(graphs) -> None:
    decoder = Decoder(graphs, None)
    for frame in range(3):
        settings = DecodeSettings("ar", frame=frame)
        done = decoder.decode(prompt(frame, shared=20), SCAFFOLD, settings, "tail")
        assert done.stats.kept_rows == 0


def held_cache(rows: int, head_dim: int = 4) -> TwoPartCache:
    dims = AttentionDims(layers=1, heads=1, kv_heads=1, head_dim=head_dim)
    cache = TwoPartCache(dims, 128, 32)
    cache.reserve(rows)
    cache.commit(np.ones((1, rows), np.bool_))
    return cache


def kept(first: Prompt, second: Prompt, cache: TwoPartCache | None = None) -> int:
    cache = cache or held_cache(len(first))
    memory = TrunkMemory(RIG, 0)
    assert memory.keep(first, 0, 100, cache, None) == 0
    memory.remember(cache, None)
    return memory.keep(second, 1, 100, cache, None)


def pictured(**changes: np.ndarray) -> Prompt:
    """40 words, the pictures of two cameras with a word between, and 10 words."""
    tokens = np.array([*SHARED, 7, 9, 8, 7, 9, 8, *SHARED[:10]], np.int64)
    patches = np.zeros((RIG.rows, RIG.patch_size), np.float32)
    return replace(Prompt(tokens, np.tile(np.arange(56), (3, 1)), patches), **changes)


def test_pictures_and_positions_count_like_tokens() -> None:
    plain = pictured()
    assert plain.patches is not None
    assert kept(plain, pictured()) == 56
    for changed, rows in ((0, 41), (3, 41), (4, 44), (7, 44)):
        patches = plain.patches.copy()
        patches[changed, -1] = 1e-6
        assert kept(plain, pictured(patches=patches)) == rows
    turned = np.tile(np.arange(56), (3, 1))
    turned[1, 50:] += 1
    assert kept(plain, pictured(positions=turned)) == 50
    assert kept(plain, pictured(positions=None)) == 0
    assert (
        kept(plain, Prompt(plain.tokens[:45], np.tile(np.arange(45), (3, 1)), plain.patches)) == 45
    )


def test_the_first_frame_again_keeps_nothing() -> None:
    plain, cache, memory = pictured(), held_cache(56), TrunkMemory(RIG, 0)
    for _ in range(3):
        assert memory.keep(plain, 0, 100, cache, None) == 0
        memory.remember(cache, None)
    assert memory.keep(plain, 1, 100, cache, None) == 56


def test_rows_with_a_gap_are_not_kept() -> None:
    plain, cache = pictured(), held_cache(36)
    cache.reserve(4)
    cache.commit(np.array([[False, True, True, True]]))
    assert kept(plain, pictured(), cache) == 36
    assert LEAST == 32
    assert kept(plain, pictured(), held_cache(31)) == 0
