"""Set for all tests: one thread for small matrices, repeatable examples."""

from __future__ import annotations

import os

from hypothesis import settings

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# the same examples in every run: a failure can be looked at again
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
