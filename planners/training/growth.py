"""Growth: a bigger target or block drafter that computes what a small one does.

After Net2Net (arXiv 1511.05641) and bert2BERT (arXiv 2110.07143):

- Channels of the residual stream are repeated r times. Matrices that write to it write every repeat
  alike, those that read it take a share of each; RMSNorm does not notice. The head would count
  every channel r times. Its rows may be the embedding's too (tied), so the last norm is divided
  instead.
- Attention heads and neurons are repeated, and what they put out is shared in the same way. Repeats
  stand beside their like, so that every query head stays with its key/value head.
- A block more is the one before it with nothing put out: `o_proj` and `down_proj` are 0 (LLaMA
  Pro, arXiv 2401.02415).

Repeats that were treated alike would learn alike. So their shares differ, by noise that adds up to
nothing over the repeats: the function stays (LEMON, arXiv 2310.07999).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import Qwen3Config

from planners.drafter_layouts import MASK_EMBEDDING
from planners.nets.block_drafter import BlockDrafter, BlockDrafterConfig
from runtime.errors import SlipstreamError

Config: TypeAlias = "Qwen3Config | BlockDrafterConfig"

NOISE = 0.25  # of the shares, in standard deviations of their matrix

# what the rows of a tensor are, and its columns
_SIDES = {
    "q_proj": ("heads", "width"),
    "k_proj": ("kv_heads", "width"),
    "v_proj": ("kv_heads", "width"),
    "k_proj_target": ("kv_heads", "width"),
    "v_proj_target": ("kv_heads", "width"),
    "o_proj": ("width", "heads"),
    "gate_proj": ("inner", "width"),
    "up_proj": ("inner", "width"),
    "down_proj": ("width", "inner"),
    "fc": ("width", "width"),
    "input_layernorm": ("width", ""),
    "post_attention_layernorm": ("width", ""),
    "hidden_norm": ("width", ""),
    MASK_EMBEDDING: ("width", ""),
    "layer_fusion_weights": ("layers", ""),
}
_TABLES, _LAST_NORM, _OUTPUTS = ("embed_tokens", "lm_head"), "norm", ("o_proj", "down_proj")

_WHOLE = ("hidden_size", "num_attention_heads", "num_key_value_heads")  # grow by whole factors
_ANY = ("intermediate_size", "num_hidden_layers")
# what else a drafter may have otherwise than the one it grows from
_FREE = {"max_position_embeddings", "block_size", "scaffold_in_block", "fusion_init"}


@dataclass(frozen=True, eq=False)
class Growth:
    """What of the small network each part of the big one repeats.

    Attributes:
        width: [d'] a channel of the stream each; inner: [inner'] a neuron each.
        heads, kv_heads: [H' * D] and [Hkv' * D], a row of the heads each.
        layers: [L'] a block each; its first repeat is itself, the others do nothing.
    """

    width: Tensor
    heads: Tensor
    kv_heads: Tensor
    inner: Tensor
    layers: Tensor

    def taps(self, small: tuple[int, ...]) -> tuple[int, ...]:
        """The blocks of the big target behind which the stream is that behind the small one's."""
        return tuple(int(torch.nonzero(self.layers == tap)[-1]) for tap in small)

    def weights(
        self, small: Mapping[str, Tensor], seed: int = 0, noise: float = NOISE
    ) -> dict[str, Tensor]:
        """The big network's state of the small one's.

        Args:
            seed: of the noise in the shares of repeats.
            noise: in standard deviations of each matrix.
        """
        generator = torch.Generator().manual_seed(seed)
        grown: dict[str, Tensor] = {}
        for name, weights in small.items():
            before, _, block = name.rpartition("layers.")
            number, _, inside = block.partition(".")
            if not number.isdigit():
                grown[name] = self._tensor(name, weights, noise, generator)
                continue
            for place in torch.nonzero(self.layers == int(number))[:, 0].tolist():
                tensor = self._tensor(name, weights, noise, generator)
                added = place > 0 and self.layers[place - 1] == self.layers[place]
                if added and _module(name) in _OUTPUTS:
                    tensor = torch.zeros_like(tensor)
                grown[f"{before}layers.{place}.{inside}"] = tensor
        return grown

    def _tensor(self, name: str, small: Tensor, noise: float, generator: torch.Generator) -> Tensor:
        module = _module(name)
        if module in _TABLES:
            return small[:, self.width]
        if module == _LAST_NORM:
            return small[self.width] / self.width.bincount()[self.width]
        if module not in _SIDES:
            return small
        rows, columns = _SIDES[module]
        big = small[getattr(self, rows)]
        if not columns or big.dim() == 1:
            return big
        read: Tensor = getattr(self, columns)
        size = int(read[-1]) + 1
        inputs = torch.arange(small.shape[1] // size)  # several taps, side by side
        return _shared(big, (inputs[:, None] * size + read).flatten(), noise, generator)


def growth_between(small: Config, big: Config) -> Growth:
    """How the one grows to the other.

    Raises:
        SlipstreamError: it does not: smaller sizes, no whole factor, or another kind of network.
    """
    for name in (*_WHOLE, *_ANY):
        old, new = int(getattr(small, name)), int(getattr(big, name))
        whole = name in _WHOLE
        if new < old or (whole and new % old):
            raise misfit(name, f"{old} or {'a multiple of it' if whole else 'more'}", new)
    wanted, found = _kept(small), _kept(big)
    for name in wanted:
        if wanted[name] != found.get(name):
            raise misfit(name, wanted[name], found.get(name))

    def repeats(name: str) -> Tensor:
        return _spread(int(getattr(small, name)), int(getattr(big, name)))

    entries = torch.arange(int(small.head_dim))
    heads, kv_heads = (
        (repeats(name)[:, None] * len(entries) + entries).flatten() for name in _WHOLE[1:]
    )
    width, inner, layers = (repeats(name) for name in (_WHOLE[0], *_ANY))
    return Growth(width, heads, kv_heads, inner, layers)


def warm_started_drafter(drafter: BlockDrafter, source: BlockDrafter, seed: int) -> BlockDrafter:
    """A new block drafter with another's weights, grown to its sizes.

    Its taps are taken in the other's order. Where its target has grown too, and they are the grown
    target's `Growth.taps`, it drafts what the other did.

    Args:
        seed: see `Growth.weights`.

    Raises:
        SlipstreamError: the two are of different kinds, or the new one is smaller.
    """
    growth = growth_between(source.config, drafter.config)
    drafter.load_state_dict(growth.weights(source.state_dict(), seed))
    return drafter


def misfit(name: str, expected: object, found: object) -> SlipstreamError:
    """Of a checkpoint that a network can't begin with: what of it does not fit."""
    return SlipstreamError(
        f"the checkpoint to start warm from does not fit: {name}",
        expected=str(expected),
        found=str(found),
        fix="change the sizes in the config, or warm_start to a checkpoint that fits",
    )


def _kept(config: Config) -> dict[str, Any]:
    """What growth leaves as it is."""
    if isinstance(config, Qwen3Config):
        names = ("head_dim", "rms_norm_eps", "rope_parameters", "tie_word_embeddings")
        return {name: getattr(config, name) for name in names}
    kept = {f.name: getattr(config, f.name) for f in fields(config)}
    free = {*_WHOLE, *_ANY, *_FREE, "target_layer_ids"}
    taps = len(config.target_layer_ids)
    kept = {name: value for name, value in kept.items() if name not in free}
    return {"kind": config.architecture, "number of taps": taps} | kept


def _spread(small: int, big: int) -> Tensor:
    """[big] which of `small` each repeats: in order, evenly, repeats side by side."""
    return torch.arange(big) * small // big


def _shared(weights: Tensor, index: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Columns [M, small] -> [M, big] whose repeats add up to what they repeat.

    Args:
        index: [big] which column each repeats.
    """
    repeats = index.bincount()
    drawn = torch.randn(len(weights), len(index), generator=generator)
    mean = torch.zeros(len(weights), len(repeats)).index_add_(1, index, drawn) / repeats
    uneven = (drawn - mean[:, index]) * noise * weights.std()
    return (weights[:, index] + uneven) / repeats[index]


def _module(name: str) -> str:
    """The last module on the way to a tensor."""
    return name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]
