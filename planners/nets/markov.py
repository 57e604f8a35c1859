"""Light heads: a drafted token depends on the token before it."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from runtime.errors import SlipstreamError
from runtime.files import write_atomic
from runtime.markov import GATE, MARKOV, TABLES


class MarkovHead(nn.Module):
    """B(x) = W2 W1[x]: what the token before, x, adds to a slot's logits; rank r (DSpark, arXiv
    2607.05147).

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


class GatedMarkovHead(nn.Module):
    """B(x, h) = W2 ((1 + G h) * W1[x]): the same, gated by the state h that the slot is read from.

    As DFlash 2 scores a candidate behind the token before. It adds nothing until it is trained.

    Args:
        vocab: V; rank: r; width: d.
    """

    def __init__(self, vocab: int, rank: int, width: int) -> None:
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)
        self.markov_gate = nn.Linear(width, rank, bias=False)
        nn.init.normal_(self.markov_w1.weight, std=0.3)
        nn.init.zeros_(self.markov_w2.weight)
        nn.init.normal_(self.markov_gate.weight, std=width**-0.5)

    @property
    def rank(self) -> int:
        return self.markov_w1.embedding_dim

    def forward(self, previous: Tensor, hidden: Tensor) -> Tensor:
        """Tokens before each slot [...], states [..., d] -> what its logits get [..., V]."""
        gate = 1.0 + self.markov_gate(hidden)
        bias: Tensor = self.markov_w2(gate * self.markov_w1(previous))
        return bias

    def save(self, folder: Path) -> None:
        """Write the tables in bf16."""
        tables = {name: getattr(self, name).weight for name in (*TABLES, GATE)}
        tables = {name: t.detach().to(torch.bfloat16).contiguous() for name, t in tables.items()}
        write_atomic(folder / MARKOV, save(tables))

    @classmethod
    def load(cls, folder: Path) -> GatedMarkovHead:
        """Read the tables that `save` wrote, as fp32.

        Raises:
            SlipstreamError: no such file, or a damaged one.
        """
        try:
            tables = load_file(folder / MARKOV)
            (vocab, rank), width = tables[TABLES[0]].shape, tables[GATE].shape[-1]
            head = cls(vocab, rank, width)
            head.load_state_dict({f"{name}.weight": t.float() for name, t in tables.items()})
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise SlipstreamError(
                f"{folder / MARKOV} can't be read",
                expected="the Markov head that config.json speaks of",
                found=str(error),
                fix="copy the whole checkpoint again",
            ) from error
        return head
