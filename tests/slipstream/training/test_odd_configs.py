"""Configs that YAML or TOML stumbles over, that grow, or ask for too much; nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planners.training.tokenizer import write_tiny
from runtime.errors import SlipstreamError
from slipstream.commands.train import enough_memory, run_train
from slipstream.training.reading import load_config
from tests.slipstream.training.conftest import drafter_fields, target_fields, write

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefghi", "bcdefghij", strict=True)
)
TEXTS = {
    "tag.yaml": "out: !!python/object/apply:os.getcwd []",
    "brackets.yaml": "out: " + "[" * 3000 + "]" * 3000,
    "brackets.toml": "out = " + "[" * 3000 + "]" * 3000,
    "digits.yaml": "out: " + "1" * 5000,
    "digits.toml": "out = " + "1" * 5000,
    "date.yaml": "out: 2020-99-99",
    "bool.yaml": "out: !!bool maybe",
    "int.yaml": 'out: !!int ""',
    "time.yaml": "out: !!timestamp soon",
    "laughs.yaml": LAUGHS,
    "itself.yaml": "out: &a [*a]",
    "nul.yaml": "out: a\0b",
    "escaped.yaml": r'out: "a\0b"',
    "surrogate.yaml": r'out: "a\udcff"',
    "key.yaml": r'{words: {"\udcff": 1}}',
    "long.yaml": "# " + "x\n" * (1 << 20),
}


@pytest.mark.parametrize("name", TEXTS)
def test_odd_texts_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name], "utf-8")
    with pytest.raises(SlipstreamError) as caught:
        load_config(path)
    assert name in caught.value.what
    assert caught.value.fix
    assert len(str(caught.value)) < 2000


def test_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with pytest.raises(SlipstreamError, match=r"zero.yaml can't be read"):
        load_config(tmp_path / "zero.yaml")


def test_a_shared_anchor_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: &a {x: 1}\nb: *a\n")
    assert load_config(path) == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is not valid"),
        ({"vocab_size": 10}, "sizes.vocab_size is too small"),
        ({"vocab_size": 1 << 40, "hidden_size": 1 << 20}, "the memory does not suffice"),
    ],
)
def test_sizes_that_can_not_be(tmp_path: Path, changes: dict[str, int], says: str) -> None:
    fields = target_fields(tmp_path / "out")
    fields["sizes"] = fields["sizes"] | changes
    refused(write(tmp_path / "t.yaml", fields), says, tmp_path / "out")


def test_a_tokenizer_that_is_not_there_leaves_no_run(tmp_path: Path) -> None:
    """Else the next try, with the right one, would find a run of another config."""
    (tmp_path / "words").mkdir()
    fields = target_fields(tmp_path / "out") | {"tokenizer": str(tmp_path / "words")}
    config = write(tmp_path / "t.yaml", fields)
    refused(config, "words lacks tokenizer.json", tmp_path / "out")
    write_tiny(tmp_path / "words")
    run_train("target", config, False, 1, "cpu", 1)
    assert (tmp_path / "out" / "language.json").is_file()


@pytest.mark.parametrize("drafter", [{"layers": 10**8}, {"kind": "eagle3", "depth": 10**7}])
def test_drafters_without_end(checkpoint: Path, tmp_path: Path, drafter: dict[str, Any]) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out")
    fields["drafter"] = {"taps": [1, 2], **drafter}
    refused(write(tmp_path / "d.yaml", fields), "is not valid", tmp_path / "out")


def test_an_output_in_a_file_names_the_field(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    fields = drafter_fields(checkpoint, tmp_path / "file" / "out")
    with pytest.raises(SlipstreamError) as caught:
        run_train("drafter", write(tmp_path / "d.yaml", fields), False, None, "cpu", 1)
    assert "the config's field out" in caught.value.fix


def test_other_errors_of_torch_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="a fault"), enough_memory():
        raise RuntimeError("a fault")
    with pytest.raises(SlipstreamError, match="memory"), enough_memory():
        raise MemoryError


def refused(config: Path, says: str, out: Path) -> None:
    what: Any = "target" if config.stem == "t" else "drafter"
    with pytest.raises(SlipstreamError, match=says):
        run_train(what, config, False, None, "cpu", 1)
    assert not out.exists()
