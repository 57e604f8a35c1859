"""Whether a bundle really opens and computes here: hashes, language, a frame by all its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from planners.language import Language
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import Bundle
from runtime.decode import Decoder
from runtime.engines.base import Array
from runtime.engines.onnx import OnnxEngine
from runtime.errors import BundleError, EngineError, SlipstreamError
from runtime.graphs import Graphs
from runtime.scaffold import VALUE, Scaffold, Span
from runtime.settings import DecodeSettings
from slipstream.doctor.findings import Finding

EXPORT = "slipstream export TARGET --draft DRAFTER -o BUNDLE"
VALUES = 8  # decoded in all, before and behind the fork: enough for every graph


class FiniteEngine(OnnxEngine):
    """An engine on one thread that insists on finite outputs.

    Raises:
        EngineError: by `run` too, when an output holds NaN or infinity.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, threads=1)

    def run(self, feeds: Mapping[str, Array], into: Mapping[str, Array]) -> dict[str, Array]:
        results = super().run(feeds, into)
        for name, output in results.items():
            if not np.isfinite(output).all():
                raise EngineError(
                    f"{self.path} computes no finite numbers here",
                    expected="finite outputs",
                    found=f"NaN or infinity in {name}",
                    fix=f"export the bundle again: {EXPORT}",
                )
        return results


def check_bundle(folder: Path) -> Finding | None:
    """A fault, or None if the bundle is whole and all its graphs give finite numbers."""
    try:
        bundle = Bundle.open(folder)
        _load_language(bundle)
        _decode(bundle)
    except SlipstreamError as error:
        found = f" ({error.found})" if error.found else ""
        return Finding("fault", f"{error.what}{found}", error.fix)
    except Exception as error:  # whatever a strange bundle does is a fault of it
        reason = (str(error).splitlines() or [""])[0]
        what = f"{folder} does not run here: {type(error).__name__} {reason}".strip()
        return Finding("fault", what, f"export the bundle again: {EXPORT}")
    return None


def _load_language(bundle: Bundle) -> None:
    manifest = bundle.manifest
    tokenizer = Tokenizer.load(
        bundle.folder / manifest.tokenizer,
        SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token),
        vocab=manifest.target.vocab,
    )
    if manifest.language is None:
        raise BundleError(
            f"{bundle.folder} names no language, so it plans nothing",
            expected="`language` in bundle.json",
            found="none",
            fix="export a driving planner: its folder holds a language.json",
        )
    Language.load(bundle.folder / manifest.language).compile(tokenizer)


def _decode(bundle: Bundle) -> None:
    """A short output of two rollouts, drafted if there is a drafter."""
    manifest = bundle.manifest
    vocab, draft = manifest.target.vocab, manifest.draft
    graphs = Graphs(bundle, FiniteEngine)
    scaffold = Scaffold(
        tokens=np.full(VALUES, VALUE, np.int64),
        allowed_id=np.zeros(VALUES, np.int64),
        allowed_sets=np.ones((1, vocab), np.bool_),
        sections=(Span("first", 0, VALUES // 2), Span("second", VALUES // 2, VALUES)),
    )
    settings = DecodeSettings(
        method="dflash" if draft else "ar",
        block=draft.block if draft else None,
        rollouts=min(2, manifest.limits.rollouts),
    )
    prompt = np.linspace(0, vocab - 1, 8).astype(np.int64)
    Decoder(graphs, None).decode(prompt, scaffold, settings, "second")
