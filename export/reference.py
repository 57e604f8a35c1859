"""The two sides of a parity check: transformers' own model in fp32, and passes of our graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils.logging import disable_progress_bar

from export.cache_rows import CacheRows, Floats, Ints
from export.configs import TargetConfig
from runtime.bundle import GraphName
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine


class Reference:
    """A target of transformers, fp32.

    Attributes:
        model: as transformers makes it, with its head.
        decoder: its text decoder, without the head.
    """

    def __init__(self, folder: Path, config: TargetConfig, taps: tuple[int, ...]) -> None:
        disable_progress_bar()
        kind = AutoModelForImageTextToText if config.vlm else AutoModelForCausalLM
        self.model: Any = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.decoder: Any = self.model.model.language_model if config.vlm else self.model.model
        self.config, self.taps = config, taps

    def run(
        self,
        tokens: Ints,
        positions: int | Ints,
        features: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One causal pass over whole sequences.

        Args:
            tokens: [N, S]
            positions: the first one, or all of them [3, N, S].
            features: [Ld, N, S, d] added after each of the first Ld blocks.

        Returns:
            hidden [N, S, d] and taps [N, S, K*d].
        """
        if isinstance(positions, int):
            rows = torch.arange(positions, positions + tokens.shape[1])[None]
        else:
            rows = torch.from_numpy(positions)
        after: dict[int, torch.Tensor] = {}
        hooks = [
            layer.register_forward_hook(
                lambda _, __, out, i=i: after.update({i: out if torch.is_tensor(out) else out[0]})
            )
            for i, layer in enumerate(self.decoder.layers)
        ]
        pictures = {}
        if features is not None:
            everywhere = torch.ones(tokens.shape, dtype=torch.bool)
            flat = [each.reshape(-1, each.shape[-1]) for each in features]
            pictures = {"visual_pos_masks": everywhere, "deepstack_visual_embeds": flat}
        hidden = self.decoder(torch.from_numpy(tokens), position_ids=rows, **pictures)[0]
        for hook in hooks:
            hook.remove()
        added = [] if features is None else list(features)
        tapped = [after[tap] + added[tap] if tap < len(added) else after[tap] for tap in self.taps]
        return hidden, torch.cat(tapped, -1)


def target_pass(
    engines: Mapping[GraphName, OnnxEngine],
    tokens: Ints,
    positions: Ints,
    trunk: CacheRows,
    branch: CacheRows,
    new: Floats,
    features: Floats | None = None,
) -> dict[str, Array]:
    """One pass of the target graph.

    Args:
        tokens: [N, S]
        positions: [N, S], or [3, N, S] where the graph has three rows of them.
        new: [N, S, S] the bias among the new rows.
        features: [N, S, Ld*d] of pictures; none by default.
    """
    n, s = tokens.shape
    engine = engines["target"]
    feeds: dict[str, Array] = {"tokens": tokens.astype(np.int32)}
    embeddings = engines["embed"].run(feeds, {})["embeddings"]
    past = np.broadcast_to(branch.bias[:, None], (n, s, branch.bias.shape[1]))
    extra: dict[str, Array] = {}
    if "deepstack" in engine.inputs:
        width = engine.inputs["deepstack"].shape[-1]
        assert isinstance(width, int)
        extra["deepstack"] = np.zeros((n, 1, width), np.float32) if features is None else features
    axes = len(engine.inputs["positions"].shape)
    shape = (3, n, s) if axes == 3 else (n, s)
    outputs = engine.run(
        {
            "embeddings": embeddings,
            "positions": np.ascontiguousarray(np.broadcast_to(positions, shape), np.int32),
            "trunk_bias": trunk.bias[0],
            "branch_bias": np.concatenate([past, new], -1),
            **trunk.arrays,
            **branch.arrays,
            **extra,
        },
        {},
    )
    return {name: array.copy() for name, array in outputs.items()}
