"""A light head: a drafted token depends on the token before it (DSpark, arXiv 2607.05147)."""

from __future__ import annotations

from torch import Tensor, nn


class MarkovHead(nn.Module):
    """B(x) = W2 W1[x]: what the token before, x, adds to a slot's logits; rank r.

    A block drafter alone gives every slot a distribution of its own. Tensor names are the published
    ones: `markov_w1.weight` and `markov_w2.weight`, both [V, r].
    """

    def __init__(self, vocab: int, rank: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)

    def forward(self, previous: Tensor) -> Tensor:
        """Tokens before each slot [...] -> what is added to its logits [..., V]."""
        bias: Tensor = self.markov_w2(self.markov_w1(previous))
        return bias
