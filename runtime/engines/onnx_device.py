"""ONNX Runtime on a device with a memory of its own: CUDA and TensorRT as execution providers.

Inputs and outputs are bound by device address. Never run on a GPU by its authors so far: the tests
run this engine over an `AddressedDevice` of host memory with ONNX Runtime's CPU provider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.engines.addressed import AddressedDevice, DeviceBuffer
from runtime.engines.addressed_engine import AddressedEngine
from runtime.engines.onnx import Provider, open_session, session_layout

_Bound = tuple[int, tuple[int, ...]]  # address and shape


class OnnxDeviceEngine(AddressedEngine):
    """One ONNX graph, bound to a device's memory.

    Args:
        path: the graph file.
        device: where inputs and outputs are.
        providers: ONNX Runtime execution providers with their options, by preference; those of
            CUDA must be given the device's stream, for nothing else orders passes and copies.
        threads: of what ONNX Runtime leaves on the CPU.

    Raises:
        EngineError: ONNX Runtime or a provider is absent or can't start, or the file is damaged.
    """

    def __init__(
        self,
        path: str | Path,
        device: AddressedDevice,
        providers: Sequence[Provider],
        threads: int = 1,
    ) -> None:
        self.path = Path(path)
        self._session = open_session(self.path, threads, providers)
        self._binding = self._session.io_binding()
        self._bound: dict[str, _Bound] = {}
        import onnxruntime as ort

        self._options = ort.RunOptions()
        # passes are queued on the device's stream; whoever reads a result waits for it
        self._options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        super().__init__(device, session_layout(self.path, self._session))

    def _execute(
        self, inputs: Mapping[str, DeviceBuffer], outputs: Mapping[str, DeviceBuffer]
    ) -> None:
        for name, buffer in inputs.items():
            if self._moved(name, buffer):
                self._bind(self._binding.bind_input, name, buffer)
        for name, buffer in outputs.items():
            if self._moved(name, buffer):
                self._bind(self._binding.bind_output, name, buffer)
        try:
            self._session.run_with_iobinding(self._binding, self._options)
        except Exception as error:
            raise self.layout.error("the pass failed", "a pass that runs", str(error)) from error

    def _moved(self, name: str, buffer: DeviceBuffer) -> bool:
        return self._bound.get(name) != (buffer.address, buffer.shape)

    def _bind(self, bind: object, name: str, buffer: DeviceBuffer) -> None:
        assert callable(bind)
        self._bound.pop(name, None)
        device = self.device
        bind(name, device.kind, device.index, buffer.dtype, buffer.shape, buffer.address)
        self._bound[name] = (buffer.address, buffer.shape)
