"""What trainings know of an output's sections: where they are, and what each counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runtime.errors import SlipstreamError
from runtime.scaffold import Scaffold


def section_numbers(scaffold: Scaffold) -> NDArray[np.int64]:
    """[L] the number of each place's section."""
    lengths = [span.stop - span.start for span in scaffold.sections]
    return np.repeat(np.arange(len(lengths)), lengths)


def section_weights(named: Mapping[str, float], scaffold: Scaffold) -> Tensor:
    """[L] the weight of each place, its section's; 1 where none is named."""
    of_section = torch.tensor([named.get(span.name, 1.0) for span in scaffold.sections])
    return of_section[torch.from_numpy(section_numbers(scaffold))]


def check_sections(field: str, named: Mapping[str, object], scaffold: Scaffold) -> None:
    """Insist on sections that the output has; raises SlipstreamError."""
    known = [span.name for span in scaffold.sections]
    if unknown := [name for name in named if name not in known]:
        raise SlipstreamError(
            f"the config's {field} names an unknown section",
            expected=" or ".join(known),
            found=unknown[0],
            fix=f"change {field}, or the output language",
        )
