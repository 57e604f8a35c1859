"""What TensorRT says while it builds: errors, warnings, progress, and the engine's own layer list.

An engine can't be opened without its GPU, but the builder lists its layers and tensors when it is
done; that listing is all there is to inspect on the machine that only builds.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Notify = Callable[[str, float], None]  # phase, and how much of the build is done, 0 to 1
_TENSOR = re.compile(r"Name: ([^{},]+), Dimensions: \[([^\]]*)\],.*?Datatype: (\w+)")
_LAYER = re.compile(
    r"Name: (.*?), LayerType: (\w*), Inputs: \[(.*?)\], Constants: \[.*?\], "
    r"Outputs: \[(.*?)\], TacticName: (.*?), StreamId: \d+, Metadata: (.*)"
)
_IO = re.compile(r"Name: (\S+), IOMode: (\w+), DataType: (\w+), Dimensions: \[([^\]]*)\]")
_ACTIVATIONS = re.compile(r"Total Activation Memory: (\d+) bytes")


@dataclass
class BuildLog:
    """Keeps what matters of thousands of messages; the builder writes from several threads."""

    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    activations: list[int] = field(default_factory=list)  # bytes, one for each profile in turn
    listing: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, severity: str, message: str) -> None:
        with self._lock:
            if severity in ("ERROR", "INTERNAL_ERROR"):
                self.errors.append(message.strip())
            elif severity == "WARNING":
                if message not in self.warnings:
                    self.warnings.append(message.strip())
            elif "LayerType: " in message:
                self.listing = message
            elif match := _ACTIVATIONS.search(message):
                self.activations.append(int(match.group(1)))

    def why(self) -> str:
        """The last errors, for a message."""
        return "; ".join(self.errors[-3:])[:600] or "TensorRT gave no reason"


def as_monitor(module: Any, notify: Notify, stopped: Callable[[], bool] = lambda: False) -> Any:
    """A TensorRT progress monitor; the share done is that of the outermost phase.

    Args:
        stopped: asked at every step; true cancels the build.

    Returns:
        The monitor. What `notify` raises can't pass through TensorRT: the first such error becomes
        the monitor's `lost` and cancels the build.
    """
    steps: dict[str, int] = {}
    outermost: list[str] = []
    lock = threading.Lock()

    def start(self: Any) -> None:
        module.IProgressMonitor.__init__(self)
        self.lost = None

    def tell(self: Any, name: str, done: float) -> None:
        try:
            notify(name, done)
        except BaseException as error:
            self.lost = self.lost or error

    def phase_start(self: Any, name: str, parent: str | None, total: int) -> None:
        with lock:
            steps[name] = max(1, total)
            if parent is None:
                outermost.append(name)

    def step_complete(self: Any, name: str, step: int) -> bool:
        with lock:
            if outermost and name == outermost[-1]:
                tell(self, name, min(1.0, (step + 1) / steps[name]))
            elif outermost:
                tell(self, name, -1.0)
        return self.lost is None and not stopped()

    def phase_finish(self: Any, name: str) -> None:
        with lock:
            steps.pop(name, None)
            if outermost and name == outermost[-1]:
                tell(self, name, 1.0)

    methods = {
        "__init__": start,
        "phase_start": phase_start,
        "step_complete": step_complete,
        "phase_finish": phase_finish,
    }
    return type("Monitor", (module.IProgressMonitor,), methods)()


@dataclass(frozen=True)
class ListedTensor:
    """A tensor of the engine itself: TensorRT's type name in lower case, -1 for dynamic sizes."""

    name: str
    mode: str
    dtype: str
    shape: tuple[int, ...]


def listed_tensors(listing: str) -> list[ListedTensor]:
    """Inputs and outputs in the builder's listing."""
    return [
        ListedTensor(name, mode.lower(), dtype.lower(), _sizes(dims))
        for name, mode, dtype, dims in _IO.findall(listing)
    ]


def listed_layers(listing: str) -> list[dict[str, Any]]:
    """The layers in the builder's listing: name, type, inputs, outputs, tactic, ONNX nodes."""
    layers = []
    for line in listing.splitlines():
        if match := _LAYER.match(line.strip()):
            name, kind, inputs, outputs, tactic, metadata = match.groups()
            layers.append(
                {
                    "name": name,
                    "type": kind,
                    "inputs": _tensors(inputs),
                    "outputs": _tensors(outputs),
                    "tactic": tactic,
                    "onnx": re.findall(r"\[ONNX Layer: ([^\]]*)\]", metadata),
                }
            )
    return layers


def inspected_layers(information: str) -> list[dict[str, Any]]:
    """The same from the JSON of an engine inspector, where the engine could be opened."""
    return [
        {
            "name": layer.get("Name", ""),
            "type": layer.get("LayerType", ""),
            "inputs": [_inspected(tensor) for tensor in layer.get("Inputs", [])],
            "outputs": [_inspected(tensor) for tensor in layer.get("Outputs", [])],
            "tactic": str(layer.get("TacticName", layer.get("TacticValue", ""))),
            "onnx": re.findall(r"\[ONNX Layer: ([^\]]*)\]", layer.get("Metadata", "")),
        }
        for layer in json.loads(information).get("Layers", [])
        if isinstance(layer, dict)
    ]


def _inspected(tensor: dict[str, Any]) -> dict[str, Any]:
    kind = tensor.get("Datatype") or tensor.get("Format/Datatype", "")
    return {"name": tensor.get("Name", ""), "dtype": kind, "shape": tensor.get("Dimensions", [])}


def _tensors(text: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "dtype": dtype, "shape": list(_sizes(dims))}
        for name, dims, dtype in _TENSOR.findall(text)
    ]


def _sizes(dims: str) -> tuple[int, ...]:
    return tuple(int(size) for size in re.findall(r"-?\d+", dims))
