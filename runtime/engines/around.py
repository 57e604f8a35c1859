"""An engine around another one: the same graph, with something done beside each pass."""

from __future__ import annotations

from runtime.engines.base import Engine, TensorSpec


class EngineAround:
    """Says what the engine inside says; who inherits runs it.

    Args:
        engine: the one inside.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        return self._engine.inputs

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        return self._engine.outputs
