"""Noisy blocks: which values a block hides, in pairs that hide complementary ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from planners.training.allowed import Allowed
from planners.training.blocks import Blocks, make_blocks
from planners.training.sections import section_numbers
from runtime.scaffold import Scaffold

LEAST = 1e-3  # no value is visible for sure
Shapes = Mapping[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class Noise:
    """Draws noisy blocks (Fast-dDrive, arXiv 2605.23163; complementary masks: 2509.26328).

    A pair has one anchor and one width. Each section in it draws the rate at which its values are
    hidden from a Beta distribution; the first block hides some values, the second the others.

    Attributes:
        section: [L] which section each place of the output is in.
        shapes: [sections, 2] alpha and beta.
        hidden: share of pairs that hide every value, in both blocks, as when drafting.
    """

    allowed: Allowed
    section: NDArray[np.int64]
    shapes: NDArray[np.float64]
    hidden: float
    mask_token: int

    @classmethod
    def of(
        cls, scaffold: Scaffold, allowed: Allowed, shapes: Shapes, hidden: float, mask_token: int
    ) -> Noise:
        """Sections that `shapes` does not name have (1, 1)."""
        table = [shapes.get(span.name, (1.0, 1.0)) for span in scaffold.sections]
        return cls(allowed, section_numbers(scaffold), np.asarray(table), hidden, mask_token)

    def blocks(
        self,
        tokens: Tensor,
        anchors: Tensor,
        widths: Tensor,
        block: int,
        rng: np.random.Generator,
        alike: bool = False,
    ) -> Blocks:
        """A blocks of B rows for each sequence; block a and block a + A/2 are a pair.

        Args:
            tokens: [N, S]
            anchors, widths: [N, A], A even; those of the second half count only in pairs that hide
                everything, which need not share them.
            alike: the same pairs hide everything in every sequence.

        Returns:
            Blocks whose `drafted` says which values are hidden.
        """
        count, half = len(tokens), anchors.shape[1] // 2
        drawn = rng.random((1 if alike else count, half)) < self.hidden
        whole = torch.from_numpy(drawn).to(tokens.device).expand(count, half)
        anchors, widths = (
            torch.cat([x[:, :half], torch.where(whole, x[:, half:], x[:, :half])], 1)
            for x in (anchors, widths)
        )
        laid = make_blocks(tokens, self.allowed.is_value, anchors, widths, block, self.mask_token)
        places = laid.positions.view(count, 2 * half, block)[:, :half] - self.allowed.prompt
        some = torch.from_numpy(self._some(places.cpu().numpy(), rng)).to(tokens.device)
        pair = torch.cat([some | whole[..., None], ~some | whole[..., None]], 1)
        hidden = laid.drafted & pair.flatten(1)
        shown = tokens.gather(1, laid.positions)
        return replace(laid, tokens=torch.where(hidden, self.mask_token, shown), drafted=hidden)

    def _some(self, places: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
        """[N, A/2, B] which rows to hide, at these places of the output."""
        alpha, beta = self.shapes.T
        rates = rng.beta(alpha, beta, (*places.shape[:2], len(self.shapes)))
        rates = (1.0 - LEAST) * rates + LEAST
        of_row = np.take_along_axis(rates, self.section[np.maximum(places, 0)], axis=-1)
        return np.less(rng.random(places.shape), of_row)
