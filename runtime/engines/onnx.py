"""ONNX Runtime engine: one session, bound by pointer, so that a pass copies nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime.engines.base import Array, TensorSpec
from runtime.errors import EngineError

_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
}
Shape = tuple[int, ...]
MOST_LAYOUTS = 2048  # combinations of input shapes that are remembered


@dataclass(frozen=True)
class _Layout:
    """One combination of input shapes, checked, and what it makes of the outputs."""

    shapes: dict[str, Shape]  # of the outputs
    buffers: dict[str, Array]  # for outputs that the caller gives no array for


class OnnxEngine:
    """Runs one ONNX graph with ONNX Runtime.

    Arrays are bound by their address and stay bound: a run rebinds only what changed since the
    last one. Outputs without an array in `into` go to buffers of the engine, one per shape.
    One engine serves one thread at a time.

    Args:
        path: the graph file; its external weights, if any, lie beside it.
        threads: intra-op threads; None takes one per core that this process may use.
        providers: ONNX Runtime execution providers, by preference.
        spinning: threads wait busily between operators: faster, but it holds the cores.

    Raises:
        EngineError: ONNX Runtime or a provider is absent, or the file is missing or damaged.
    """

    def __init__(
        self,
        path: str | Path,
        threads: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        *,
        spinning: bool = True,
    ) -> None:
        self.path = Path(path)
        self.threads = threads or usable_cores()
        self._session = _open_session(self.path, self.threads, providers, spinning)
        self._binding = self._session.io_binding()
        self._inputs = _specs(self.path, self._session.get_inputs())
        self._outputs = _specs(self.path, self._session.get_outputs())
        self._names = tuple(self._inputs)
        self._layouts: dict[tuple[Shape, ...], _Layout] = {}
        self._buffers: dict[tuple[str, Shape], Array] = {}
        self._bound: dict[str, Array] = {}

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Every input by name."""
        return self._inputs

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """Every output by name."""
        return self._outputs

    def run(self, feeds: dict[str, Array], into: dict[str, Array]) -> dict[str, Array]:
        """See `runtime.engines.base.Engine.run`."""
        if feeds.keys() != self._inputs.keys():
            raise self._wrong_names("input", self._inputs, feeds)
        shapes = tuple([feeds[name].shape for name in self._names])
        layout = self._layouts.get(shapes) or self._lay_out(shapes)
        if not into.keys() <= self._outputs.keys():
            raise self._wrong_names("output", self._outputs, self._outputs | into)
        bound = self._bound
        for name in self._names:
            array = feeds[name]
            if array is not bound.get(name):
                self._bind_input(name, array)
        results = {}
        for name, buffer in layout.buffers.items():
            results[name] = array = into.get(name, buffer)
            if array is not bound.get(name) or array.shape != layout.shapes[name]:
                self._bind_output(name, array, layout.shapes[name])
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise self._error("the pass failed", "a pass that runs", str(error)) from error
        return results

    def _bind_input(self, name: str, array: Array) -> None:
        spec = self._inputs[name]
        if array.dtype != spec.dtype:
            raise self._error(f"input {name} has the wrong dtype", spec.dtype, array.dtype)
        if not array.flags.c_contiguous:
            found = f"shape {array.shape} with strides {array.strides}"
            raise self._error(f"input {name} is not C-contiguous", "np.ascontiguousarray", found)
        self._bound.pop(name, None)
        self._binding.bind_cpu_input(name, array)
        self._bound[name] = array  # also keeps the memory alive

    def _bind_output(self, name: str, array: Array, shape: Shape) -> None:
        spec = self._outputs[name]
        if array.dtype != spec.dtype or array.shape != shape:
            raise self._error(
                f"the array for output {name} does not fit",
                f"{spec.dtype} {list(shape)}",
                f"{array.dtype} {list(array.shape)}",
            )
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise self._error(
                f"the array for output {name} can't be written in place",
                "a contiguous, writable array or leading-axis slice of one",
                f"strides {array.strides}, writable {array.flags.writeable}",
            )
        self._bound.pop(name, None)
        self._binding.bind_output(
            name, "cpu", 0, spec.dtype, shape, array.__array_interface__["data"][0]
        )
        self._bound[name] = array

    def _lay_out(self, shapes: tuple[Shape, ...]) -> _Layout:
        """Check a new combination of input shapes and find the outputs' shapes."""
        sizes: dict[str, int] = {}
        sums: list[tuple[str, str, int]] = []
        for name, shape in zip(self._names, shapes, strict=True):
            wanted = self._inputs[name].shape
            if len(shape) != len(wanted):
                raise self._error(f"input {name} has the wrong rank", list(wanted), list(shape))
            for dim, size in zip(wanted, shape, strict=True):
                if isinstance(dim, str) and "+" in dim:
                    sums.append((name, dim, size))
                elif size != (dim if isinstance(dim, int) else sizes.setdefault(dim, size)):
                    known = dim if isinstance(dim, int) else f"{dim} = {sizes[dim]}"
                    raise self._error(
                        f"input {name} has the wrong shape",
                        f"{list(wanted)} with {known}",
                        list(shape),
                    )
        for name, dim, size in sums:
            if size != sum(sizes[part] for part in dim.split("+")):
                terms = " + ".join(f"{part} = {sizes[part]}" for part in dim.split("+"))
                raise self._error(f"input {name} has the wrong shape", terms, size)
        if 0 in sizes.values():
            raise self._error("an input has no rows", "at least 1 in every dimension", sizes)
        outputs = {
            name: tuple(dim if isinstance(dim, int) else sizes[dim] for dim in spec.shape)
            for name, spec in self._outputs.items()
        }
        buffers = {
            name: self._buffers.setdefault(
                (name, shape), np.empty(shape, self._outputs[name].dtype)
            )
            for name, shape in outputs.items()
        }
        if len(self._layouts) >= MOST_LAYOUTS:  # a long drive must not gather memory
            self._layouts.clear()
            self._buffers.clear()
        layout = self._layouts[shapes] = _Layout(outputs, buffers)
        return layout

    def _wrong_names(self, kind: str, wanted: Iterable[str], found: Iterable[str]) -> EngineError:
        missing, unknown = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        what = f"{kind} {missing[0]} is missing" if missing else f"{kind} {unknown[0]} is unknown"
        return self._error(what, ", ".join(sorted(wanted)), ", ".join(sorted(found)))

    def _error(self, what: str, expected: object, found: object) -> EngineError:
        return EngineError(
            f"{self.path}: {what}",
            expected=str(expected),
            found=str(found),
            fix="feed what `engine.inputs` and `engine.outputs` describe",
        )


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_session(path: Path, threads: int, providers: Sequence[str], spinning: bool) -> Any:
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise EngineError(
            "ONNX Runtime is not installed",
            expected="the package onnxruntime 1.23 or newer",
            found=str(error),
            fix="pip install '.[cpu]' in slipstream's folder",
        ) from error
    if absent := [name for name in providers if name not in ort.get_available_providers()]:
        raise EngineError(
            f"this ONNX Runtime lacks {', '.join(absent)}",
            expected=f"one of {', '.join(ort.get_available_providers())}",
            found=", ".join(providers),
            fix="pip install '.[gpu]' in slipstream's folder, for CUDAExecutionProvider",
        )
    if not path.is_file():
        raise EngineError(
            f"{path} is missing", expected="an ONNX graph", found="no such file", fix=_EXPORT
        )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors come as exceptions
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    try:
        return ort.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:
        raise EngineError(
            f"{path} can't be loaded",
            expected="a whole ONNX graph of opset 23 or older",
            found=str(error).strip().splitlines()[0][:300] or type(error).__name__,
            fix=f"copy the bundle again, or {_EXPORT}",
        ) from error


_EXPORT = "slipstream export TARGET --draft DRAFTER -o BUNDLE"


def _specs(path: Path, nodes: Sequence[Any]) -> dict[str, TensorSpec]:
    for node in nodes:
        if node.type not in _DTYPES:
            raise EngineError(
                f"{path}: {node.name} has an unknown type",
                expected=", ".join(_DTYPES),
                found=node.type,
                fix=_EXPORT,
            )
    return {
        node.name: TensorSpec(node.name, _DTYPES[node.type], tuple(node.shape)) for node in nodes
    }
