"""BLAS has one thread while a frame is decoded, and its own number before and after."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

from runtime.decode import Decoder
from runtime.settings import DecodeSettings
from runtime.threads import one_blas_thread
from tests.runtime.filling import filling_graphs, scaffold_in

BLAS = ThreadpoolController().select(user_api="blas")
pytestmark = pytest.mark.skipif(not BLAS.lib_controllers, reason="numpy has no BLAS of its own")


def threads() -> set[int]:
    return {library["num_threads"] for library in BLAS.info()}


def test_a_frame_is_decoded_with_one(tmp_path) -> None:
    found = []
    with threadpool_limits(2, user_api="blas"):
        graphs = filling_graphs(tmp_path)
        decoder = Decoder(graphs, None, lambda *_: found.append(threads()))
        decoder.decode(np.arange(5), scaffold_in("???"), DecodeSettings("ar"), None)
        assert found
        assert set.union(*found) == {1}
        assert threads() == {2}


def test_what_fails_gives_them_back() -> None:
    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(RuntimeError), one_blas_thread():
            raise RuntimeError
        assert threads() == {2}


def test_many_frames_at_once_give_them_back() -> None:
    def work() -> None:
        for _ in range(200):
            with one_blas_thread():
                pass

    before = threads()
    with one_blas_thread():
        assert threads() == {1}, "no other thread decides for the process"
    workers = [Thread(target=work) for _ in range(4)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert threads() == before
