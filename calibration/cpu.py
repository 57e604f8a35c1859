"""Graphs for CPUs: INT8 and INT4 by ONNX Runtime's quantizers.

Three ways. `dynamic` scales each row of activations anew and multiplies int8 with int8; `static`
has their scales from recorded passes; `weights` stores weights in blocks of 4 or 8 bits. The first
two write standard operators, the third ONNX Runtime's own MatMulNBits.

In all of them a row's result does not depend on the other rows of a pass, so that verifying a draft
stays lossless. The library's own dynamic quantization, with one scale for all rows of a pass, is
not among them for that reason. Attention's products of two activations stay in fp32: they are a
small part of a pass, and would be quantized at every pass.
"""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from calibration.channels import Channels, Feeds, channel_ranges
from calibration.fold import folded, unfolded, with_parts
from calibration.products import Product, split_kept
from calibration.row_scales import unit_rows, with_row_scales
from calibration.smooth import check_alpha, places, smoothed
from export.graphs.quantized import check_unquantized
from export.graphs.storage import beside, save_graph
from runtime.errors import SlipstreamError
from runtime.files import new_file

How = Literal["dynamic", "static", "weights"]
WAYS: dict[str, tuple[How, ...]] = {"int8": ("dynamic", "static", "weights"), "int4": ("weights",)}
BLOCK = 32  # rows of a weight with one scale, in `weights`
_ACCURACY = 4  # of MatMulNBits: activations are rounded to int8 in blocks, which VNNI multiplies


@dataclass(frozen=True)
class Quantized:
    """What was made of a graph.

    Attributes:
        quantized, kept: names of weight products, those in fp32 last.
        bytes: of the graph on disk, weights beside it included.
    """

    quantized: tuple[str, ...]
    kept: tuple[str, ...]
    bytes: int


def quantize_for_cpu(
    source: Path,
    out: Path,
    precision: Literal["int8", "int4"],
    how: How,
    *,
    keep: Collection[str] = (),
    feeds: Sequence[Feeds] = (),
    smooth: float | None = None,
    reduce_range: bool | None = None,
) -> Quantized:
    """Write a graph whose weight products are quantized; its inputs and outputs stay as they are.

    Weights have a scale for each column (`weights`: for each block of 32 in a column), activations
    one for the tensor.

    Args:
        source: a graph of a bundle, not quantized; out: the new file.
        keep: nodes (MatMul) that stay in fp32.
        feeds: recorded passes of this graph; needed by "static" and by `smooth`.
        smooth: SmoothQuant's alpha; None leaves weights and norms as they are.
        reduce_range: 7 bits for weights, for CPUs on which sums of two 8-bit products saturate;
            None: if this CPU is one.

    Raises:
        SlipstreamError: int4 in another way than "weights", an unknown node, no feeds where they
            are needed, a graph that is quantized already, or what the quantizer needs is absent.
    """
    _check(precision, how, smooth)
    model = folded(onnx.load(source))
    check_unquantized(model, source)
    todo, kept = split_kept(model, keep, source.name)
    with new_file(out) as made, _silence():
        plain = made.with_name("folded.onnx")
        save_graph(model, plain)
        del model
        if smooth is not None and todo:
            smooth_graph(plain, feeds, smooth)
        if not todo:
            finished = onnx.load(source)
        else:
            narrow = saturates() if reduce_range is None else reduce_range
            bits = 4 if precision == "int4" else 8
            finished = unfolded(
                _MAKERS[how](_quantizer(how), _Job(plain, todo, kept, feeds, narrow, bits))
            )
        save_graph(finished, made)
        size = made.stat().st_size
        if beside(made).exists():
            size += beside(made).stat().st_size
            beside(made).replace(beside(out))
    return Quantized(
        tuple(product.node for product in todo), tuple(product.node for product in kept), size
    )


@dataclass(frozen=True)
class _Job:
    """A folded graph on disk, alone in its folder but for what is made of it, and what to do."""

    path: Path
    todo: list[Product]
    kept: list[Product]
    feeds: Sequence[Feeds]
    reduce_range: bool
    bits: int


def _dynamic(library: Any, job: _Job) -> onnx.ModelProto:
    """Each row is scaled by its own largest magnitude: the rest is `_static` with a known range."""
    plain = onnx.load(job.path, load_external_data=False)  # weights beside it stay there
    save_graph(with_row_scales(plain, job.todo), job.path)
    unit = library.TensorData(lowest=np.float32(-1.0), highest=np.float32(1.0))
    return _quantize_dequantize(
        library, job, {unit_rows(product.rows_in): unit for product in job.todo}
    )


