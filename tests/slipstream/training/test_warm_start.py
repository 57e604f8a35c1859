"""`warm_start`: networks that begin with what others have learned, of the same sizes or grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from planners.nets.drafters import load_drafter, new_drafter, save_drafter
from planners.nets.qwen3 import load_target, round_to_bf16
from planners.training.growth import growth_between
from planners.training.target import seeded_target
from runtime.errors import SlipstreamError
from slipstream.training.config import BlockDrafterConfig, Sizes, Special
from slipstream.training.reading import read_drafter_config, read_target_config
from slipstream.training.sizes import block_sizes
from slipstream.training.target import TINY, load_examples
from tests.slipstream.training.conftest import SIZES, drafter_fields, target_fields, write
from tests.slipstream.training.test_train import train

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
GROWN = SIZES | {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6}
TOUCHES_NOTHING = 1e-12  # a learning rate


def still(fields: dict[str, Any]) -> dict[str, Any]:
    fields["training"]["schedule"] |= {"steps": 1, "peak": TOUCHES_NOTHING}
    return fields


def test_every_shipped_config_is_read() -> None:
    found = sorted(CONFIGS.glob("*/*.yaml"))
    targets = [path for path in found if path.name == "target.yaml"]
    drafters = [path for path in found if path.name in ("drafter.yaml", "sasd.yaml", "markov.yaml")]
    assert {path.parent.name for path in targets} >= {"tiny", "fast-ddrive", "50m"}
    read = [read_drafter_config(path) for path in drafters]
    outs = {read_target_config(path).out for path in targets} | {config.out for config in read}
    assert all(config.target in outs for config in read)
    others = {path.parent.name for path in found} - {path.parent.name for path in targets}
    assert others == {"compare"}  # `tests/slipstream/compare` reads those


def test_the_50m_planner_grows_from_the_tiny_one() -> None:
    config = read_target_config(CONFIGS / "50m" / "target.yaml")
    drafter = read_drafter_config(CONFIGS / "50m" / "drafter.yaml")
    assert config.sizes is not None
    assert isinstance(drafter, BlockDrafterConfig)
    small = load_target(TINY / "target").config
    big = type(small)(**config.sizes.model_dump())
    growth = growth_between(small, big)
    mask = load_examples(TINY / "target", 512, Special()).tokenizer.mask
    sizes = block_sizes(drafter, big, mask)
    old = load_drafter(TINY / "drafter").config
    assert sizes.target_layer_ids == growth.taps(old.target_layer_ids)
    growth_between(old, sizes)  # raises where they don't fit
    assert config.data == drafter.data
    assert config.data == read_target_config(CONFIGS / "tiny" / "target.yaml").data


def test_rows_go_with_the_tokens_that_both_write_alike(checkpoint: Path, tmp_path: Path) -> None:
    fields = still(target_fields(tmp_path / "out"))
    fields |= {"tokenizer": "fast-ddrive", "sizes": SIZES | {"vocab_size": 640}}
    train("target", write(tmp_path / "t.yaml", fields | {"warm_start": str(checkpoint)}))
    source, found = load_target(checkpoint), load_target(tmp_path / "out")
    examples, sizes = load_examples(tmp_path / "out", 640, Special()), Sizes(**fields["sizes"])
    plain = seeded_target(0, examples.tokenizer, examples.language, **sizes.model_dump())
    round_to_bf16(plain)
    known = load_examples(checkpoint, 512, Special()).tokenizer.ids
    words = examples.tokenizer.ids
    shared = words.keys() & known.keys()
    assert set("0123456789") <= shared
    assert len(shared) < len(words)
    old, new, fresh = (x.model.embed_tokens.weight for x in (source, found, plain))
    for text, token in words.items():
        wanted = old[known[text]] if text in shared else fresh[token]
        assert torch.equal(new[token], wanted), text
    blocks = zip(source.model.layers.parameters(), found.model.layers.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in blocks)


def test_a_planner_and_its_drafter_grow(checkpoint: Path, tmp_path: Path) -> None:
    """Through the command's own path; the function is tested beside `planners.training.growth`."""
    small = tmp_path / "small"
    train("drafter", write(tmp_path / "s.yaml", drafter_fields(checkpoint, small, 2)))
    fields = still(target_fields(tmp_path / "target"))
    fields |= {"sizes": GROWN, "warm_start": str(checkpoint)}
    train("target", write(tmp_path / "t.yaml", fields))
    old, new = load_target(checkpoint), load_target(tmp_path / "target")
    taps = growth_between(old.config, new.config).taps((1, 2))
    assert taps == (2, 4)
    fields = still(drafter_fields(tmp_path / "target", tmp_path / "d", taps=taps, layers=2))
    train("drafter", write(tmp_path / "d.yaml", fields | {"warm_start": str(small)}))
    grown, before = load_drafter(tmp_path / "d"), load_drafter(small)
    doubled = before.layers[0].mlp.down_proj.weight.repeat_interleave(2, 0)
    assert torch.equal(grown.layers[0].mlp.down_proj.weight, doubled)
    assert grown.layers[1].mlp.down_proj.weight.abs().max() < 1e-9
    words = torch.tensor([list(range(20, 40))])
    known = torch.tensor(sorted(load_examples(checkpoint, 512, Special()).tokenizer.ids.values()))
    with torch.no_grad():
        one, other = (net(words).logits[..., known] for net in (old, new))
    assert (one - other).abs().max() < 0.02 * one.abs().max()  # checkpoints are bf16


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"head_dim": 8}, "head_dim"), ({"hidden_size": 48}, "hidden_size")],
)
def test_sizes_that_do_not_fit_are_named(
    checkpoint: Path, tmp_path: Path, changes: dict[str, int], says: str
) -> None:
    fields = target_fields(tmp_path / "out")
    fields |= {"sizes": SIZES | changes, "warm_start": str(checkpoint)}
    with pytest.raises(SlipstreamError, match=f"does not fit: {says}\n") as found:
        train("target", write(tmp_path / "t.yaml", fields))
    assert str(changes[says]) in str(found.value)
    assert not (tmp_path / "out").exists()


