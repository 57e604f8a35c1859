"""The whole command on computed drives with a tiny untrained target, and bad configs."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import yaml

from planners.nets.qwen3 import new_target, save_target
from planners.training.tokenizer import write_tiny
from runtime.errors import SlipstreamError
from slipstream.commands.compare import Request, run_compare
from slipstream.compare.config import merged, only_entries, read_compare_config
from slipstream.compare.results import Comparison, Proven
from slipstream.compare.run import _kept

SIZES = {
    "vocab_size": 512,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 1024,
}


@pytest.fixture(scope="module")
def fields(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A config's fields: DFlash with and without a Markov head, EAGLE-3, the target itself."""
    target: Path = tmp_path_factory.mktemp("target")
    save_target(new_target(0, tie_word_embeddings=True, **SIZES), target)
    write_tiny(target)
    return {
        "base": {
            "target": str(target),
            "data": {
                "training": [{"drive": "synthetic", "end": 0.7}],
                "validation": [{"drive": "synthetic", "begin": 0.7}],
                "step_s": 1.0,
            },
            "drafter": {"kind": "dflash", "layers": 1, "block": 8, "taps": [1, 2]},
            "responses": {"count": 4},
            "training": {
                "schedule": {"steps": 2, "peak": 0.001},
                "batch": 2,
                "anchors": 2,
                "objective": {"ce": 1, "kl": 0},
            },
        },
        "seeds": [0],
        "entries": [
            {"name": "plain"},
            {"name": "with a head", "change": {"drafter": {"markov_rank": 4}}, "data": 0.5},
            {
                "name": "eagle",
                "change": {
                    "drafter": {"kind": "eagle3", "taps": [0, 1, 2], "depth": 2},
                    "training": {"objective": "ce"},
                },
            },
            {"name": "itself", "change": {"drafter": {"kind": "self", "block": 8}}},
        ],
        "evaluation": {
            "drives": ["synthetic"],
            "frames": 1,
            "temperatures": [0, 1],
            "block": 8,
            "nodes": 8,
            "verify": False,
        },
        "studies": [
            {"name": "kinds", "base": "plain", "entries": ["plain", "with a head", "eagle"]}
        ],
    }


def write(folder: Path, fields: dict[str, Any]) -> Path:
    path = folder / "compare.yaml"
    path.write_text(yaml.safe_dump(fields), "utf-8")
    return path


def test_trains_measures_writes_and_keeps(
    fields: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = write(tmp_path, fields), tmp_path / "out"
    request = Request(path, out, jobs=1, threads=1, against=None)
    assert run_compare(request) == 0
    assert "Acceptance length" in capsys.readouterr().out
    for name in ("compare.json", "compare.md", "compare.png", "index.html"):
        assert (out / name).stat().st_size > 0
    found = Comparison.model_validate_json((out / "compare.json").read_bytes())
    assert [entry.name for entry in found.entries] == ["plain", "with a head", "eagle", "itself"]
    plain, head, eagle, itself = (entry.seeds[0] for entry in found.entries)
    assert head.parameters == plain.parameters + 2 * 512 * 4
    assert found.entries[2].kind == "eagle3"
    assert (found.entries[3].layers, itself.parameters, itself.weights_mb) == (0, 0, 0.0)
    assert "| itself | self | - | - |" in (out / "compare.md").read_text("utf-8")
    for measured in (plain, head, eagle, itself):
        assert {a.shape for a in measured.acceptance} == {"chain", "tree"}
        assert all(a.tau >= 1.0 for a in measured.acceptance)
        assert measured.of("chain", 0.0).target_passes > 0

    # nothing is done twice, and the second run repeats the first
    kept = {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")}
    assert run_compare(Request(path, out, 1, 1, against=out / "compare.json")) == 0
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*.safetensors")} == kept
    assert "figures agree" in capsys.readouterr().out


def test_another_target_in_the_same_folder_is_another_comparison(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    target = tmp_path / "target"
    shutil.copytree(fields["base"]["target"], target)
    own = deepcopy(fields)
    own["base"]["target"] = str(target)
    own["entries"], own["studies"] = own["entries"][:1], []
    path, out = write(tmp_path, own), tmp_path / "out"
    assert run_compare(Request(path, out, jobs=1, threads=1, against=None)) == 0
    kept = {file: file.read_bytes() for file in out.rglob("*.safetensors")}
    assert kept
    save_target(new_target(1, tie_word_embeddings=True, **SIZES), target)
    assert run_compare(Request(path, out, jobs=1, threads=1, against=None)) == 0
    drafter = next(file for file in kept if file.match("drafter/model.safetensors"))
    assert drafter.read_bytes() != kept[drafter]


def test_changes_merge_but_kinds_and_objectives_replace() -> None:
    base = {"drafter": {"kind": "a", "x": 1, "y": 2}, "training": {"objective": {"ce": 1}}, "z": 1}
    assert merged(base, {"drafter": {"x": 3}})["drafter"] == {"kind": "a", "x": 3, "y": 2}
    assert merged(base, {"drafter": {"kind": "b"}})["drafter"] == {"kind": "b"}
    assert merged(base, {"training": {"objective": {"kl": 1}}})["training"] == {
        "objective": {"kl": 1}
    }
    assert base["drafter"] == {"kind": "a", "x": 1, "y": 2}


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("entries", 1, "change"), {"drafter": {"layers": 0}}, "drafter.layers"),
        (("entries", 1, "change"), {"drafter": {"depth": 3}}, "drafter.depth is unknown"),
        (("entries", 1, "name"), "plain", "different names"),
        (("entries", 2, "name"), "with-a head", "different names"),  # they would share a folder
        (("entries", 1, "change"), {"training": None}, "the entry with a head changes it"),
        (("base", "training"), [1], "training is not valid"),
        (("base", "drafter", "block"), -1, "drafter.block is not valid"),
        (("seeds",), [1, 1], "different seeds"),
        (("evaluation", "drives"), ["synthetic", "synthetic"], "drives that differ"),
        (("entries", 1, "data"), 0, "data"),
        (("studies", 0, "base"), "nobody", "nobody"),
        (("evaluation", "shapes"), ["tree"], "chain"),
        (("seeds",), [], "seeds"),
        (("more",), 1, "more is unknown"),
    ],
)
def test_bad_fields_are_named(
    fields: dict[str, Any], tmp_path: Path, where: tuple[Any, ...], value: Any, said: str
) -> None:
    raw = deepcopy(fields)
    place = raw
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    with pytest.raises(SlipstreamError) as caught:
        read_compare_config(write(tmp_path, raw))
    assert said in str(caught.value)
    assert "compare.yaml" in str(caught.value)


