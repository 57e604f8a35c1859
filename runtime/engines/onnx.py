"""ONNX Runtime engine: one session, bound by pointer, so that a pass copies nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime.engines.base import Array, TensorSpec
from runtime.engines.layout import DTYPES, Layout, Shape
from runtime.errors import EngineError, check_memory

Provider = str | tuple[str, dict[str, str]]  # with its options
MOST_LAYOUTS = 2048  # combinations of input shapes that are remembered


@dataclass(frozen=True)
class _Plan:
    """One combination of input shapes, checked, and what it makes of the outputs."""

    shapes: dict[str, Shape]  # of the outputs
    buffers: dict[str, Array]  # for outputs that the caller gives no array for


class OnnxEngine:
    """Runs one ONNX graph with ONNX Runtime on the machine's own memory.

    Arrays are bound by their address and stay bound: a run rebinds only what changed since the
    last one. Outputs without an array in `into` go to buffers of the engine, one per shape.
    One engine serves one thread at a time.

    Args:
        path: the graph file; its external weights, if any, lie beside it.
        threads: intra-op threads; None takes one per core that this process may use.
        providers: ONNX Runtime execution providers, by preference; for those with a memory of
            their own see `runtime.engines.onnx_device`.
        spinning: threads wait busily between the operators of a pass: mostly faster, unless others
            want the cores as well. They sleep between two passes in any case.

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
        self._session = open_session(self.path, self.threads, providers, spinning)
        self._binding = self._session.io_binding()
        self._layout = session_layout(self.path, self._session)
        self._inputs, self._outputs = self._layout.inputs, self._layout.outputs
        self._names = tuple(self._inputs)
        self._layouts: dict[tuple[Shape, ...], _Plan] = {}
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

    def run(self, feeds: Mapping[str, Array], into: Mapping[str, Array]) -> dict[str, Array]:
        """See `runtime.engines.base.Engine.run`."""
        self._layout.check_names(feeds, into)
        shapes = tuple([feeds[name].shape for name in self._names])
        layout = self._layouts.get(shapes) or self._lay_out(shapes)
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
            raise self._layout.error("the pass failed", "a pass that runs", str(error)) from error
        return results

    def _bind_input(self, name: str, array: Array) -> None:
        self._layout.check_input(name, array.dtype)
        if not array.flags.c_contiguous:
            found = f"shape {array.shape} with strides {array.strides}"
            raise self._layout.error(
                f"input {name} is not C-contiguous", "np.ascontiguousarray", found
            )
        self._bound.pop(name, None)
        self._binding.bind_cpu_input(name, array)
        self._bound[name] = array  # also keeps the memory alive

    def _bind_output(self, name: str, array: Array, shape: Shape) -> None:
        self._layout.check_output(name, array.dtype, array.shape, shape)
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise self._layout.error(
                f"the array for output {name} can't be written in place",
                "a contiguous, writable array or leading-axis slice of one",
                f"strides {array.strides}, writable {array.flags.writeable}",
            )
        self._bound.pop(name, None)
        self._binding.bind_output(
            name, "cpu", 0, array.dtype, shape, array.__array_interface__["data"][0]
        )
        self._bound[name] = array

    def _lay_out(self, shapes: tuple[Shape, ...]) -> _Plan:
        """Check a new combination of input shapes and find the outputs' shapes."""
        outputs = self._layout.output_shapes(dict(zip(self._names, shapes, strict=True)))
        buffers = {
            name: self._buffers.setdefault(
                (name, shape), np.empty(shape, self._outputs[name].dtype)
            )
            for name, shape in outputs.items()
        }
        if len(self._layouts) >= MOST_LAYOUTS:  # a long drive must not gather memory
            self._layouts.clear()
            self._buffers.clear()
        layout = self._layouts[shapes] = _Plan(outputs, buffers)
        return layout


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def require_providers(names: Sequence[str]) -> Any:
    """ONNX Runtime's module, which has these execution providers.

    Raises:
        EngineError: it is not installed, or lacks one.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise EngineError(
            "ONNX Runtime is not installed",
            expected="the package onnxruntime 1.23 or newer",
            found=str(error),
            fix="pip install '.[cpu]' in slipstream's folder",
        ) from error
    if absent := [name for name in names if name not in ort.get_available_providers()]:
        raise EngineError(
            f"this ONNX Runtime lacks {', '.join(absent)}",
            expected=", ".join(names),
            found=", ".join(ort.get_available_providers()),
            fix=_INSTALL_GPU,
        )
    return ort


def open_session(
    path: Path, threads: int, providers: Sequence[Provider], spinning: bool = True
) -> Any:
    """An ONNX Runtime session that really runs on the first provider.

    Raises:
        EngineError: ONNX Runtime or a provider is absent, can't start or can't compute the graph,
            or the file is damaged.
        MemoryError: there is no room for it.
    """
    ort = require_providers(names := [_name(each) for each in providers])
    if not path.is_file():
        raise EngineError(
            f"{path} is missing", expected="an ONNX graph", found="no such file", fix=_EXPORT
        )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors come as exceptions
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    # each graph has threads of its own: those of one must not hold the cores while another runs
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = ort.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:
        check_memory(error)
        if "NOT_IMPLEMENTED" in str(error):  # such as products in bf16 on a CPU
            raise EngineError(
                f"{names[0]} can't compute {path}",
                expected="operators and types that this provider has",
                found=str(error).strip().splitlines()[0][:300],
                fix="--provider tensorrt or cuda, or a bundle in another precision",
            ) from error
        raise EngineError(
            f"{path} can't be loaded",
            expected="a whole ONNX graph of opset 23 or older",
            found=str(error).strip().splitlines()[0][:300] or type(error).__name__,
            fix=f"copy the bundle again, or {_EXPORT}",
        ) from error
    if (started := session.get_providers())[0] != names[0]:  # ONNX Runtime goes on without it
        raise EngineError(
            f"{names[0]} could not start",
            expected="its driver and libraries (CUDA 12, cuDNN 9, for TensorRT its own)",
            found=f"a session on {', '.join(started)}",
            fix="slipstream doctor",
        )
    return session


def session_layout(path: Path, session: Any) -> Layout:
    """A session's inputs and outputs.

    Raises:
        EngineError: a dtype that no graph of ours has.
    """
    return Layout(
        str(path), _specs(path, session.get_inputs()), _specs(path, session.get_outputs())
    )


def _name(provider: Provider) -> str:
    return provider if isinstance(provider, str) else provider[0]


_EXPORT = "slipstream export TARGET --draft DRAFTER -o BUNDLE"
_INSTALL_GPU = (
    "pip uninstall onnxruntime, then pip install '.[gpu]' in slipstream's folder "
    "(on a Jetson the onnxruntime-gpu wheel for its JetPack)"
)


def _specs(path: Path, nodes: Sequence[Any]) -> dict[str, TensorSpec]:
    for node in nodes:
        if node.type not in DTYPES:
            raise EngineError(
                f"{path}: {node.name} has an unknown type",
                expected=", ".join(DTYPES),
                found=node.type,
                fix=_EXPORT,
            )
    return {
        node.name: TensorSpec(node.name, DTYPES[node.type], tuple(node.shape)) for node in nodes
    }