def test_a_drafter_that_does_not_fit_is_named(checkpoint: Path, tmp_path: Path) -> None:
    config = read_drafter_config(
        write(tmp_path / "s.yaml", drafter_fields(checkpoint, tmp_path / "out", taps=[1, 2, 3]))
    )
    assert isinstance(config, BlockDrafterConfig)
    sizes = block_sizes(config, load_target(checkpoint).config, mask_token=2)
    save_drafter(new_drafter(0, sizes), tmp_path / "three")
    fields = drafter_fields(checkpoint, tmp_path / "out") | {"warm_start": str(tmp_path / "three")}
    with pytest.raises(SlipstreamError, match="does not fit: number of taps\n"):
        train("drafter", write(tmp_path / "d.yaml", fields))
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_is_not_there_is_named(checkpoint: Path, tmp_path: Path) -> None:
    where = {"warm_start": str(tmp_path / "none")}
    target = write(tmp_path / "t.yaml", target_fields(tmp_path / "out") | where)
    drafter = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out") | where)
    for what, config in (("target", target), ("drafter", drafter)):
        with pytest.raises(SlipstreamError, match="none"):
            train(what, config)
    assert not (tmp_path / "out").exists()


def test_only_what_is_new_begins_with_another(checkpoint: Path, tmp_path: Path) -> None:
    fields = target_fields(tmp_path / "out") | {"start": str(checkpoint), "warm_start": "tiny"}
    del fields["sizes"]
    with pytest.raises(SlipstreamError, match="sizes of a new target, beside warm_start"):
        read_target_config(write(tmp_path / "t.yaml", fields))
    fields = drafter_fields(checkpoint, tmp_path / "out") | {"warm_start": "tiny"}
    fields["drafter"] = {"kind": "eagle3", "taps": [0, 1, 3]}
    with pytest.raises(SlipstreamError, match="warm_start is unknown"):
        read_drafter_config(write(tmp_path / "e.yaml", fields))
