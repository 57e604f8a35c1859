"""Configs that YAML or TOML stumbles over, that grow, or ask for too much; nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planners.training.tokenizer import write_tiny
from runtime.errors import SlipstreamError
from slipstream.commands.train import enough_memory, run_train
from slipstream.training.reading import load_config, read_drafter_config
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


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (("training", "batch"), True, "training.batch"),
        (("training", "batch"), "2", "training.batch"),
        (("training", "batch"), 2.0, "training.batch"),
        (("training", "schedule", "peak"), "0.01", "training.schedule.peak"),
        (("training", "schedule", "peak"), True, "training.schedule.peak"),
        (("drafter", "scaffold_in_block"), "no", "drafter.scaffold_in_block"),
        (("drafter", "scaffold_in_block"), 0, "drafter.scaffold_in_block"),
        (("drafter", "taps"), [True, 2], "drafter.taps.0"),
        (("evaluation", "widths"), ["16"], "evaluation.widths.0"),
        (("data", "training"), "synthetic", "data.training"),
        (("out",), "", "out"),
        (("out",), 3, "out"),
        (("target",), " ", "target"),
    ],
)
def test_a_value_of_another_type_is_named(
    tmp_path: Path, place: tuple[str, ...], value: object, field: str
) -> None:
    fields = drafter_fields(tmp_path / "target", tmp_path / "out")
    inner: Any = fields
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(SlipstreamError) as caught:
        read_drafter_config(write(tmp_path / "d.yaml", fields))
    assert f"{field} is not valid" in caught.value.what


@pytest.mark.parametrize("rate", ["1e-3", "1E-3", "+1.e-3", "0.001"])
def test_a_rate_is_a_number_as_people_write_it(tmp_path: Path, rate: str) -> None:
    fields = drafter_fields(tmp_path / "target", tmp_path / "out")
    path = write(tmp_path / "d.yaml", fields)
    path.write_text(path.read_text("utf-8").replace("peak: 0.01", f"peak: {rate}"), "utf-8-sig")
    assert read_drafter_config(path).training.schedule.peak == 0.001
    fields["training"]["schedule"]["peak"] = 1  # a whole number is one too
    assert read_drafter_config(write(path, fields)).training.schedule.peak == 1.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\nb: 2\na: 3\n", "a in line 1 and again in line 3"),
        ("a: {b: 1, c: 2, b: 1}\n", "b in line 1"),
        ("- {a: 1}\n- &x {a: 1}\n- {<<: *x, b: 1, b: 2}\n", "b in line 3"),
    ],
)
def test_a_field_that_is_given_twice_is_named(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(SlipstreamError, match="gives a field twice") as caught:
        load_config(tmp_path / "c.yaml")
    assert found in caught.value.found
    (tmp_path / "c.toml").write_text("a = 1\na = 2\n")
    with pytest.raises(SlipstreamError, match="is no TOML"):
        load_config(tmp_path / "c.toml")


def test_what_is_merged_may_be_given_again(tmp_path: Path) -> None:
    text = "o: {a: &a {<<: &b {x: 1, y: 1}, x: 2}}\nc: {<<: *a, x: 3}\n"
    (tmp_path / "c.yaml").write_text(text)
    assert load_config(tmp_path / "c.yaml") == {
        "o": {"a": {"x": 2, "y": 1}},
        "c": {"x": 3, "y": 1},
    }


@pytest.mark.parametrize("value", ["2024-05-03", "!!set {a, b}", "!!binary aGk=", "{1: a}"])
def test_what_json_has_no_word_for_is_no_value(tmp_path: Path, value: str) -> None:
    (tmp_path / "c.yaml").write_text(f"out: {value}\n")
    with pytest.raises(SlipstreamError, match="no value of a config"):
        load_config(tmp_path / "c.yaml")


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
    assert caught.value.fix == "name another output folder with `out` in the config"


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
