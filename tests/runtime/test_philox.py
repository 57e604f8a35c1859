from __future__ import annotations

import numpy as np
import pytest

from runtime.philox import philox4x32, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # the known-answer vectors published with Random123
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
    ],
)
def test_known_answers(counter, key, words) -> None:
    assert tuple(philox4x32(np.asarray(counter, np.uint64), key)) == words


def test_a_number_depends_on_its_place_and_not_on_its_batch() -> None:
    rollouts, positions = np.arange(6)[:, None], np.arange(40)
    batch = uniforms(7, 3, rollouts, positions)
    assert np.array_equal(batch[4, 11], uniforms(7, 3, np.asarray(4), np.asarray(11)))
    everything = batch.reshape(-1)
    assert len(np.unique(everything)) == everything.size
    assert everything.min() > 0.0
    assert everything.max() < 1.0


@pytest.mark.parametrize(
    "changed", [{"seed": 8}, {"frame": 4}, {"offsets": 1}, {"seed": 7 + 2**40}]
)
def test_every_part_of_the_counter_counts(changed) -> None:
    place = {"seed": 7, "frame": 3, "offsets": 0}
    rollouts, positions = np.arange(3), np.arange(3)
    before = uniforms(rollouts=rollouts, positions=positions, **place)
    after = uniforms(rollouts=rollouts, positions=positions, **{**place, **changed})
    assert not np.isclose(before, after).any()


def test_uniform_enough() -> None:
    u = uniforms(0, 0, np.arange(100)[:, None], np.arange(1000)).reshape(-1, 4)
    counts = np.stack([np.histogram(column, 20, (0, 1))[0] for column in u.T])
    chi2 = ((counts - 5000.0) ** 2 / 5000.0).sum(axis=1)
    assert (chi2 < 45).all()  # 19 degrees of freedom, p = 7e-4 each
    assert np.abs(np.corrcoef(u.T) - np.eye(4)).max() < 0.02
