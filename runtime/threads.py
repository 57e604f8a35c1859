"""The host's share of the cores between two passes: one thread.

numpy's products run in BLAS, whose threads wait busily for the next one for milliseconds. A frame's
products are small, and the cores that these threads hold are those that a pass runs on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread in the process, then its own number again. Where several Python threads
    want that at once, the first to come decides how long."""
    with _blas().limit(limits=1):
        yield
