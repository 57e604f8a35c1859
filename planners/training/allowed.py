"""What may stand at each place of an output, for logits in torch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from runtime.scaffold import Scaffold

FORBIDDEN = -1e4  # added to the logits of tokens outside an allowed set; finite, for the KL


class Allowed:
    """Biases of the value places: one row per allowed set, not one per place.

    Attributes:
        is_value: [Lp + L] bool: which tokens of prompt and output the drafter has to fill.
    """

    def __init__(self, scaffold: Scaffold, prompt: int, device: torch.device) -> None:
        self.prompt = prompt
        rows = np.where(scaffold.allowed_sets, np.float32(0.0), np.float32(FORBIDDEN))
        self._rows = torch.from_numpy(rows).to(device)
        self._row_of = torch.from_numpy(scaffold.allowed_id).to(device)
        values = torch.from_numpy(scaffold.is_value).to(device)
        self.is_value = torch.cat([values.new_zeros(prompt), values])

    def bias(self, positions: Tensor) -> Tensor:
        """Positions of values in prompt and output [...] -> [..., V], 0 or FORBIDDEN.

        Other positions get the bias of some value; nothing may be read from it.
        """
        return self._rows[self._row_of[(positions - self.prompt).clamp_min(0)]]