def test_some_entries_alone(fields: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, fields)
    config = read_compare_config(path)
    some = only_entries(path, config, ["plain", "eagle"])
    assert [entry.name for entry in some.entries] == ["plain", "eagle"]
    assert some.studies[0].entries == ("plain", "eagle")
    assert only_entries(path, config, ["eagle"]).studies == ()  # nothing to compare it with
    assert only_entries(path, config, ["plain"]).studies == ()
    request = Request(path, tmp_path / "out", jobs=1, threads=1, against=None, only=("plane",))
    with pytest.raises(SlipstreamError, match="no entry plane") as caught:
        run_compare(request)
    assert caught.value.expected == "one of plain, with a head, eagle, itself"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", [None, b"\xff" * 40], ids=["none", "damaged"])
def test_a_checkpoint_is_looked_at_before_anything_is_trained(
    fields: dict[str, Any], tmp_path: Path, content: bytes | None
) -> None:
    raw = deepcopy(fields)
    raw["entries"].append({"name": "old", "checkpoint": str(tmp_path / "old")})
    if content is not None:
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "model.safetensors").write_bytes(content)
    with pytest.raises(SlipstreamError, match=r"old/model.safetensors can't be read"):
        run_compare(Request(write(tmp_path, raw), tmp_path / "out", 1, 1, None))
    assert not (tmp_path / "out").exists()


def test_a_page_of_somebody_else_is_left_alone(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "index.html").write_text("mine")
    with pytest.raises(SlipstreamError, match="can't take a comparison"):
        run_compare(Request(write(tmp_path, fields), tmp_path / "out", 1, 1, None))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["index.html"]


DAMAGE = {
    "school/responses.json": b"[",
    "school/responses.safetensors": b"\xff" * 40,
    "school/features-1-2/taps.bin": b"short",
    "drafters/plain-0/drafter/model.safetensors": b"\xff" * 40,
    "drafters/plain-0/drafter/trained.json": b"[]",
    "drafters/plain-0/measured.json": b'{"key": 1}',
}


def test_what_is_damaged_is_made_again(fields: dict[str, Any], tmp_path: Path) -> None:
    raw = deepcopy(fields)
    raw["entries"], raw["studies"] = raw["entries"][:1], []
    request = Request(write(tmp_path, raw), tmp_path / "out", 1, 1, None)
    assert run_compare(request) == 0
    before = {name: (request.out / name).read_bytes() for name in DAMAGE}
    for name, content in DAMAGE.items():
        (request.out / name).write_bytes(content)
    assert run_compare(request) == 0
    for name in [*DAMAGE][:4]:
        assert (request.out / name).read_bytes() == before[name]
    assert (request.out / "drafters/plain-0/measured.json").read_bytes() != b'{"key": 1}'


def test_kept_results_of_another_form_count_as_none(tmp_path: Path) -> None:
    path = tmp_path / "proven.json"
    for text in ("", "[]", '{"key": "k"}', '{"key": "k", "result": {"passed": 3}}', "[" * 100_000):
        path.write_text(text)
        assert _kept(path, "k", Proven) is None
    proven = Proven(checks=1, failed=[], faults=1, missed=[], samples=64)
    path.write_text(json.dumps({"key": "k", "result": proven.model_dump(mode="json")}))
    assert _kept(path, "k", Proven) == proven
    assert _kept(path, "another", Proven) is None
