"""Set for all tests: one thread for small matrices, repeatable examples."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest
from hypothesis import settings

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# hundreds of commands are started, and each would compile the whole package anew
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# the same examples in every run: a failure can be looked at again
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whom the system does not know, as in a container that is run with --user."""

    def unknown(number: int) -> NoReturn:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")


# each takes minutes; first, so that the other worker has enough left to do beside them
LONGEST = ("test_readme.py", "fleet/test_run.py", "test_tensorrt_build.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest files; the order of all others stays."""
    items.sort(key=lambda item: not str(item.path).endswith(LONGEST))
