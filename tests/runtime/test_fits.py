"""What a bundle has no room for is refused before the first pass, by the name of the setting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.decode import Decoder
from runtime.errors import EngineError, SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from tests.runtime.tabular import scaffold_of, tabular_graphs

PROMPT = np.asarray([1, 3, 2, 0, 1])
SCAFFOLD = scaffold_of("1?*|?*2*?0")
HOT = Sampling(1.0)


@pytest.mark.parametrize("rollouts", [1, 5])
@pytest.mark.parametrize(("method", "name"), [("ddtree", "nodes"), ("spectr", "paths")])
def test_the_largest_tree_decodes_and_a_larger_one_is_refused(
    tmp_path: Path, method: str, name: str, rollouts: int
) -> None:
    decoder = Decoder(tabular_graphs(tmp_path, trunk=40, branch=30), None)

    def decode(size: int) -> None:
        settings = DecodeSettings(method, rollouts=rollouts, sampling=HOT, **{name: size})  # type: ignore[arg-type]
        decoder.decode(PROMPT, SCAFFOLD, settings, "tail")

    with pytest.raises(SlipstreamError, match=f"{name} is more than the cache has room") as error:
        decode(64)
    most = int(error.value.fix.split()[-1])
    decode(most)
    with pytest.raises(SlipstreamError, match=f"{name} is more"):
        decode(most + 1)


def test_a_size_is_of_no_matter_where_no_tree_is_built(tmp_path: Path) -> None:
    decoder = Decoder(tabular_graphs(tmp_path, trunk=40, branch=30), None)
    for method in ("ar", "ar-scaffold", "dflash"):
        decoder.decode(PROMPT, SCAFFOLD, DecodeSettings(method, nodes=300, block=None), "tail")


@pytest.mark.parametrize("method", ["ar", "dflash", "ddtree"])
def test_logits_that_are_no_numbers_are_an_error(tmp_path: Path, monkeypatch, method: str) -> None:
    graphs = tabular_graphs(tmp_path)
    head = graphs.engine("head")
    whole = head.run

    def spoilt(feeds, into):
        out = whole(feeds, into)
        logits = out["top_logits"].copy()
        logits.flat[-1] = np.nan
        return {**out, "top_logits": logits}

    monkeypatch.setattr(head, "run", spoilt)
    with pytest.raises(EngineError, match="not numbers"):
        Decoder(graphs, None).decode(PROMPT, SCAFFOLD, DecodeSettings(method), "tail")
