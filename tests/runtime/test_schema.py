"""The schema's blocks, against their definition."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.schema import block_ends, schema_blocks
from tests.runtime.filling import blocks_by_hand, scaffold_in

SECTIONS = st.lists(st.text("?*10", min_size=1, max_size=24), min_size=1, max_size=5)


@given(SECTIONS, st.integers(1, 64))
def test_blocks_are_those_of_the_definition(sections: list[str], size: int) -> None:
    scaffold = scaffold_in(*sections)
    found = schema_blocks(scaffold, size)
    assert found.tolist() == blocks_by_hand(scaffold, size)
    ends = block_ends(scaffold, size)
    for place, number in enumerate(found):
        same = np.flatnonzero(found == number) if number >= 0 else np.asarray([place])
        assert ends[place] == same[-1]


@given(SECTIONS, st.integers(1, 64))
def test_a_block_is_full_unless_its_section_ends(sections: list[str], size: int) -> None:
    scaffold = scaffold_in(*sections)
    found = schema_blocks(scaffold, size)
    numbers = [number for number in dict.fromkeys(found.tolist()) if number >= 0]
    assert numbers == list(range(len(numbers)))
    for number in numbers:
        places = np.flatnonzero(found == number)
        assert (np.diff(places) == 1).all()
        (section,) = {scaffold.section_of(int(place)).name for place in places}
        values = int(scaffold.is_value[places].sum())
        span = scaffold.section(section)
        more = scaffold.is_value[places[-1] + 1 : span.stop].any()
        assert values == size if more else 0 < values <= size


def test_by_hand() -> None:
    #                       00011 1112 222
    scaffold = scaffold_in("1??1?", "0000", "?11?1?1", "1")
    assert schema_blocks(scaffold, 2).tolist() == [
        *(0, 0, 0, 1, 1),  # the token between both is as near to the following one
        *(-1, -1, -1, -1),
        *(2, 2, 2, 2, 3, 3, 3),
        -1,
    ]
    assert block_ends(scaffold, 2).tolist() == [2, 2, 2, 4, 4, 5, 6, 7, 8, *[12] * 4, *[15] * 3, 16]
    assert all(a <= b for a, b in pairwise(block_ends(scaffold, 2)))
