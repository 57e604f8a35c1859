"""Windows, rollouts and heads for the tests of a target that drafts ahead."""

from __future__ import annotations

import numpy as np

from runtime.marginals import Said
from runtime.markov import Markov
from runtime.sampling import distribution
from runtime.script import Rollouts, Script
from runtime.settings import Sampling
from runtime.window import (
    FRESH,
    Drafts,
    Window,
)
from tests.runtime.filling import VOCAB
from tests.runtime.tabular import WIDTH

PROMPT = np.asarray([1, 3, 0, 2, 4])


def logits_of(*tokens: int) -> np.ndarray:
    return np.log(np.full((len(tokens), VOCAB), 0.02) + 0.88 * np.eye(VOCAB)[list(tokens)])


def window_at(*places: int, token: int = 1) -> Window:
    """A fresh window with drafts, of a drafter without a Markov head."""
    m = len(places)
    drafts = Drafts(np.full(m, token), np.full(m, 0.9))
    return Window(np.asarray(places), Said(logits_of(*[token] * m)), np.full(m, FRESH), drafts)


def head_of(seed: int = 0, gated: bool = True) -> Markov:
    rng = np.random.default_rng(seed)
    w1, w2 = 2 * rng.normal(size=(2, VOCAB, 3)).astype(np.float32)
    return Markov(w1, w2, rng.normal(size=(3, WIDTH)).astype(np.float32) if gated else None)


def gated_window(head: Markov, *places: int, seed: int = 1) -> Window:
    """A fresh window whose drafts are still to be chosen."""
    rng, m = np.random.default_rng(seed), len(places)
    hidden = rng.normal(size=(m, WIDTH)).astype(np.float32)
    said = Said(rng.normal(size=(m, VOCAB)).astype(np.float32), head, head.gates(hidden))
    return Window(np.asarray(places), said, np.full(m, FRESH))


def by_hand(window: Window, rollouts: Rollouts, row: int) -> tuple[list[int], list[float]]:
    """The likeliest tokens of a window from left to right, and their probabilities."""
    tokens, drafts, sure = rollouts.tokens[row].copy(), list[int](), list[float]()
    said = window.said
    head = said.markov
    for slot, place in enumerate(window.places):
        logits = said.logits[slot].astype(np.float64)
        if head is not None:
            before = head._w1[tokens[place - 1]]
            before = before if said.gates is None else before * said.gates[slot]
            logits = logits + head._w2 @ before
        p = distribution(logits, Sampling(1.0))
        tokens[place] = p.argmax()
        drafts.append(int(p.argmax()))
        sure.append(float(p.max()))
    return drafts, sure


def rollouts_of(script: Script, *starts: int) -> Rollouts:
    n = len(starts)
    return Rollouts(np.arange(n), np.tile(script.tokens, (n, 1)), np.asarray(starts))
