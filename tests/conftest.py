"""Small matrices don't pay for threads, and spinning ones would starve the engines' own."""

from __future__ import annotations

import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
