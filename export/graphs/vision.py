"""The vision graph: the patches of all of a rig's cameras to rows for the text decoder.

Grids are fixed at export, so that windows, the rows' order and both kinds of positions are
constants, and every shape is known. `export.graphs.vision_rows` says in which order rows lie.
"""

from __future__ import annotations

import numpy as np
import onnx

from export.checkpoint import Checkpoint, Stored
from export.graphs.builder import GraphBuilder
from export.graphs.vision_attention import VisionAttention
from export.graphs.vision_rows import RowOrder, learned_positions, row_order
from export.vision_configs import EPS, VisionConfig
from runtime.bundle import VisionDims

PREFIXES = ("model.visual.", "visual.")  # of the tower's tensors, newer and older checkpoints


def vision_graph(
    checkpoint: Checkpoint, config: VisionConfig, vision: VisionDims
) -> onnx.ModelProto:
    """patches [L, channels * temporal_patch * patch^2] -> image_embeddings [M, d].

    With DeepStack (arXiv 2406.04334) also image_deepstack [M, layers * d].
    """
    b = GraphBuilder("vision")
    patches = b.input("patches", [vision.rows, vision.patch_size])
    out = b.output("image_embeddings", [sum(vision.tokens), config.out_width])
    tower = _Tower(b, checkpoint, config, vision)
    x = tower.embed(patches)
    deep: list[str] = []
    for layer in range(config.layers):
        x = tower.block(layer, x)
        if layer in config.deepstack:
            deep.append(tower.deepstack(len(deep), x))
    tower.restore(tower.merge(x), out)
    if deep:
        stacked = b.output("image_deepstack", [sum(vision.tokens), len(deep) * config.out_width])
        joined = b.op("Concat", *deep, axis=-1) if len(deep) > 1 else deep[0]
        tower.restore(joined, stacked)
    return b.build()


def tower_prefix(checkpoint: Checkpoint) -> str:
    """What the names of the tower's tensors begin with.

    Raises:
        CheckpointError: the checkpoint has no tower.
    """
    name = "patch_embed.proj.weight"
    for prefix in PREFIXES:
        if prefix + name in checkpoint.tensors:
            return prefix
    checkpoint.tensor(PREFIXES[0] + name)  # says what is missing
    raise AssertionError(name)


