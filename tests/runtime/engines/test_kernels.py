"""TensorRT-RTX's kernels on disk: only what is whole and of this engine is handed to TensorRT-RTX.

Its runtime cache exists on a GPU alone; what stands for it here keeps bytes and says yes or no.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import pytest

from runtime.engines.kernels import KEPT_AFTER, Kernels

ENGINE, OTHER = hashlib.sha256(b"engine").hexdigest(), hashlib.sha256(b"other").hexdigest()


class Cache:
    """Serialised content, as `IRuntimeCache` has it."""

    def __init__(self, content: bytes = b"", takes: bool = True) -> None:
        self.content, self.takes = content, takes
        self.offered: list[bytes] = []

    def serialize(self) -> bytes:
        return self.content

    def deserialize(self, raw: bytes) -> bool:
        self.offered.append(raw)
        if self.takes:
            self.content = raw
        return self.takes


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Its file, with kernels beside it."""
    Kernels(Cache(b"kernels"), tmp_path / "target.engine", ENGINE).keep()
    return tmp_path / "target.engine"


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_the_next_process_has_the_kernels(engine: Path) -> None:
    cache = Cache()
    kernels = Kernels(cache, engine, ENGINE)
    assert kernels.path == engine.with_suffix(".kernels")
    assert cache.offered == [b"kernels"]


def test_only_new_kernels_are_written(engine: Path) -> None:
    cache = Cache()
    kernels = Kernels(cache, engine, ENGINE)
    kernels.path.unlink()
    kernels.keep()
    assert not kernels.path.exists()
    cache.content = b"more kernels"
    kernels.keep()
    again = Cache()
    Kernels(again, engine, ENGINE)
    assert again.content == b"more kernels"


def test_nothing_is_written_where_nothing_was_compiled(tmp_path: Path) -> None:
    Kernels(Cache(), tmp_path / "target.engine", ENGINE).keep()
    assert not list(tmp_path.iterdir())


def test_some_passes_write_and_others_cost_nothing(tmp_path: Path) -> None:
    cache = Cache()
    kernels = Kernels(cache, tmp_path / "target.engine", ENGINE)
    written = []
    for number in range(1, max(KEPT_AFTER) + 10):
        cache.content = str(number).encode()
        kernels.passed()
        if kernels.path.exists():
            written.append(number)
            kernels.path.unlink()
    assert tuple(written) == KEPT_AFTER


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (lambda raw: b"", "another kind"),
        (lambda raw: raw[:-1], "cut short or altered"),
        (lambda raw: raw[:60], "cut short or altered"),
        (lambda raw: raw[:-1] + b"x", "cut short or altered"),
        (lambda raw: raw + b"x", "cut short or altered"),
        (lambda raw: b"\xff" * 500, "another kind"),
    ],
)
def test_what_is_not_whole_is_one_warning_and_is_replaced(engine: Path, raw, why: str) -> None:
    path = engine.with_suffix(".kernels")
    path.write_bytes(raw(path.read_bytes()))
    cache = Cache()
    with pytest.warns(RuntimeWarning, match=why) as caught:
        kernels = Kernels(cache, engine, ENGINE)
    assert len(caught) == 1
    assert cache.offered == []
    cache.content = b"compiled again"
    kernels.keep()
    Kernels(cache, engine, ENGINE)
    assert cache.offered == [b"compiled again"]


def test_kernels_of_an_older_build_are_not_offered(engine: Path) -> None:
    cache = Cache()
    with pytest.warns(RuntimeWarning, match="another engine"):
        Kernels(cache, engine, OTHER)
    assert cache.offered == []


def test_what_tensorrt_refuses_is_one_warning(engine: Path) -> None:
    with pytest.warns(RuntimeWarning, match="another GPU, driver or version"):
        Kernels(Cache(takes=False), engine, ENGINE)


def test_a_folder_that_can_not_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(b"kernels")
    kernels = Kernels(cache, tmp_path / "file" / "target.engine", ENGINE)
    with pytest.warns(RuntimeWarning, match="can't write") as caught:
        kernels.keep()
    assert len(caught) == 1
    cache.content = b"more"
    kernels.keep()  # said once


def test_a_folder_in_the_files_place_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "target.kernels").mkdir()
    with pytest.warns(RuntimeWarning, match="it is no file"):
        Kernels(Cache(), tmp_path / "target.engine", ENGINE)
