"""A graph in fp16 or bf16, with every cast written down: strongly typed builds take types as given.

Matrix products run in the reduced precision. Norms, RoPE, softmax and log-sum-exp stay in fp32,
and so does what is added to fp32: the residual stream and the biased scores. (The square of 256 is
already too large for fp16, and residual streams hold larger values.)

Inputs and outputs stay fp32, but for keys and values: those are the memory and the traffic.

Tensors that the precision can't hold are kept in fp32, with every node that touches them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from runtime.errors import SlipstreamError

Reduced = Literal["fp16", "bf16"]
_TYPES: dict[str, int] = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
}
_FLOATS = tuple(_NAMES)
_REDUCED_OPS = {"MatMul", "Gemm"}
_NORMS = {"RMSNormalization", "LayerNormalization"}
_FP32_OPS = _NORMS | {"RotaryEmbedding", "Softmax", "ReduceLogSumExp", "TopK"}
_INTEGERS = {"Shape": (TensorProto.INT64,), "TopK": (TensorProto.FLOAT, TensorProto.INT64)}
_CACHE = ("trunk.past_key_values.", "branch.past_key_values.", "present.")
_WRITTEN = "slipstream.precision"  # a model's property: its types are written down already


def reduce_precision(
    model: onnx.ModelProto, precision: Reduced, keep: Collection[str] = ()
) -> onnx.ModelProto:
    """The same graph with explicit types; names and shapes of inputs and outputs stay.

    A graph that was reduced before stays as it is: what was kept then is kept.

    Args:
        keep: tensors that stay fp32, and with them the nodes that read or write one. One of the
            cache's keys or values keeps all of them, which have one type.

    Raises:
        SlipstreamError: a weight does not fit the precision's range, or `keep` names no tensor of
            the graph.
    """
    if any(entry.key == _WRITTEN for entry in model.metadata_props):
        return model
    return _Rewriter(model, precision, keep).run()


def reduced_tensors(model: onnx.ModelProto, precision: Reduced) -> set[str]:
    """What a reduced graph holds in the precision, or reads in it: other tensors are fp32 anyway.

    Args:
        model: its weights may lie elsewhere; only their types are read.
    """
    graph = onnx.GraphProto(name=model.graph.name)
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    for weight in model.graph.initializer:
        graph.initializer.add(name=weight.name, data_type=weight.data_type, dims=[0])
    rewriter = _Rewriter(helper.make_model(graph), precision)
    rewriter.run()
    low, ending = rewriter.low, _NAMES[rewriter.low]
    found = {name for name, kind in rewriter.types.items() if kind == low}
    found |= {name for name, kind in rewriter.made if kind == low}
    stored = rewriter.constants.items()
    return found | {n for n, weight in stored if f"{weight.name}.{ending}" in rewriter.weights}


def has_quantization(model: onnx.ModelProto) -> bool:
    """Whether a graph says where to quantize: QuantizeLinear or DequantizeLinear nodes."""
    kinds = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}
    return any(node.op_type in kinds for node in model.graph.node)


def is_cache(name: str) -> bool:
    """Whether an input or output is a cache's keys or values."""
    return name.startswith(_CACHE)


