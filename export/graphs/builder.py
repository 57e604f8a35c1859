"""A small writer of ONNX graphs: nodes, weights, named inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

OPSET = 23  # RMSNormalization and RotaryEmbedding
IR_VERSION = 11  # the one that goes with opset 23

Dims = Sequence[int | str]
_SHORT = {np.dtype(np.float16): "fp16", np.dtype(ml_dtypes.bfloat16): "bf16"}
_SMALL = 1024  # bytes; shapes and scalars stay in the graph
_BLOCK = 32 << 20  # bytes written at once
_ALIGNMENT = 4096  # of weights in a file, so that it can be mapped into memory


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

    def weight(self, name: str, values: NDArray[Any]) -> str:
        """A weight, fp32 when the graph runs; stored in half the bytes where that is exact.

        fp16 and bf16 stay what they are; fp32 becomes one of them if no number changes. The cast
        reads constants only, so a session folds it once, when it loads. A name stands for one
        weight: used again, it is stored once.

        Args:
            values: fp32, fp16 or bf16 (ml_dtypes).
        """
        if name in self._known:
            return name
        self._known.add(name)
        values = halved(values)
        if values.dtype == np.float32:
            self._keep(name, values)
            return name
        stored = f"{name}.{_SHORT[values.dtype]}"
        self._keep(stored, values)
        return self.op("Cast", stored, out=name, to=TensorProto.FLOAT)

    def table(self, name: str, values: NDArray[Any], rows: str, out: str) -> None:
        """Write rows of a weight, looked up by number, as fp32 into the tensor `out`.

        Only the rows looked up are cast: the table stays as it is stored.
        """
        values = halved(values)
        self._keep(name, values)
        if values.dtype == np.float32:
            self.op("Gather", name, rows, out=out)
        else:
            self.op("Cast", self.op("Gather", name, rows), out=out, to=TensorProto.FLOAT)

    def _keep(self, name: str, values: NDArray[Any]) -> None:
        beside = _BESIDE.get()
        self._weights.append(beside.add(name, values) if beside else _tensor(name, values))

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


class WeightFile:
    """Weights of one graph written to a file as they are made, so that memory holds one of them.

    Args:
        file: open for writing, empty.
        location: its name, as the graph will refer to it.
    """

    def __init__(self, file: BinaryIO, location: str) -> None:
        self._file, self._location = file, location
        self.size = 0

    def add(self, name: str, values: NDArray[Any]) -> onnx.TensorProto:
        """Append a weight; returns the tensor that refers to it, or holds it if it is small."""
        if values.nbytes <= _SMALL:
            return _tensor(name, values)
        self._file.write(b"\0" * (-self.size % _ALIGNMENT))
        start = self.size + -self.size % _ALIGNMENT
        for part in _blocks(values):
            self._file.write(_little_endian(part).reshape(-1).view(np.uint8).data)
        self.size = start + values.nbytes
        tensor = onnx.TensorProto(
            name=name,
            data_type=helper.np_dtype_to_tensor_dtype(values.dtype),
            dims=values.shape,
            data_location=TensorProto.EXTERNAL,
        )
        place = {"location": self._location, "offset": start, "length": values.nbytes}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        return tensor


_BESIDE: ContextVar[WeightFile | None] = ContextVar("beside", default=None)


@contextmanager
def weights_beside(path: Path) -> Iterator[None]:
    """Graphs that are built inside write their weights to this file, not into memory.

    `export.graphs.storage.save_graph` takes them from there.
    """
    with path.open("wb") as file:
        token = _BESIDE.set(WeightFile(file, path.name))
        try:
            yield
        finally:
            _BESIDE.reset(token)


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Leading rows at a time: a transposed weight is then never copied as a whole."""
    step = max(1, _BLOCK * len(values) // values.nbytes)
    for start in range(0, len(values), step):
        yield values[start : start + step]


def halved(values: NDArray[Any]) -> NDArray[Any]:
    """fp32 as bf16 or fp16, if every number is exact in it; anything else as it is."""
    if values.dtype != np.float32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    if not (bits & 0xFFFF).any():
        return (bits >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    with np.errstate(over="ignore"):
        halves = values.astype(np.float16)
    return halves if np.array_equal(halves.astype(np.float32), values) else values


def _value(name: str, dims: Dims, integer: bool) -> onnx.ValueInfoProto:
    kind = TensorProto.INT32 if integer else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, kind, list(dims))


def _tensor(name: str, values: NDArray[Any]) -> onnx.TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    raw = _little_endian(values).tobytes()
    return helper.make_tensor(name, kind, values.shape, raw, raw=True)


def _little_endian(values: NDArray[Any]) -> NDArray[Any]:
    values = np.ascontiguousarray(values)
    if values.dtype == ml_dtypes.bfloat16:
        values = values.view(np.uint16)
    return values.astype(values.dtype.newbyteorder("<"), copy=False)
