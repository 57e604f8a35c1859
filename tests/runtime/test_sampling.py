from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from runtime.errors import SlipstreamError
from runtime.sampling import distribution, draw, restrict
from runtime.settings import DecodeSettings, Sampling

LOGITS = hnp.arrays(np.float32, (3, 7), elements=st.floats(-20, 20, width=32))


@given(LOGITS)
def test_temperature_one_is_softmax(logits) -> None:
    x = logits.astype(np.float64)
    expected = np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)
    assert np.allclose(distribution(logits, Sampling(1.0)), expected, atol=1e-12)


@given(LOGITS, st.integers(1, 7), st.floats(0.05, 1.0), st.floats(0.2, 3.0))
def test_top_k_then_top_p_keep_the_likeliest(logits, k, top_p, temperature) -> None:
    p = distribution(logits, Sampling(temperature, k, top_p))
    assert np.allclose(p.sum(axis=-1), 1.0)
    for row, x in zip(p, logits, strict=True):
        kept = np.flatnonzero(row)
        assert 1 <= len(kept) <= k
        # logits this close have the same probability, and then token order decides
        assert x[kept].min() >= np.delete(x, kept).max(initial=-np.inf) - 1e-12
        # of what top-k left, the nucleus is the smallest that reaches top_p
        whole = distribution(x[None], Sampling(temperature, k))[0]
        assert whole[kept].sum() >= top_p - 1e-9
        assert whole[kept].sum() - whole[kept].min() < top_p + 1e-9


def test_temperature_zero_is_argmax_and_ties_go_to_the_first() -> None:
    p = distribution(np.asarray([[1.0, 3.0, 3.0]], np.float32), Sampling())
    assert p.tolist() == [[0.0, 1.0, 0.0]]


def test_restricting_leaves_only_what_is_allowed() -> None:
    bias = np.asarray([0.0, -np.inf, 0.0], np.float32)
    assert restrict(np.asarray([[1.0, 9.0, 2.0]], np.float32), bias).argmax() == 2
    # the head's top k may hold nothing that is allowed
    lost = restrict(np.asarray([[-np.inf, 9.0, -np.inf]], np.float32), bias)
    assert distribution(lost, Sampling(1.0)).tolist() == [[0.5, 0.0, 0.5]]


@given(hnp.arrays(np.float64, 6, elements=st.floats(0, 1)).filter(lambda p: p.sum() > 0.01))
def test_draws_follow_the_distribution(p) -> None:
    u = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount(draw(np.broadcast_to(p, (len(u), 6)), u), minlength=6)
    assert (counts[p == 0] == 0).all()
    assert np.abs(counts / len(u) - p / p.sum()).max() < 2e-4


@pytest.mark.parametrize(
    "bad", [{"temperature": -1.0}, {"temperature": float("nan")}, {"top_k": -1}, {"top_p": 0.0}]
)
def test_bad_sampling(bad) -> None:
    with pytest.raises(SlipstreamError, match=next(iter(bad))):
        Sampling(**bad)


@pytest.mark.parametrize(
    "bad", [{"rollouts": 0}, {"block": 1}, {"method": "magic"}, {"accept": "all"}, {"seed": -1}]
)
def test_bad_settings(bad) -> None:
    with pytest.raises(SlipstreamError, match="out of range"):
        DecodeSettings(**bad)
