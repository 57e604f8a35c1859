"""Graphs for TensorRT: INT8, FP8 and INT4 by NVIDIA Model Optimizer's ONNX quantizer, on a CPU.

QuantizeLinear and DequantizeLinear stand around products with a weight and nowhere else.
Attention's products of two activations, the cache's keys and values, and the residual stream stay
as they are: an engine would quantize those anew at every pass.

INT8 and FP8: one scale for an activation, one for each column of a weight, both from the largest
value seen. INT4: weights alone, one scale for each block of a column, clipped where that costs the
least on the recorded passes (AWQ, arXiv 2306.00978).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import onnx
from numpy.typing import NDArray

from calibration import modelopt_job
from calibration.channels import Feeds
from calibration.cpu import Quantized
from calibration.fold import folded
from calibration.products import Product, split_kept
from calibration.qdq import Rest, finished
from calibration.stored import read_graph
from export.graphs.quantized import check_unquantized
from export.graphs.storage import beside, save_graph
from runtime.errors import EngineError, SlipstreamError
from runtime.files import new_file

Format = Literal["int8", "int4", "fp8", "nvfp4"]
PYTHON = "SLIPSTREAM_MODELOPT_PYTHON"  # environment variable: a Python that has the quantizer
BLOCKS = (128, 64, 32)  # rows of a weight with one scale, in int4: the largest that divides all
_IR = 10  # the newest that the quantizer reads without writing the graph once more
_LAST_WORDS = 3  # lines of what the quantizer said
_ANSWERS_S = 60.0  # a Python starts within
_HAS_IT = (
    "import sys; from importlib.util import find_spec; "
    "print(sys.version_info[0], find_spec('modelopt') is not None)"
)


def quantize_for_tensorrt(
    source: Path,
    out: Path,
    precision: Format,
    *,
    feeds: Sequence[Feeds],
    keep: Collection[str] = (),
    rest: Rest = "fp16",
    keep_tensors: Collection[str] = (),
    python: Path | None = None,
) -> Quantized:
    """Write a graph that TensorRT builds an engine of that precision from.

    Inputs and outputs stay as they are, but for a cache in `rest`'s type. ONNX Runtime runs the
    graph as well, on a CPU slowly.

    Args:
        source: a graph of a bundle, not quantized; out: the new file.
        feeds: recorded passes of this graph.
        keep: nodes (MatMul) whose products are not quantized.
        rest: the type of what is not quantized.
        keep_tensors: what of it stays in fp32 (`calibration.overflow.guarded`).
        python: of an environment with nvidia-modelopt; None takes the one that the environment
            variable SLIPSTREAM_MODELOPT_PYTHON names, then this one.

    Raises:
        SlipstreamError: a format that the quantizer does not write from ONNX, no feeds, an unknown
            node, a graph that is quantized already, no quantizer, or one that failed.
    """
    check_format(precision)
    if not feeds:
        raise SlipstreamError(
            f"{source} can't be quantized without passes",
            expected="recorded passes of this graph, which scales are taken from",
            found="none",
            fix="record passes first: calibration.recording",
        )
    model = onnx.load(source)
    check_unquantized(model, source)
    casts = {node.input[0]: node.output[0] for node in model.graph.node if node.op_type == "Cast"}
    fp32 = {casts.get(name, name) for name in keep_tensors}  # a weight is folded into its cast
    model = folded(model)
    todo, kept = split_kept(model, keep, source.name)
    block = _block(todo) if precision == "int4" else 0
    if block:
        kept += [product for product in todo if product.rows % block]
        todo = [product for product in todo if product.rows % block == 0]
    runner = modelopt_python(python)
    with new_file(out) as made:
        quantized = model
        if todo:
            job = {
                "graph": _plain(model, made.parent),
                "out": "quantized.onnx",
                "precision": precision,
                "nodes": [product.node for product in todo],
                "others": _others(model, todo),
                "block": block,
                "feeds": list(_written(model, feeds, made.parent)),
            }
            quantized = _run(runner, job, made.parent, source)
        save_graph(finished(model, quantized, rest, fp32), made)
        size = made.stat().st_size
        if beside(made).exists():
            size += beside(made).stat().st_size
            beside(made).replace(beside(out))
    return Quantized(tuple(each.node for each in todo), tuple(each.node for each in kept), size)


def modelopt_python(python: Path | None = None) -> Path:
    """The Python that quantizes: the given one, the environment variable's, or this one.

    Raises:
        SlipstreamError: it is no file, or there is none and this one has no nvidia-modelopt.
    """
    named = python or (Path(os.environ[PYTHON]) if os.environ.get(PYTHON) else None)
    if named is None and find_spec("modelopt") is not None:
        return Path(sys.executable)
    if named is not None and named.is_file():
        return named.absolute()  # not resolved: a virtual environment's is a link
    there = "a folder" if named and named.is_dir() else "no such file"
    raise SlipstreamError(
        f"{named} is no Python" if named else "NVIDIA Model Optimizer is not installed",
        expected=f"nvidia-modelopt here, or {PYTHON} naming a Python that has it",
        found=there if named else "none",
        fix="pip install '.[quant]' in slipstream's folder",
    )


def require_modelopt() -> None:
    """Insist, before the work, on a Python that answers and has the quantizer.

    Raises:
        SlipstreamError: there is none.
    """
    python = modelopt_python()
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _HAS_IT],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_ANSWERS_S,
            check=False,
        )
        said = done.stdout.decode(errors="replace").strip()
        found = "" if said == "3 True" else f"no modelopt there; {_last_words(done.stderr)}"
    except subprocess.TimeoutExpired:
        found = f"no answer within {_ANSWERS_S:g} s"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise SlipstreamError(
            f"{python} has no NVIDIA Model Optimizer",
            expected=f"nvidia-modelopt here, or {PYTHON} naming a Python that has it",
            found=found,
            fix=f"pip install '.[quant]' in slipstream's folder, or set {PYTHON}",
        )


def check_format(precision: str) -> None:
    """Raises: SlipstreamError: the quantizer does not write it from graphs."""
    if precision == "nvfp4":
        raise SlipstreamError(
            "graphs can't be quantized to nvfp4",
            expected="int8, fp8 or int4: what NVIDIA Model Optimizer writes from an ONNX graph",
            found="nvfp4, which it writes from torch models alone",
            fix="--precision fp8, or int4 for weights of half a byte",
        )
    if precision not in get_args(Format):
        raise SlipstreamError(
            "there is no such format for TensorRT",
            expected=", ".join(get_args(Format)),
            found=precision[:80],
            fix="--precision int8",
        )


def _block(products: Sequence[Product]) -> int:
    """The largest block that divides the rows of every weight that any block divides."""
    rows = [product.rows for product in products if product.rows % BLOCKS[-1] == 0]
    return next(block for block in BLOCKS if math.gcd(*rows) % block == 0)


def _others(model: onnx.ModelProto, todo: Sequence[Product]) -> list[str]:
    names = {product.node for product in todo}
    products = [node.name for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    return [name for name in products if name not in names]


def _plain(model: onnx.ModelProto, folder: Path) -> str:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.ir_version = min(copy.ir_version, _IR)
    save_graph(copy, folder / "plain.onnx")
    return "plain.onnx"


def _written(model: onnx.ModelProto, feeds: Sequence[Feeds], folder: Path) -> Iterator[str]:
    """Files of one rollout each: the quantizer joins what passes of any size read along rows."""
    along = {
        value.name: [dim.dim_param for dim in value.type.tensor_type.shape.dim].index("N")
        for value in model.graph.input
        if any(dim.dim_param == "N" for dim in value.type.tensor_type.shape.dim)
    }
    for number, each in enumerate(feeds):
        rollouts = next((each[name].shape[axis] for name, axis in along.items()), 1)
        for rollout in range(rollouts):
            name = f"pass.{number}.{rollout}.npz"
            arrays: dict[str, Any] = {k: _one(v, along.get(k), rollout) for k, v in each.items()}
            np.savez(folder / name, **arrays)
            yield name


def _one(array: NDArray[Any], axis: int | None, rollout: int) -> NDArray[Any]:
    return array if axis is None else array.take([rollout], axis)


def _run(python: Path, job: dict[str, Any], folder: Path, source: Path) -> onnx.ModelProto:
    """In the job's folder, since the quantizer makes other names of a path's every `.onnx`."""
    (folder / "job.json").write_text(json.dumps(job))
    command = [str(python), "-I", str(Path(modelopt_job.__file__).resolve()), "job.json"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
    except OSError as error:
        raise _failed(source, python, str(error)) from error
    if done.returncode != 0 or not (folder / job["out"]).is_file():
        raise _failed(source, python, _last_words(done.stderr))
    try:
        read_graph(folder / job["out"])
        return onnx.load(folder / job["out"])
    except (EngineError, OSError, ValueError) as error:
        raise _failed(source, python, f"no graph: {error}") from error


def _last_words(said: bytes) -> str:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_WORDS:]) or "it said nothing"


def _failed(source: Path, python: Path, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{source} could not be quantized",
        expected=f"NVIDIA Model Optimizer, run by {python}, to write a graph",
        found=found,
        fix="pip install '.[quant]' in slipstream's folder, or set "
        f"{PYTHON} to a Python whose environment has it",
    )
