"""The roofline: time = max(bytes / bandwidth, operations / compute) + blocks x launch.

Peak figures are never reached; three factors say how much of them is. They are the only fitted
numbers: one set for all modules and models, chosen on published single-sequence decoding rates
(TensorRT Edge-LLM 0.9 tables).
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.estimate.devices import WEIGHT_BITS, Device, Precision
from slipstream.estimate.shape import Largest, ModelShape, NetworkShape

ACTIVATIONS = "4 x widest rows + 2 x fp32 scores of the largest pass"
FORMULA = "max(bytes / (e_b x bandwidth), operations / (e_c x compute)) + blocks x t_block"


@dataclass(frozen=True)
class Factors:
    """How much of a data sheet arrives.

    Attributes:
        bandwidth: e_b, share of the published memory bandwidth.
        compute: e_c, share of the published dense rate.
        block: t_block in s, what a layer's kernels cost beside bytes and operations.
    """

    bandwidth: float = 0.9
    compute: float = 0.5
    block: float = 50e-6


@dataclass(frozen=True)
class Pass:
    """One run of one network: N rollouts, S rows each, over P trunk and T branch rows."""

    rollouts: int
    rows: float
    trunk: float
    branch: float
    context: float = 0.0  # a drafter's new context rows per rollout


class Roofline:
    """Seconds and bytes of one model on one device at one precision.

    Args:
        activations: bytes that passes compute in, where a builder reported them.
    """

    def __init__(
        self,
        model: ModelShape,
        device: Device,
        precision: Precision,
        factors: Factors | None,
        activations: float | None = None,
    ) -> None:
        self.model, self.device, self.precision = model, device, precision
        self.activations = activations
        self.factors = factors or Factors()
        self.rate = device.operations(precision)
        self.weight_bytes = WEIGHT_BITS[precision] / 8
        # below 16 bits only the target's matrices are quantized, as in published checkpoints: no
        # tables, no drafter, no vision tower
        self.table_bytes = self.draft_bytes = max(self.weight_bytes, 2.0)
        self.activation_bytes = 4.0 if precision == "fp32" else 2.0

    def network(self, network: NetworkShape, run: Pass) -> float:
        """s of a target or drafter pass, without embedding and head.

        Bytes: every weight once, the trunk once for all rollouts, each branch once. Operations: two
        for each weight and row, four for each attended row, head and head element.
        """
        stored = self.weight_bytes if network is self.model.target else self.draft_bytes
        rows, context = run.rollouts * run.rows, run.rollouts * run.context
        seen = run.trunk + run.rollouts * (run.branch + run.rows + run.context)
        columns = run.trunk + run.branch + run.rows + run.context
        state = 2.0 * run.rollouts * network.state * 4.0  # read and written, kept in fp32
        read = network.weights * stored + state
        read += seen * network.cache_row * self.activation_bytes
        attention = network.attention_layers * network.heads * network.head_dim
        operations = 2.0 * (rows * network.row_weights + context * network.context_weights)
        operations += 4.0 * rows * columns * attention
        return self._seconds(read, operations) + network.blocks * self.factors.block

    def head(self, rows: float) -> float:
        """s of the head over that many rows: the table, and fp32 logits written and read again."""
        logits = 2.0 * rows * self.model.vocab * 4.0
        table = self.model.table
        seconds = self._seconds(table * self.table_bytes + logits, 2.0 * rows * table)
        return seconds + self.factors.block

    def vision(self) -> float:
        """s of the vision tower over all pictures of a frame; 0 without cameras."""
        tower = self.model.vision
        if tower is None:
            return 0.0
        read = tower.weights * self.table_bytes
        return self._seconds(read, tower.operations) + tower.blocks * self.factors.block

    def _seconds(self, read: float, operations: float) -> float:
        by_bytes = read / (self.factors.bandwidth * self.device.bandwidth)
        return max(by_bytes, operations / (self.factors.compute * self.rate))

    def weights(self) -> float:
        """Bytes of all weights on the device."""
        model = self.model
        drafter = sum(network.weights for network in model.networks[1:])
        target = model.target.weights * self.weight_bytes
        tower = self.model.vision.weights if self.model.vision else 0
        return target + drafter * self.draft_bytes + (2 * model.table + tower) * self.table_bytes

    def cache(self, rollouts: int, branch: int | None = None) -> float:
        """Bytes of keys and values, trunk + N * branch, and of recurrent state.

        Args:
            branch: rows of one, where fewer than the model's limit will do.
        """
        networks, most = self.model.networks, self.model.branch_rows
        rows = self.model.trunk_rows + rollouts * min(most if branch is None else branch, most)
        kept = sum(network.cache_row for network in networks) * rows * self.activation_bytes
        return kept + sum(network.state for network in networks) * rollouts * 4.0

    def workspace(self, rollouts: int, prompt: int) -> float:
        """Bytes that the largest pass computes in, and its logits.

        Without a builder's word: four of the widest rows, and fp32 scores twice. TensorRT-RTX's own
        figures for the shipped planner are within 10 % of that.
        """
        model = self.model
        logits = rollouts * model.block * model.vocab * 4.0
        if self.activations is not None:
            return self.activations + logits
        largest = model.largest or Largest(prompt, rollouts, model.block)
        tower = model.vision
        pictures = 4.0 * tower.rows * tower.widest * self.activation_bytes if tower else 0.0
        return logits + max(
            pictures,
            self._pass_memory(1, largest.prompt, 0),
            self._pass_memory(largest.rollouts, largest.rows, model.branch_rows),
        )

    def _pass_memory(self, rollouts: int, rows: int, branch: int) -> float:
        target, columns = self.model.target, self.model.trunk_rows + branch + rows
        wide = 4.0 * rollouts * rows * target.widest * self.activation_bytes
        return wide + 2.0 * rollouts * target.heads * rows * columns * 4.0
