"""Live figures: how well a drafter does on windows that it does not learn from."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from planners.nets.block_drafter import BlockDrafter
from planners.training.acceptance import acceptance_length
from planners.training.data import Recorded
from planners.training.examples import Examples
from planners.training.responses import respond
from slipstream.training.config import DrafterEvaluation


class HeldOut:
    """Live figures of a drafter on windows that it does not learn from.

    Attributes:
        names: of the figures: `tau16` is the acceptance length of greedy blocks of 16, `tau16 T1`
            that with the forked section at temperature 1.
    """

    def __init__(
        self,
        evaluation: DrafterEvaluation,
        target: Qwen3ForCausalLM,
        windows: Recorded,
        examples: Examples,
    ) -> None:
        self.evaluation, self.target, self.examples = evaluation, target, examples
        self.prompts = examples.prompts(windows).to(target.device)
        self._said = {heat: self._speak(heat) for heat in evaluation.temperatures}
        self.names = tuple(figure_name(w, heat) for heat in self._said for w in evaluation.widths)

    def outputs(self, heat: float) -> Tensor:
        """[M, L], the target's at this temperature."""
        return self._said[heat]

    def heats(self, heat: float) -> Tensor:
        """[L] the temperature of each place."""
        fork = self.examples.scaffold.section(self.examples.language.fork_section)
        heats = torch.zeros(len(self.examples.scaffold))
        heats[fork.start : fork.stop] = heat
        return heats

    def of(self, drafter: BlockDrafter) -> dict[str, float]:
        """Every figure of a block drafter."""
        return {
            figure_name(width, heat): acceptance_length(
                drafter,
                self.target,
                self.prompts,
                said,
                self.examples.scaffold,
                width,
                heats=self.heats(heat),
            )
            for heat, said in self._said.items()
            for width in self.evaluation.widths
        }

    def _speak(self, heat: float) -> Tensor:
        fork = self.examples.language.fork_section
        heats = {fork: torch.full((len(self.prompts),), heat)}
        return respond(self.target, self.prompts, self.examples.scaffold, heats, seed=1)


def figure_name(width: int, heat: float) -> str:
    """Of an acceptance length at a width and a temperature."""
    return f"tau{width}" + (f" T{heat:g}" if heat else "")
