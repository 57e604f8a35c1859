"""Prompts with pictures: positions behind them, and what a bundle refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime.bundle import Manifest
from runtime.errors import SlipstreamError
from runtime.prompt import Prompt
from runtime.scaffold import VALUE
from runtime.script import Script
from tests.runtime.tabular import scaffold_of, tabular_graphs
from tests.runtime.test_reuse import RIG

TOKENS = np.array([1, 7, 9, 8, 2], np.int64)
PATCHES = np.zeros((RIG.rows, RIG.patch_size), np.float32)
BOTH = np.array([1, 7, 9, 8, 7, 9, 8], np.int64)


@pytest.fixture
def manifest(tmp_path) -> Manifest:
    plain = tabular_graphs(tmp_path, vocab=12).manifest
    target = plain.target.model_copy(update={"mrope": True})
    return plain.model_copy(update={"vision": RIG, "target": target})


def test_output_goes_on_behind_the_largest_position() -> None:
    places = np.array([[0, 1, 2, 3, 4], [0, 1, 9, 3, 4], [0, 1, 2, 3, 4]])
    prompt = Prompt(TOKENS, places, PATCHES)
    script = Script.of(prompt, scaffold_of("?1|?", vocab=12))
    assert script.tokens.tolist() == [1, 7, 9, 8, 2, VALUE, 1, VALUE]
    rotary = script.turned(np.array([[4, 5, 7]]))
    assert rotary.tolist() == [[[4, 10, 12]]] * 3
    longer = prompt.followed_by(np.array([3, 3]))
    assert longer.rotary(8).tolist() == script.rotary.tolist()
    assert longer.short_of(2).positions.tolist() == places.tolist()


def test_text_is_at_its_own_places() -> None:
    prompt = Prompt.of([1, 2, 3])
    assert prompt.rotary(9) is None
    positions = np.array([[3, 4]])
    assert Script.of(prompt, scaffold_of("?|?")).turned(positions) is positions
    assert prompt.picture_rows(RIG).tolist() == [-1, -1, -1]


def test_rows_of_pictures_count_through_all_cameras() -> None:
    assert Prompt(BOTH, None, PATCHES).picture_rows(RIG).tolist() == [-1, -1, 0, -1, -1, 1, -1]


def test_what_fits_is_taken(manifest: Manifest) -> None:
    Prompt(BOTH, np.tile(np.arange(7), (3, 1)), PATCHES).check(manifest)
    Prompt(BOTH, np.arange(7), PATCHES).check(manifest)
    Prompt(np.array([1, 2])).check(manifest)  # text alone


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"patches": None}, "2 picture tokens"),
        ({"patches": PATCHES[1:]}, f"shape [{RIG.rows - 1}, {RIG.patch_size}]"),
        ({"tokens": TOKENS}, "2 tokens that stand for picture rows"),
        ({"positions": np.zeros((2, 7), np.int64)}, "shape [2, 7]"),
    ],
)
def test_what_does_not_fit_is_named(manifest: Manifest, changes, says: str) -> None:
    with pytest.raises(SlipstreamError) as caught:
        replace(Prompt(BOTH, None, PATCHES), **changes).check(manifest)
    assert says in str(caught.value)


def test_a_text_bundle_refuses_pictures(tmp_path) -> None:
    with pytest.raises(SlipstreamError, match="no graph `vision`"):
        Prompt(TOKENS[:1], None, PATCHES).check(tabular_graphs(tmp_path).manifest)
