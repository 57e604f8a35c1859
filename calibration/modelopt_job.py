"""Run NVIDIA Model Optimizer on one graph: a program of its own, `python modelopt_job.py JOB.json`.

It changes ONNX Runtime's quantizer in place and loads torch, so it never shares a process with the
rest. The Python that runs this needs nothing of ours, and may be one of another environment.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

CLIPPED = "awq_clip"  # int4: each block's scale is the one with the least error on the passes


def main(job: dict[str, Any]) -> None:
    """Write `job["out"]`: the graph `job["graph"]` with Q/DQ nodes at the products `job["nodes"]`.

    The job also has "precision", "feeds" (.npz files), "others" (products that stay), and for int4
    "block".
    """
    quantize = import_module("modelopt.onnx.quantization").quantize
    precision = job["precision"]
    options: dict[str, Any]
    if precision == "int4":
        options = {
            "calibration_method": CLIPPED,
            "block_size": job["block"],
            "nodes_to_exclude": _patterns(job["others"]),
        }
    else:
        options = {
            "calibration_method": "max",
            "op_types_to_quantize": ["MatMul"],
            "nodes_to_quantize": _patterns(job["nodes"]),
            "passes": [],
            # it tells by the first pass's shapes, and a pass may have any number of rows
            "enable_gemv_detection_for_trt": False,
        }
    quantize(
        job["graph"],
        quantize_mode=precision,
        calibration_data_reader=_reader(job["feeds"]),
        calibration_eps=["cpu"],
        high_precision_dtype="fp32",
        disable_mha_qdq=True,
        output_path=job["out"],
        log_level="WARNING",
        **options,
    )


def _patterns(names: list[str]) -> list[str]:
    """Names are taken as patterns, and `MatMul.2` is found in `MatMul.28`."""
    return [f"^{re.escape(name)}$" for name in names]


def _reader(paths: list[str]) -> Any:
    """What a pass is fed, one file at a time."""
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rewind()

        def get_next(self) -> dict[str, Any] | None:
            path = next(self._paths, None)
            return None if path is None else self._load(path)

        def get_first(self) -> dict[str, Any]:
            return self._load(paths[0])

        def rewind(self) -> None:
            self._paths = iter(paths)

        def _load(self, path: str) -> dict[str, Any]:
            with np.load(path, allow_pickle=False) as arrays:
                return dict(arrays)

    return Reader()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