class _Tower:
    """Writes one checkpoint's tower; x is [L, d] in the graph's order of rows."""

    def __init__(
        self, b: GraphBuilder, checkpoint: Checkpoint, config: VisionConfig, vision: VisionDims
    ) -> None:
        self.b, self.checkpoint, self.config = b, checkpoint, config
        self.prefix = tower_prefix(checkpoint)
        grids = [camera.grid for camera in vision.cameras]
        self.order: RowOrder = row_order(grids, config.merge, config.window_units)
        self.attention = VisionAttention(b, config, self.order)

    def embed(self, patches: str) -> str:
        """Project patches, in the order of their pixels as in the convolution's kernel."""
        c, b = self.config, self.b
        if not self.order.is_given:
            patches = b.op("Gather", patches, b.constant(self.order.patches.astype(np.int32)))
        shape = (c.width, 3, c.temporal_patch, c.patch, c.patch)
        kernel = self._stored("patch_embed.proj.weight", *shape).reshape(c.width, -1)
        x = b.op("MatMul", patches, b.weight("patch_embed", np.ascontiguousarray(kernel.T)))
        if c.family == "qwen2_5_vl":
            return x
        x = b.op(
            "Add", x, b.weight("patch_embed.bias", self._stored("patch_embed.proj.bias", c.width))
        )
        return b.op("Add", x, self._positions())

    def _positions(self) -> str:
        """Learned positions of every row; one table for frames of one grid."""
        c, b = self.config, self.b
        table = self._stored("pos_embed.weight", c.position_side**2, c.width).astype(np.float32)
        parts = []
        for i, frames in enumerate(self.order.frames):
            values = learned_positions(table, c.position_side, frames, c.merge)
            parts += [b.weight(f"positions.{i}", values)] * frames.count
        return b.op("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def block(self, layer: int, x: str) -> str:
        """Attention and MLP, each added to the residual stream."""
        b, c, at = self.b, self.config, f"blocks.{layer}"
        windowed = c.window is not None and layer not in c.full_layers
        qkv = self._linear(f"{at}.attn.qkv", self._norm(f"{at}.norm1", x), c.width, 3 * c.width)
        mixed = self.attention.mix(qkv, windowed)
        x = b.op("Add", x, self._linear(f"{at}.attn.proj", mixed, c.width, c.width))
        normed = self._norm(f"{at}.norm2", x)
        return b.op("Add", x, self._mlp(f"{at}.mlp", normed))

    def _mlp(self, at: str, x: str) -> str:
        b, c = self.b, self.config
        wide = (c.width, c.intermediate)
        if c.family == "qwen3_vl":
            inner = self._linear(f"{at}.linear_fc1", x, *wide)
            inner = b.op("Gelu", inner, approximate="tanh")
            return self._linear(f"{at}.linear_fc2", inner, *wide[::-1])
        gate = self._linear(f"{at}.gate_proj", x, *wide)
        gated = b.op("Mul", gate, b.op("Sigmoid", gate))
        inner = b.op("Mul", gated, self._linear(f"{at}.up_proj", x, *wide))
        return self._linear(f"{at}.down_proj", inner, *wide[::-1])

    def merge(self, x: str) -> str:
        """merge x merge neighbours to one row of the text decoder: [M, d]."""
        if self.config.family == "qwen2_5_vl":
            joined = self._joined(self._norm("merger.ln_q", x))
            return self._two_layers(joined, "merger.mlp.0", "merger.mlp.2")
        joined = self._joined(self._norm("merger.norm", x))
        return self._two_layers(joined, "merger.linear_fc1", "merger.linear_fc2")

    def deepstack(self, index: int, x: str) -> str:
        """A layer's output as rows of the text decoder: [M, d]; normed after the merge."""
        at = f"deepstack_merger_list.{index}"
        joined = self._norm(f"{at}.norm", self._joined(x), self._merged_width)
        return self._two_layers(joined, f"{at}.linear_fc1", f"{at}.linear_fc2")

    @property
    def _merged_width(self) -> int:
        return self.config.width * self.config.merge**2

    def _joined(self, x: str) -> str:
        return self.b.op("Reshape", x, self.b.constant([-1, self._merged_width]))

    def _two_layers(self, x: str, first: str, second: str) -> str:
        inner = self._linear(first, x, self._merged_width, self._merged_width)
        return self._linear(
            second, self.b.op("Gelu", inner), self._merged_width, self.config.out_width
        )

    def restore(self, merged: str, out: str) -> str:
        """Merged rows in the processor's order, under an output's name."""
        if self.order.is_given:
            return self.b.op("Identity", merged, out=out)
        index = self.b.constant(self.order.merged.astype(np.int32))
        return self.b.op("Gather", merged, index, out=out)

    def _norm(self, name: str, x: str, width: int | None = None) -> str:
        width = width or self.config.width
        weight = self.b.weight(name, self._stored(f"{name}.weight", width))
        if self.config.family == "qwen2_5_vl":
            return self.b.op("RMSNormalization", x, weight, epsilon=EPS)
        bias = self.b.weight(f"{name}.bias", self._stored(f"{name}.bias", width))
        return self.b.op("LayerNormalization", x, weight, bias, epsilon=EPS)

    def _linear(self, name: str, x: str, inner: int, outer: int) -> str:
        """x [.., inner] times a weight [outer, inner], plus its bias."""
        weight = np.ascontiguousarray(self._stored(f"{name}.weight", outer, inner).T)
        product = self.b.op("MatMul", x, self.b.weight(name, weight))
        bias = self.b.weight(f"{name}.bias", self._stored(f"{name}.bias", outer))
        return self.b.op("Add", product, bias)

    def _stored(self, name: str, *shape: int) -> Stored:
        return self.checkpoint.stored(self.prefix + name, *shape)
