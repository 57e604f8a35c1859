"""How many tokens a frame of a bundle has: its prompt, what comes before the fork, the rest."""

from __future__ import annotations

import numpy as np

from drives.open import open_drive
from drives.windows import windows
from planners.language import Language
from planners.prompt import prompt_text
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import Bundle
from runtime.errors import SlipstreamError


def tokens_of(bundle: Bundle) -> tuple[int, int, int]:
    """Prompt rows, output tokens before the fork, and behind it. Prompts are of fixed width.

    Raises:
        SlipstreamError: the bundle names no language.
    """
    manifest = bundle.manifest
    if manifest.language is None:
        raise SlipstreamError(
            f"{bundle.folder} names no language, so its frames have no known length",
            expected="--prompt, --prefix and --tail in tokens",
            found="none",
            fix="slipstream estimate BUNDLE --device orin-nx --prompt 512 --prefix 64 --tail 64",
        )
    tokenizer = Tokenizer.load(
        bundle.folder / manifest.tokenizer,
        SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token),
        vocab=manifest.target.vocab,
    )
    language = Language.load(bundle.folder / manifest.language)
    scaffold = language.compile(tokenizer)
    span = scaffold.section(language.fork_section)
    first = span.start + int(np.argmax(scaffold.is_value[span.start : span.stop]))
    window = windows(open_drive("synthetic")).windows[0]
    prompt = len(tokenizer.encode(prompt_text(window.observation)))
    return prompt, first, len(scaffold) - first