class _Rewriter:
    """Walks the nodes in order, knowing every tensor's type, and puts casts where types meet."""

    def __init__(
        self, model: onnx.ModelProto, precision: Reduced, keep: Collection[str] = ()
    ) -> None:
        self.model, self.precision = model, precision
        self.low = _TYPES[precision]
        self.keep = _known(model, keep)
        self.constants = {weight.name: weight for weight in model.graph.initializer}
        self.types: dict[str, int] = {name: w.data_type for name, w in self.constants.items()}
        self.made: dict[tuple[str, int], str] = {}  # a tensor in another type -> its name
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def run(self) -> onnx.ModelProto:
        graph = self.model.graph
        outputs = {output.name: self._boundary(output) for output in graph.output}
        for value in graph.input:
            self.types[value.name] = self._boundary(value)
        for node in graph.node:
            if not self._folds(node):
                self._rewrite(node, outputs)
        made = helper.make_graph(
            self.nodes,
            graph.name,
            [self._typed(value) for value in graph.input],
            [self._typed(value) for value in graph.output],
            initializer=list(self.weights.values()),
        )
        reduced = helper.make_model(
            made,
            opset_imports=list(self.model.opset_import),
            ir_version=self.model.ir_version,
            producer_name=self.model.producer_name,
        )
        helper.set_model_props(reduced, {_WRITTEN: self.precision})
        return reduced

    def _folds(self, node: onnx.NodeProto) -> bool:
        """A cast of a stored weight to fp32 is undone: the weight is stored as it is used."""
        if node.op_type != "Cast" or node.input[0] not in self.constants:
            return False
        if _cast_to(node) != TensorProto.FLOAT or self.types[node.input[0]] not in _FLOATS:
            return False
        if node.input[0] in self.keep:
            self.keep.add(node.output[0])
        self.constants[node.output[0]] = self.constants[node.input[0]]
        self.types[node.output[0]] = TensorProto.FLOAT
        return True

    def _rewrite(self, node: onnx.NodeProto, outputs: dict[str, int]) -> None:
        inputs, kind = self._inputs(node)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        del copy.input[:], copy.output[:]
        copy.input.extend(inputs)
        self.nodes.append(copy)
        for name, found in zip(node.output, self._output_types(node, kind), strict=False):
            wanted = outputs.get(name, found)
            if found == wanted:
                copy.output.append(name)
            else:  # the graph's output keeps its name: the cast writes it
                copy.output.append(f"{name}.{_NAMES[found]}")
                self.types[copy.output[-1]] = found
                self._cast(copy.output[-1], name, wanted)
            self.types[name] = wanted

    def _inputs(self, node: onnx.NodeProto) -> tuple[list[str], int]:
        """The inputs in the node's type, and that type."""
        floats = [name for name in node.input if self.types.get(name) in _FLOATS]
        if node.op_type == "Cast":
            return [self._as(name, self.types[name]) for name in node.input], _cast_to(node)
        if node.op_type in _FP32_OPS or not self.keep.isdisjoint((*node.input, *node.output)):
            kind = int(TensorProto.FLOAT)
        elif node.op_type in _REDUCED_OPS:
            kind = self.low
        else:
            kind = self._widest(floats)
        names = [self._as(n, kind) if n in floats else self._used(n) for n in node.input]
        return names, kind

    def _widest(self, floats: Iterable[str]) -> int:
        """fp32 if any tensor is; constants follow the others, alone they are reduced."""
        moving = [self.types[name] for name in floats if name not in self.constants]
        return int(TensorProto.FLOAT) if TensorProto.FLOAT in moving else self.low

    def _output_types(self, node: onnx.NodeProto, kind: int) -> list[int]:
        if node.op_type in _INTEGERS:
            return list(_INTEGERS[node.op_type])
        if node.op_type == "Cast":
            return [kind]
        if node.op_type == "QuantizeLinear":
            return [self.types[node.input[2]]]
        first = self.types.get(node.input[0])
        has_floats = any(self.types.get(name) in _FLOATS for name in node.input)
        return [kind if has_floats else first or 0] * len(node.output)

    def _as(self, name: str, kind: int) -> str:
        """The name of a tensor in a type: itself, a stored weight, or a cast of it."""
        if name in self.constants:
            return self._weight(name, kind)
        if self.types[name] == kind:
            return name
        if (name, kind) not in self.made:
            self.made[name, kind] = made = f"{name}.as.{_NAMES[kind]}"
            self._cast(name, made, kind)
        return self.made[name, kind]

    def _cast(self, name: str, out: str, kind: int) -> None:
        self.nodes.append(helper.make_node("Cast", [name], [out], name=f"Cast.{out}", to=kind))
        self.types[out] = kind

    def _weight(self, name: str, kind: int) -> str:
        stored = self.constants[name]
        if stored.data_type == kind:
            return self._used(stored.name)
        out = f"{stored.name}.{_NAMES[kind]}"
        if out not in self.weights:
            values = _floats(stored)
            worst = float(np.abs(values).max(initial=0))
            if kind == TensorProto.FLOAT16 and worst > float(np.finfo(np.float16).max):
                raise SlipstreamError(
                    f"the weight {name} does not fit fp16",
                    expected="values up to 65504",
                    found=f"{worst:g}",
                    fix="--precision bf16 (from sm80 on) or fp32",
                )
            self.weights[out] = _stored(out, values, kind)
        return out

    def _used(self, name: str) -> str:
        if name in self.constants:
            self.weights.setdefault(name, self.constants[name])
        return name

    def _boundary(self, value: onnx.ValueInfoProto) -> int:
        kind = int(value.type.tensor_type.elem_type)
        reducible = is_cache(value.name) and value.name not in self.keep
        return self.low if reducible and kind == TensorProto.FLOAT else kind

    def _typed(self, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        typed = onnx.ValueInfoProto()
        typed.CopyFrom(value)
        typed.type.tensor_type.elem_type = self._boundary(value)
        return typed


def _known(model: onnx.ModelProto, keep: Collection[str]) -> set[str]:
    """The tensors to keep: those named, and with one of the cache's all of them."""
    graph = model.graph
    names = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    names.update(*(node.output for node in graph.node))
    if unknown := sorted(set(keep) - names):
        raise SlipstreamError(
            f"the graph {graph.name} has no tensor to keep in fp32 of this name",
            expected="inputs, weights or what a node writes",
            found=", ".join(unknown[:5]),
            fix="take the names from the same graph: `calibration.ranges`",
        )
    kept = set(keep)
    if any(is_cache(name) for name in kept):
        kept |= {name for name in names if is_cache(name)}
    return kept


def _cast_to(node: onnx.NodeProto) -> int:
    return int(next(a.i for a in node.attribute if a.name == "to"))


def _floats(weight: onnx.TensorProto) -> NDArray[np.float32]:
    """A stored weight as fp32 [its shape]."""
    if weight.data_type == TensorProto.BFLOAT16:
        halves = np.frombuffer(weight.raw_data, "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(tuple(weight.dims))
    return numpy_helper.to_array(weight).astype(np.float32)


def _stored(name: str, values: NDArray[np.float32], kind: int) -> onnx.TensorProto:
    if kind == TensorProto.FLOAT16:
        raw = values.astype("<f2").tobytes()
    elif kind == TensorProto.BFLOAT16:
        raw = _round_to_bf16(values).tobytes()
    else:
        raw = values.astype("<f4").tobytes()
    return helper.make_tensor(name, kind, values.shape, raw, raw=True)


def _round_to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves of fp32 bits, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
