"""A bundle's `ModelShape`, from the matrix products of its own graphs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from runtime.bundle import AttentionDims, Bundle, DraftDims
from runtime.engines.profiles import Profile, default_profiles
from runtime.errors import BundleError
from slipstream.estimate.shape import Largest, ModelShape, NetworkShape, VisionShape

# An initializer keeps its size through these: a stored bf16 or int8 matrix is the same matrix.
_SAME_MATRIX = {"Cast", "Transpose", "Identity", "DequantizeLinear"}


@dataclass(frozen=True)
class _Product:
    """A product with a constant matrix [inner, outer]; `of_block`: rows of the main input."""

    inner: int
    outer: int
    of_block: bool


def shape_of(bundle: Bundle) -> ModelShape:
    """Read every graph's matrices, not their values.

    Raises:
        BundleError: a graph is no ONNX, or holds no matrix products.
    """
    manifest = bundle.manifest
    limits, target, draft = manifest.limits, manifest.target, manifest.draft
    network = _network(bundle.graph_path("target"), target, "embeddings")
    return ModelShape(
        name=manifest.name,
        target=network,
        draft=_drafter(bundle, draft, network) if draft else None,
        width=target.width,
        vocab=target.vocab,
        block=draft.block if draft else 1,
        trunk_rows=limits.trunk,
        branch_rows=limits.branch,
        most_rollouts=limits.rollouts,
        stored=sum(path.stat().st_size for path in _weight_files(bundle)),
        largest=_largest(default_profiles(manifest, "target")),
        vision=_vision(bundle.graph_path("vision")) if manifest.vision else None,
    )


def _drafter(bundle: Bundle, draft: DraftDims, target: NetworkShape) -> NetworkShape:
    """A target that drafts for itself is its own."""
    if draft.of_target:
        return target
    return _network(bundle.graph_path("draft"), draft, "block_embeddings")


def _largest(profiles: list[Profile]) -> Largest:
    prefill, decode = ({dim: r[2] for dim, r in each.dims.items()} for each in profiles)
    return Largest(prompt=prefill["S"], rollouts=decode["N"], rows=decode["S"])


def _weight_files(bundle: Bundle) -> Iterator[Path]:
    for graph in bundle.manifest.graphs.values():
        yield bundle.folder / graph.file
        yield from (bundle.folder / name for name in graph.external)


def _network(path: Path, dims: AttentionDims, block_input: str) -> NetworkShape:
    products = _products(path, block_input)
    attention = dims.heads * dims.head_dim
    return NetworkShape(
        blocks=dims.layers,
        row_weights=sum(p.inner * p.outer for p in products if p.of_block),
        context_weights=sum(p.inner * p.outer for p in products if not p.of_block),
        attention_layers=dims.layers,
        heads=dims.heads,
        kv_heads=dims.kv_heads,
        head_dim=dims.head_dim,
        state=0,
        widest=max(attention, *(max(p.inner, p.outer) for p in products)),
    )


def _products(path: Path, block_input: str) -> list[_Product]:
    graph = _read(path).graph
    matrices = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    from_block = {block_input}
    found = []
    for node in graph.node:
        if node.op_type in _SAME_MATRIX and node.input[0] in matrices:
            matrices[node.output[0]] = matrices[node.input[0]]
        if any(name in from_block for name in node.input):
            from_block.update(node.output)
        if node.op_type == "MatMulNBits":  # its matrix is packed; its size is written down
            sizes = {each.name: int(each.i) for each in node.attribute}
            matrices[node.input[1]] = (sizes["K"], sizes["N"])
        elif node.op_type not in ("MatMul", "Gemm", "MatMulInteger"):
            continue
        for name in node.input[:2]:
            dims = matrices.get(name, ())
            if len(dims) == 2:
                found.append(_Product(dims[0], dims[1], node.output[0] in from_block))
    if not found:
        raise BundleError(
            f"{path} holds no product with a stored matrix",
            expected="the graph of a decoder",
            found=f"{len(graph.node)} nodes",
            fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
        )
    return found


def _vision(path: Path) -> VisionShape:
    """Every shape of a vision graph is known, so all its products are counted, attention too."""
    graph = onnx.shape_inference.infer_shapes(_read(path)).graph
    named = (*graph.value_info, *graph.input, *graph.output)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in named}
    stored = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in _SAME_MATRIX and node.input[0] in stored:
            stored[node.output[0]] = stored[node.input[0]]
    products = [node for node in graph.node if node.op_type == "MatMul"]
    rows, _ = shapes[graph.input[0].name]
    return VisionShape(
        blocks=sum(node.input[1].endswith("attn.qkv") for node in products),
        weights=sum(
            math.prod(stored[node.input[1]]) for node in products if node.input[1] in stored
        ),
        operations=sum(
            2.0 * math.prod(shapes[node.output[0]]) * shapes[node.input[0]][-1] for node in products
        ),
        rows=rows,
        widest=max(max(stored.get(node.input[1], [0])) for node in products),
    )


def _read(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises its own, without a common base
        raise BundleError(
            f"{path} can't be read",
            expected="an ONNX graph",
            found=str(error),
            fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
        ) from error
