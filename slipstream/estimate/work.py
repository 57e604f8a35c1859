"""How many tokens a frame of a bundle has: its prompt, what comes before the fork, the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drives.open import open_drive
from drives.windows import windows
from planners.language import Language
from planners.prompt import prompt_text
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError
from runtime.scaffold import Scaffold
from slipstream.estimate.schema import Blocks, blocks_of


@dataclass(frozen=True)
class Tokens:
    """A frame's tokens.

    Attributes:
        prompt: rows of the prefill, those of pictures among them.
        prefix, tail: output tokens before the fork, and behind it.
    """

    prompt: int
    prefix: int
    tail: int


class BundleWork:
    """A bundle's frame, by its own tokenizer, language and prompt. Prompts are of fixed width.

    Raises:
        SlipstreamError: the bundle names no language.
    """

    def __init__(self, bundle: Bundle) -> None:
        manifest = bundle.manifest
        if manifest.language is None:
            raise SlipstreamError(
                f"{bundle.folder} names no language, so its frames have no known length",
                expected="--prompt, --prefix and --tail in tokens",
                found="none",
                fix="slipstream estimate BUNDLE --device orin-nx "
                "--prompt 512 --prefix 64 --tail 64",
            )
        tokenizer = Tokenizer.load(
            bundle.folder / manifest.tokenizer,
            SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token),
            vocab=manifest.target.vocab,
        )
        language = Language.load(bundle.folder / manifest.language)
        self._scaffold: Scaffold = language.compile(tokenizer)
        span = self._scaffold.section(language.fork_section)
        values = self._scaffold.is_value[span.start : span.stop]
        self._first = span.start + int(np.argmax(values))
        length = len(self._scaffold) - self._first
        self.tokens = Tokens(_prompt(bundle, tokenizer), self._first, length)

    def blocks(self, size: int, widest: int | None) -> Blocks:
        """The schema's blocks of `size` values; see `Blocks`."""
        return blocks_of(self._scaffold, self._first, size, widest)


def _prompt(bundle: Bundle, tokenizer: Tokenizer) -> int:
    observation = windows(open_drive("synthetic")).windows[0].observation
    if bundle.manifest.vision is None and "prompt.json" not in bundle.manifest.files:
        return len(tokenizer.encode(prompt_text(observation)))
    from planners.cameras import CameraPrompts

    return len(CameraPrompts(bundle, tokenizer).prompt(observation, None))
