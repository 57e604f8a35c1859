"""A Markov head's tables: what they add by formula, and the file they are read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from runtime.errors import BundleError
from runtime.markov import FEW as FEW_ROWS
from runtime.markov import TABULATED_UP_TO, Markov


def test_a_large_vocabulary_is_scored_at_its_candidates_only() -> None:
    """Without a table of all pairs; the numbers are the same."""
    rng, vocab = np.random.default_rng(4), TABULATED_UP_TO + 1
    w1, w2 = rng.normal(size=(2, vocab, 6)).astype(np.float32)
    previous, tokens = rng.integers(0, vocab, (2, 3)), rng.integers(0, vocab, (2, 3, 7))
    expected = np.einsum("nkr,nkcr->nkc", w1[previous], w2[tokens])
    np.testing.assert_allclose(Markov(w1, w2).bias(previous, tokens), expected, rtol=1e-5)
    small = Markov(w1[:-1], w2[:-1]).bias(previous % 900, tokens % 900)
    expected = np.einsum("nkr,nkcr->nkc", w1[previous % 900], w2[tokens % 900])
    np.testing.assert_allclose(small, expected, rtol=1e-5, atol=1e-5)
    # one slot's candidates behind several tokens
    shared = Markov(w1, w2).bias(previous, tokens[:, :1])
    np.testing.assert_allclose(
        shared, np.einsum("nkr,ncr->nkc", w1[previous], w2[tokens[:, 0]]), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("vocab", [10, 200], ids=["most tokens", "few of many"])
@pytest.mark.parametrize("tokens_before", [(4,), (4, 3)], ids=["one before", "several"])
def test_a_gate_weighs_what_the_token_before_adds(
    vocab: int, tokens_before: tuple[int, ...]
) -> None:
    """By the formula, slot by slot, whichever of the two products is cheaper."""
    rng = np.random.default_rng(5)
    w1, w2 = rng.normal(size=(2, vocab, 6)).astype(np.float32)
    gate, hidden = rng.normal(size=(6, 8)), rng.normal(size=(4, 8))
    head = Markov(w1, w2, gate.astype(np.float32))
    gates = head.gates(hidden.astype(np.float32))
    assert gates is not None
    assert gates.shape == (4, 6)
    tokens = np.sort(rng.integers(0, vocab, (4, 7)), axis=1)
    assert (vocab > 7 * FEW_ROWS) == (vocab == 200), "both ways are taken"
    previous = rng.integers(0, vocab, tokens_before)
    shown = tokens if previous.ndim == 1 else tokens[:, None]
    found = head.bias(previous, shown, gates)
    assert found.shape == (*tokens_before, 7)
    for at in np.ndindex(*tokens_before):
        g = 1 + gate @ hidden[at[0]]
        wanted = w2[tokens[at[0]]].astype(np.float64) @ (g * w1[previous[at]])
        np.testing.assert_allclose(found[at], wanted, rtol=1e-4, atol=1e-4)
    # and slots that no state gates are those of the same head without a gate
    plain = head.bias(previous, shown, head.ungated(4))
    np.testing.assert_allclose(plain, Markov(w1, w2).bias(previous, shown), rtol=1e-4, atol=1e-4)


def tables(**changes: np.ndarray | None) -> dict[str, np.ndarray]:
    found = {f"markov_w{i}": np.ones((4, 2), np.float32) for i in (1, 2)} | changes
    return {name: table for name, table in found.items() if table is not None}


def test_tables_are_read_back(tmp_path: Path) -> None:
    w1, w2 = np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)
    save_file({"markov_w1": w1, "markov_w2": w2}, tmp_path / "markov.safetensors")
    head = Markov.load(tmp_path / "markov.safetensors", 4)
    every = np.arange(4)
    np.testing.assert_allclose(
        head.bias(every, np.broadcast_to(every, (4, 4))), w1 @ w2.T, rtol=1e-6
    )


GATE = {"markov_gate": np.ones((2, 3), np.float32)}


def test_a_gate_is_read_back(tmp_path: Path) -> None:
    gate = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    save_file(tables(markov_gate=gate), tmp_path / "markov.safetensors")
    head = Markov.load(tmp_path / "markov.safetensors", 4, 3)
    hidden = np.asarray([[1.0, -2.0, 0.5]], np.float32)
    found = head.gates(hidden)
    assert found is not None
    np.testing.assert_allclose(found, 1 + hidden @ gate.T, rtol=1e-6)


@pytest.mark.parametrize(
    ("content", "width"),
    [
        (tables(), 3),
        (tables(**GATE), None),
        (tables(**GATE), 4),
        (tables(markov_gate=np.ones((3, 2), np.float32)), 3),
        (tables(markov_gate=np.ones(3, np.float32)), 3),
        (tables(markov_gate=np.full((2, 3), np.nan, np.float32)), 3),
        (tables(markov_gate=np.full((2, 3), np.inf, np.float32)), 3),
    ],
    ids=["missing", "not asked for", "width", "turned", "flat", "nan", "infinite"],
)
def test_a_gate_that_does_not_fit_is_refused(tmp_path: Path, content, width: int | None) -> None:
    save_file(content, tmp_path / "markov.safetensors")
    with pytest.raises(BundleError, match="is no Markov head") as caught:
        Markov.load(tmp_path / "markov.safetensors", 4, width)
    assert "markov_gate" in caught.value.expected
    assert caught.value.fix


@pytest.mark.parametrize(
    ("content", "vocab"),
    [
        (tables(markov_w2=None), 4),
        (tables(markov_w3=np.ones(1)), 4),
        (tables(markov_w2=np.ones((4, 3), np.float32)), 4),
        (tables(markov_w1=np.ones(4, np.float32)), 4),
        (tables(markov_w1=np.full((4, 2), np.nan, np.float32)), 4),
        (tables(), 5),
    ],
)
def test_tables_that_do_not_fit_are_refused(tmp_path: Path, content, vocab: int) -> None:
    save_file(content, tmp_path / "markov.safetensors")
    with pytest.raises(BundleError, match="is no Markov head") as caught:
        Markov.load(tmp_path / "markov.safetensors", vocab)
    assert caught.value.fix


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "markov.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(BundleError, match="is no Markov head"):
        Markov.load(tmp_path / "markov.safetensors", 4)
    with pytest.raises(BundleError, match="is no Markov head"):
        Markov.load(tmp_path / "nowhere.safetensors", 4)
