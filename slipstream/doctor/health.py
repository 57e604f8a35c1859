"""Whether a bundle really opens and computes here: hashes, language, one pass of its head."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from runtime.bundle import Bundle
from runtime.engines.onnx import OnnxEngine
from runtime.errors import SlipstreamError
from slipstream.doctor.findings import Finding


def check_bundle(folder: Path) -> Finding | None:
    """A fault, or None if the bundle is whole and its head graph gives finite numbers."""
    try:
        bundle = Bundle.open(folder)
        engine = OnnxEngine(bundle.graph_path("head"), threads=1)
        row = np.ones((1, 1, bundle.manifest.target.width), np.float32)
        out = np.asarray(engine.run({"hidden": row}, {})["logsumexp"])
    except SlipstreamError as error:
        found = f" ({error.found})" if error.found else ""
        return Finding("fault", f"{error.what}{found}", error.fix)
    if not np.isfinite(out).all():
        return Finding(
            "fault",
            f"{folder}: the head graph gives no finite numbers here",
            "slipstream verify BUNDLE",
        )
    return None
