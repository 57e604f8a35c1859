"""Where to train, and how to make it repeatable there."""

from __future__ import annotations

import os

import torch

from runtime.errors import SlipstreamError


def prepared(device: str, threads: int) -> torch.device:
    """The device, ready: repeatable kernels, and so many threads of the host.

    Raises:
        SlipstreamError: a device that is not here.
    """
    torch.set_num_threads(threads)
    if device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise SlipstreamError(
            "--device cuda can't be used",
            expected="an NVIDIA GPU, its driver, and a build of torch for it",
            found=f"torch {torch.__version__}, which sees none",
            fix="train with --device cpu, or install torch for CUDA (slipstream doctor)",
        )
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # repeatable products
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device("cuda")
