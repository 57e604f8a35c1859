"""The tiny planner's figures and its model card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3ForCausalLM

from drives.baselines import BASELINES
from planners.nets.block_drafter import BlockDrafter
from planners.observation import Intent
from planners.training.acceptance import acceptance_length
from planners.training.data import Recorded, command_of
from planners.training.evaluation import ade, greedy_paths
from planners.training.examples import Examples
from planners.training.target import TargetSettings
from runtime.files import write_atomic
from slipstream.tiny_common import MOVING, Figures, driving_figures, figure_rows
from slipstream.tiny_data import SOURCES
from slipstream.training.config import BlockDrafterConfig

Floats = NDArray[np.float64]
_ACCEPTANCE = 128  # windows; acceptance varies little between them


def measure(
    target: Qwen3ForCausalLM,
    drafter: BlockDrafter,
    windows: Recorded,
    examples: Examples,
    widths: Sequence[int],
) -> Figures:
    """Greedy ADE@5s, baselines on the same windows, and acceptance lengths with these blocks."""
    figures, paths, outputs = driving_figures(target, windows, examples)
    figures.update(turns(target, windows, paths, examples))
    some = torch.linspace(0, len(windows) - 1, min(_ACCEPTANCE, len(windows))).long()
    prompts = examples.prompts(windows[some.numpy()])
    for width in widths:
        figures[f"acceptance {width}"] = acceptance_length(
            drafter, target, prompts, outputs[some], examples.scaffold, width
        )
    return figures


def turns(
    target: Qwen3ForCausalLM, windows: Recorded, untold: Floats, examples: Examples
) -> Figures:
    """ADE@5s of the windows that turn, without and with the command that the driven path obeys."""
    told = replace(windows, intents=command_of(windows.futures))
    rows = np.flatnonzero(np.isin(told.intents, (Intent.LEFT, Intent.RIGHT)))
    if len(rows) == 0:
        return {"turns": 0}
    paths, _ = greedy_paths(target, told[rows], examples)
    return {
        "turns": len(rows),
        "turns untold": ade(untold[rows], windows[rows]),
        "turns told": ade(paths, windows[rows]),
    }


def write_card(
    path: Path,
    figures: dict[str, Figures],
    losses: Figures,
    target: TargetSettings,
    drafter: BlockDrafterConfig,
) -> None:
    """Write the model card, README.md beside the checkpoints."""
    write_atomic(path, card(figures, losses, target, drafter))


def card(
    figures: dict[str, Figures],
    losses: Figures,
    target: TargetSettings,
    drafter: BlockDrafterConfig,
) -> str:
    """The model card's text.

    Args:
        figures: of each drive, from `measure`.
        losses: the last logged `nats` of the target and `hit` of the drafter.
    """
    sizes, training, widths = drafter.drafter, drafter.training, drafter.evaluation.widths
    rows = figure_rows(figures, widths)
    told = [
        f"- {name}: {f['turns untold']:.2f} m without, {f['turns told']:.2f} m with the command "
        f"({f['turns']:.0f} windows)"
        for name, f in figures.items()
        if f["turns"]
    ]
    heads = " | ".join(BASELINES[b].label for b in MOVING)
    plan, draft, how = target.schedule, training.schedule, target.augmentation
    lengths = " | ".join(f"acceptance {width}" for width in widths)
    blocks = " and ".join(", ".join(map(str, widths)).rsplit(", ", 1))
    assert not isinstance(sizes.taps, int), "the shipped drafter's taps are named"
    taps = ", ".join(map(str, sizes.taps))
    low, high = how.scale
    command, taught = f"{how.command:.0%}", f"{target.teacher_share:.0%}"
    late = f"{1 - target.teacher_from:.0%}"
    return f"""# tiny: the planner that ships with slipstream

A small language model that reads three seconds of ego motion as text and writes a plan as text,
and a DFlash drafter (arXiv 2602.06036) for it. It is here to run everything for real on any
computer. It sees no camera, no map and no other road user: **it must not drive a vehicle.**

- `target/`: Qwen3, 5 layers, width 320, vocabulary 512, 7.5 M parameters, bf16.
- `drafter/`: DFlash, {sizes.layers} layers, taps after blocks {taps}, blocks of {sizes.block}, with
  a Markov head of rank {sizes.markov_rank} (arXiv 2607.05147), bf16. Fixed tokens stand in its
  blocks as themselves (`scaffold_in_block`).
- `bundle/`: both as ONNX graphs.

## Figures

Greedy decoding. ADE@5s in m (20 points at 4 Hz) against the driven path, beside the baselines on
the same windows; acceptance length in tokens per verification (bonus and scaffold counted) with
blocks of {blocks}.

| drive | windows | tiny | {heads} | parsed | {lengths} |
| --- | --- | --- | --- | --- | --- | --- | --- |{" --- |" * len(widths)}
{rows}

KITTI was not trained on. Of sequence 00 only a plain regression's error was looked at, before the
first training, to see what the motion history allows; no setting was chosen by it. The end of the
Boreas loop and KITTI 05, 07 and 09 were looked at while settings were chosen.

What the navigation command does, on windows that turn by more than 25 degrees (ADE@5s; the command
is derived from the driven path, so this is no fair comparison with anything else):

{_lines(told)}

## Data

{_lines(f"- {source}" for source in SOURCES)}

Boreas is licensed CC BY 4.0, comma2k19 MIT. The weights are derived from their ego motion alone;
images and lidar were not used. Windows every 0.1 s; of the Boreas loop all but its last 12 % and a
guard of 9 s. Labels are computed from the motion: facts now, a sentence from templates, a
manoeuvre, and the driven path at 1..5 s.

Each training window is changed at random: lengths scaled by {low} to {high}, left and right
exchanged, measurement noise on the history, a little noise on the label. {command} of
them carry the navigation command that the driven path carries out; the others say nothing. **The
figures above are without a command:** one derived from the recorded future would give the answer
away.

## Training

- Target: {plan.steps} steps of {target.batch} windows, AdamW, peak rate {plan.peak:g}, cosine,
  averaged weights ({plan.average}), seed {target.seed}; cross-entropy on value tokens, and a
  regression of the path from the middle blocks (weight {target.aid}) whose head is thrown away.
- In the last {late} of these steps {taught} of the labels are not the recorded future but the path
  of a small regression (a teacher, trained on the same windows): the middle of what may happen,
  which draws the greedy plan there. The facts, sentence and manoeuvre of such a label are those of
  the teacher's path.
- Drafter: on {drafter.responses.count} outputs of the rounded target, greedy and at temperatures
  0.5 and 1; {draft.steps} steps of {training.batch} outputs with {training.anchors} anchors each,
  peak rate {draft.peak:g}, seed {training.seed}; objective {training.objective.in_words()};
  {training.full_width:.0%} of the blocks {sizes.block} wide, others narrower.
- At the end, on training windows: target {losses["nats"]:.3f} nats a value token; the drafter is
  right at {losses["hit"]:.1%} of the drafted tokens.
- Both end rounded to bf16; the outputs that the drafter learnt from are the rounded target's.

`make train-tiny` repeats all of it (settings: `configs/tiny`).
"""


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
