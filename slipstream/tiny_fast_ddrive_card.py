"""The small Fast-dDrive planner's figures and its model card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from drives.baselines import BASELINES
from planners.nets.markov import GatedMarkovHead
from planners.training.acceptance import self_acceptance_length
from planners.training.data import Recorded
from planners.training.examples import Examples
from runtime.files import write_atomic
from slipstream.tiny_common import MOVING, Figures, driving_figures, figure_rows
from slipstream.tiny_data import SOURCES
from slipstream.training.config import SelfDraftConfig, TargetConfig

_ACCEPTANCE = 32  # windows; acceptance varies little between them


def measure(
    target: Qwen3ForCausalLM,
    windows: Recorded,
    examples: Examples,
    widths: Sequence[int],
    value_rows: bool,
    markov: GatedMarkovHead,
) -> Figures:
    """Greedy ADE@5s, baselines on the same windows, and acceptance lengths with these blocks."""
    figures, _, outputs = driving_figures(target, windows, examples)
    some = torch.linspace(0, len(windows) - 1, min(_ACCEPTANCE, len(windows))).long()
    words = examples.prompts(windows[some.numpy()]), outputs[some], examples.scaffold
    for width in widths:
        mask = examples.tokenizer.mask
        figures[f"acceptance {width}"] = self_acceptance_length(
            target, *words, width, mask, value_rows=value_rows, markov=markov
        )
    return figures


def write_card(
    path: Path,
    figures: dict[str, Figures],
    target: TargetConfig,
    sasd: SelfDraftConfig,
    markov: SelfDraftConfig,
) -> None:
    """Write the model card, README.md beside the checkpoints."""
    write_atomic(path, card(figures, target, sasd, markov))


def card(
    figures: dict[str, Figures],
    target: TargetConfig,
    sasd: SelfDraftConfig,
    markov: SelfDraftConfig,
) -> str:
    """The model card's text.

    Args:
        figures: of each drive, from `measure`.
        sasd, markov: of the two trainings that make it draft.
    """
    widths, sizes, training = markov.evaluation.widths, target.sizes, sasd.training
    assert sizes is not None, "it is trained from nothing"
    heads = " | ".join(BASELINES[name].label for name in MOVING)
    lengths = " | ".join(f"acceptance {width}" for width in widths)
    table = figure_rows(figures, widths)
    rows = "of the rows that a value is read from" if training.value_rows else "of all its rows"
    sources = "\n".join(f"- {source}" for source in SOURCES)
    weights = ", ".join(f"{name} {weight:g}" for name, weight in training.weights.items())
    plan, draft, head = target.training.schedule, training.schedule, markov.training
    return f"""# fast-ddrive: a small planner with Fast-dDrive's output

A small language model that reads three seconds of ego motion as text, writes the JSON of
Fast-dDrive (arXiv 2605.23163), and drafts it itself. It shows that decoder at work. It is not
the authors' model, and it sees no camera, no map and no other road user: **it must not drive a
vehicle.**

- `self/`: Qwen3, {sizes.num_hidden_layers} layers, width {sizes.hidden_size}, vocabulary
  {sizes.vocab_size}, bf16; it drafts blocks of {markov.drafter.block} values of the schema, with a
  gated Markov head of rank {markov.drafter.markov_rank} (`markov.safetensors`). Training leaves
  `target/` beside it, the same before it learnt to, and `sasd/`, the same without the head.
- `bundle/`: `self/` as ONNX graphs.

## Figures

Greedy decoding of `self/`. ADE@5s in m (20 points at 4 Hz) against the driven path, beside the
baselines on the same windows; acceptance length in tokens a verification (bonus and fixed tokens
counted) with blocks of so many tokens.

| drive | windows | greedy | {heads} | parsed | {lengths} |
| --- | --- | --- | --- | --- | --- | --- | --- |{" --- |" * len(widths)}
{table}

## Data

{sources}
- Boreas objects v1, two stretches of 10 s with labelled road users, University of Toronto

Boreas is licensed CC BY 4.0, comma2k19 MIT. The weights are derived from ego motion and, in Boreas
objects v1, from whether a labelled car, pedestrian or cyclist was in the corridor ahead. Everywhere
else `critical_objects` are labelled `unknown`, and so the planner says `unknown`. Explanations are
templates filled with facts of the motion; phrases and waypoints are computed from the driven path.

## Training

- Target: begun with the tiny planner's blocks; {plan.steps} steps of {target.training.batch}
  windows, AdamW, peak rate {plan.peak:g}, seed {target.training.seed}.
- Drafting (SASD): {draft.steps} steps of {training.batch} outputs of the target, out of
  {sasd.responses.count}; every block of the schema in two noisy rows that hide complementary
  values, or, in {training.hidden:.0%} of the pairs, all ({training.restarts:.0%} of the second ones
  from a token inside on), {rows}; causal
  {training.causal:g}, keep {training.keep:g}, peak rate {draft.peak:g}, seed {training.seed};
  weights {weights}.
- Markov head: {head.schedule.steps} steps of {head.batch} of {markov.responses.count} outputs, with
  every value hidden; peak rate {head.schedule.peak:g}, seed {head.seed}. Nothing else changes.

`make train-fast-ddrive` repeats all of it (settings: `configs/fast-ddrive`).
"""
