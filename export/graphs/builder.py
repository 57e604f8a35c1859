"""A small writer of ONNX graphs: nodes, weights, named inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 23  # RMSNormalization and RotaryEmbedding
IR_VERSION = 11  # the one that goes with opset 23

Dims = Sequence[int | str]


class GraphBuilder:
    """Collects one graph. Tensors are known by name; `op` returns its output's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._known: set[str] = set()
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}

    def input(self, name: str, dims: Dims, *, integer: bool = False) -> str:
        """Declare an input: fp32, or int32."""
        self._inputs.append(_value(name, dims, integer))
        return name

    def output(self, name: str, dims: Dims, *, integer: bool = False) -> str:
        """Declare an output; some node writes a tensor of this name."""
        self._outputs.append(_value(name, dims, integer))
        return name

    def op(self, kind: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add a node with one output, called `out` if given."""
        return self.ops(kind, *inputs, out=[out] if out else 1, **attributes)[0]

    def ops(
        self, kind: str, *inputs: str, out: Sequence[str] | int, **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs: their names, or how many."""
        label = f"{kind}.{len(self._nodes)}"
        names = [f"{label}.{i}" for i in range(out)] if isinstance(out, int) else list(out)
        self._nodes.append(helper.make_node(kind, inputs, names, name=label, **attributes))
        return tuple(names)

    def constant(self, values: NDArray[Any] | Sequence[int]) -> str:
        """A small constant, kept once; a list of integers becomes int64 of one dimension."""
        array = values if isinstance(values, np.ndarray) else np.array(values, np.int64)
        key = (str(array.dtype), array.tobytes(), array.shape)
        if key not in self._constants:
            self._constants[key] = name = f"constant.{len(self._constants)}"
            self._weights.append(_tensor(name, array))
        return self._constants[key]

    def shape(self, *parts: str | list[int]) -> str:
        """An int64 shape tensor from computed parts (names) and fixed ones."""
        names = [part if isinstance(part, str) else self.constant(part) for part in parts]
        return self.op("Concat", *names, axis=0)

    def weight(self, name: str, values: NDArray[np.float32]) -> str:
        """A weight, fp32 when the graph runs; stored as bf16 where that is exact: half the file.

        The cast reads constants only, so a session folds it once, when it loads. A name stands for
        one weight: used again, it is stored once.
        """
        if name in self._known:
            return name
        self._known.add(name)
        if not is_bf16(values):
            self._weights.append(_tensor(name, values))
            return name
        return self.op("Cast", self.bf16(f"{name}.bf16", values), out=name, to=TensorProto.FLOAT)

    def bf16(self, name: str, values: NDArray[np.float32]) -> str:
        """A bf16 constant of values that are exact in bf16."""
        halves = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")
        self._weights.append(
            helper.make_tensor(name, TensorProto.BFLOAT16, values.shape, halves.tobytes(), raw=True)
        )
        return name

    def build(self) -> onnx.ModelProto:
        """The finished model."""
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, self._outputs, initializer=self._weights
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="slipstream",
        )


def is_bf16(values: NDArray[np.float32]) -> bool:
    """Whether every value is exact in bf16: the lower half of its fp32 bits is zero."""
    return not (np.ascontiguousarray(values).view(np.uint32) & 0xFFFF).any()


def _value(name: str, dims: Dims, integer: bool) -> onnx.ValueInfoProto:
    kind = TensorProto.INT32 if integer else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, kind, list(dims))


def _tensor(name: str, values: NDArray[Any]) -> onnx.TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    raw = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    return helper.make_tensor(name, kind, values.shape, raw.tobytes(), raw=True)
