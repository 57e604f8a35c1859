"""The shipped checkpoint, loaded by transformers as it is, speaks like the bundle made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3ForCausalLM

import slipstream
from planners.prompt import prompt_text

BUNDLE = slipstream.shipped_bundle()
EXCERPT = Path(__file__).parents[1] / "data" / "boreas-excerpt"
PROMPTS = 20


@pytest.mark.skipif(not (BUNDLE / "bundle.json").is_file(), reason=f"no shipped bundle at {BUNDLE}")
def test_greedy_tokens_are_those_of_transformers() -> None:
    """One pass over the bundle's own output shows that each token is the argmax given its prefix,
    which is what greedy decoding with transformers would have produced token by token."""
    planner = slipstream.load(BUNDLE, threads=1)
    target = Qwen3ForCausalLM.from_pretrained(BUNDLE.parent / "target", dtype=torch.float32).eval()
    cut = slipstream.windows(slipstream.open_drive(EXCERPT)).windows
    frames = [cut[i] for i in np.linspace(0, len(cut) - 1, PROMPTS).astype(int)]
    bias = planner.scaffold.bias_at(np.arange(len(planner.scaffold)))
    for frame in frames:
        prompt = planner.tokenizer.encode(prompt_text(frame.observation))
        output = planner.plan(frame.observation, slipstream.DecodeSettings()).tokens[0]
        tokens = torch.tensor([[*prompt, *output.tolist()]])
        with torch.inference_mode():
            logits = target(tokens).logits[0, len(prompt) - 1 : -1].numpy()
        restricted = logits + bias
        chosen = restricted.argmax(axis=-1)
        differs = np.flatnonzero(chosen != output)
        # where two tokens are as likely to within rounding, either is the argmax
        gaps = restricted[differs, chosen[differs]] - restricted[differs, output[differs]]
        assert (gaps < 1e-3).all(), (frame.observation.frame, differs, gaps)