def _static(library: Any, job: _Job) -> onnx.ModelProto:
    tensors = {product.rows_in: product.rows for product in job.todo}
    ranges = channel_ranges(job.path, tensors, job.feeds)
    known = {name: _tensor_data(library, each) for name, each in ranges.items()}
    return _quantize_dequantize(library, job, known)


def _quantize_dequantize(library: Any, job: _Job, ranges: dict[str, Any]) -> onnx.ModelProto:
    """Quantize and dequantize in front of each product; the engine fuses them into one.

    What a product writes is not quantized: what reads it is fp32.
    """
    quantizer = library.QDQQuantizer(
        _with_shapes(job.path),
        per_channel=True,
        reduce_range=job.reduce_range,
        weight_qType=library.QuantType.QInt8,
        activation_qType=library.QuantType.QUInt8,
        tensors_range=ranges,
        nodes_to_quantize=[product.node for product in job.todo],
        nodes_to_exclude=[],
        op_types_to_quantize=["MatMul"],
        extra_options={"OpTypesToExcludeOutputQuantization": ["MatMul"]},
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return _plainly(quantizer.model.model)


def _with_shapes(path: Path) -> onnx.ModelProto:
    """A graph whose tensors' shapes are noted down; inferred before large weights are loaded, for
    inference copies all that is there."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path, load_external_data=False))
    onnx.load_external_data_for_model(model, str(path.parent))
    return model


def _weights(library: Any, job: _Job) -> onnx.ModelProto:
    quantizer = library.MatMulNBitsQuantizer(
        onnx.load(job.path),
        bits=job.bits,
        block_size=BLOCK,
        is_symmetric=True,
        accuracy_level=_ACCURACY,
        nodes_to_exclude=[product.node for product in job.kept],
    )
    quantizer.process()
    return _plainly(quantizer.model.model)


_MAKERS: dict[How, Callable[[Any, _Job], onnx.ModelProto]] = {
    "dynamic": _dynamic,
    "static": _static,
    "weights": _weights,
}


def require_quantizers() -> None:
    """Insist, before the work, on what the ways need.

    Raises:
        SlipstreamError: it is not installed.
    """
    with _silence():
        for how in _MAKERS:
            _quantizer(how)


def saturates() -> bool:
    """Whether this CPU's sums of two products of 8 bits may leave 16 bits: x86 without VNNI."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i686"):
        return False
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True  # the careful way, where it can't be asked
    return not any(name in flags for name in ("avx512_vnni", "avx_vnni", "avx_vnni_int8"))


def smooth_graph(path: Path, feeds: Sequence[Feeds], alpha: float) -> None:
    """Replace a folded graph on disk by its smoothed one."""
    model = onnx.load(path)
    tensors = {place.tensor: place.readers[0].rows for place in places(model)}
    del model
    ranges = channel_ranges(path, tensors, feeds)
    save_graph(smoothed(onnx.load(path), ranges, alpha), path)


def _tensor_data(library: Any, channels: Channels) -> Any:
    return library.TensorData(lowest=channels.low.min(), highest=channels.high.max())


def _plainly(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without what shape inference and the library noted down in it."""
    used = {node.domain for node in model.graph.node}
    plain = with_parts(model, list(model.graph.node), list(model.graph.initializer))
    imports = [each for each in model.opset_import if each.domain in used]
    del plain.opset_import[:]
    plain.opset_import.extend(imports)
    return plain


@contextmanager
def _silence() -> Iterator[None]:
    """The library logs every node, and when it is imported it makes the root logger do so too."""
    root = logging.getLogger()
    level, handlers, disabled = root.level, list(root.handlers), root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        root.handlers[:] = handlers


def _quantizer(how: How) -> Any:
    """The library's module for a way.

    Raises:
        SlipstreamError: it, or what it needs, is not installed.
    """
    try:
        if how == "weights":
            return import_module("onnxruntime.quantization.matmul_nbits_quantizer")
        return import_module("onnxruntime.quantization")
    except ImportError as error:
        raise SlipstreamError(
            "ONNX Runtime's quantizer can't be loaded",
            expected="the packages onnxruntime 1.23 or newer and onnx-ir",
            found=str(error),
            fix="pip install '.[cpu,quant]' in slipstream's folder",
        ) from error


def _check(precision: str, how: str, smooth: float | None) -> None:
    if how not in WAYS.get(precision, ()):
        ways = "; ".join(f"{name}: {', '.join(each)}" for name, each in WAYS.items())
        raise SlipstreamError(
            f"a CPU graph can't be {precision} in the way {how!r}",
            expected=ways,
            found=f"{precision}, {how}"[:80],
            fix="int8 has all three ways; int4 is a precision of weights alone",
        )
    if smooth is not None:
        check_alpha(smooth)
