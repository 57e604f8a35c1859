"""How the user wants a training carried out; nothing of the result depends on it but `threads`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """The options of `slipstream train`.

    Attributes:
        command: what the user gave, for advice.
        resume: go on with the run in the output folder.
        until: stop before this step; None trains to the end.
        threads: of torch; results repeat to the bit with the same number.
    """

    command: str
    resume: bool = False
    until: int | None = None
    device: str = "cpu"
    threads: int = 1

    def ends(self, steps: int) -> bool:
        """Whether a run of `steps` will be finished."""
        return self.until is None or self.until >= steps
