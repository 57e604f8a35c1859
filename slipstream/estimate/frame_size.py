"""How large a frame is: what the command was told, else what the bundle or the name says."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from slipstream.estimate import fast_ddrive
from slipstream.estimate.acceptance import Acceptance
from slipstream.estimate.frame import Work
from slipstream.estimate.schema import Blocks, even_blocks
from slipstream.estimate.shape import ModelShape
from slipstream.estimate.work import BundleWork, Tokens


class FrameSize:
    """A frame's tokens, and the blocks that its output is drafted in.

    Args:
        model: as named on the command line, or the bundle's.
        bundle: None for a model that is none yet.
        prompt, prefix, tail: as given; None is the model's own.
        batch: most rollouts that are decoded at once; None for all of them.

    Raises:
        SlipstreamError: not all is given, and neither bundle nor name knows the rest.
    """

    def __init__(
        self,
        model: ModelShape,
        bundle: Bundle | None,
        prompt: int | None,
        prefix: int | None,
        tail: int | None,
        batch: int | None = None,
    ) -> None:
        self._model, self._bundle = model, bundle
        self.as_published = bundle is None and model.name == fast_ddrive.NAME
        self._own_output = prefix is None and tail is None
        if prompt is None or prefix is None or tail is None:
            own = self._tokens(prompt, prefix, tail)
            prompt = own.prompt if prompt is None else prompt
            prefix = own.prefix if prefix is None else prefix
            tail = own.tail if tail is None else tail
        self.plain = Work(prompt, prefix, tail, batch=batch)

    def drafted(self, acceptance: Acceptance) -> Work:
        """The frame's work with drafts that are accepted so far."""
        blocks = self.blocks(acceptance.block) if acceptance.schema else None
        length, block = acceptance.length, acceptance.block
        return replace(self.plain, acceptance_length=length, block=block, blocks=blocks)

    def blocks(self, size: int) -> Blocks:
        """The schema's, of `size` values; of `size` tokens where the output is not known."""
        model = self._model
        widest = None if model.drafts_itself or model.draft is None else model.block
        if self._own_output and self.as_published:
            return fast_ddrive.output(size)[2]
        if self._own_output and self._bundle is not None:
            return self._of_bundle.blocks(size, widest)
        return even_blocks(self.plain.prefix, self.plain.tail, size, widest)

    @cached_property
    def _of_bundle(self) -> BundleWork:
        assert self._bundle is not None
        return BundleWork(self._bundle)

    def _tokens(self, *given: int | None) -> Tokens:
        if self._bundle is not None:
            return self._of_bundle.tokens
        if self.as_published:
            prefix, tail, _ = fast_ddrive.output()
            return Tokens(fast_ddrive.PROMPT, prefix, tail)
        raise SlipstreamError(
            f"{self._model.name} is no bundle, so its frames have no known length",
            expected="--prompt, --prefix and --tail in tokens",
            found=", ".join("none" if value is None else str(value) for value in given),
            fix=f"slipstream estimate {self._model.name} --device orin-nx "
            "--prompt 512 --prefix 64 --tail 64",
        )
