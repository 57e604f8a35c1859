"""`slipstream train` on a small target: what it writes, repeats and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from planners.nets.drafters import load_drafter
from planners.nets.eagle3 import load_eagle3
from planners.nets.qwen3 import load_target
from runtime.errors import SlipstreamError
from runtime.lock import LOCK, held
from slipstream.cli import app
from slipstream.commands.train import run_train
from slipstream.training.config import Part
from slipstream.training.folder import RunFolder
from slipstream.training.reading import read_drafter_config, read_target_config
from tests.slipstream.training.conftest import drafter_fields, target_fields, write


def train(what: Any, config: Path, resume: bool = False, until: int | None = None) -> None:
    run_train(what, config, resume, until, "cpu", 1)


def log_of(out: Path) -> list[dict[str, float]]:
    return [json.loads(x) for x in (out / "training" / "log.jsonl").read_text().splitlines()]


def test_a_new_target_then_a_drafter_for_it(tmp_path: Path) -> None:
    target, drafter = tmp_path / "target", tmp_path / "drafter"
    train("target", write(tmp_path / "t.yaml", target_fields(target)))
    assert load_target(target).config.num_hidden_layers == 4
    assert {"ade", "nats"} <= log_of(target)[-1].keys()
    train("drafter", write(tmp_path / "d.yaml", drafter_fields(target, drafter)))
    config = load_drafter(drafter).config
    assert (config.num_hidden_layers, config.target_layer_ids) == (1, (1, 2))
    assert config.intermediate_size == 48  # the target's
    lines = log_of(drafter)
    assert [line["step"] for line in lines] == [3, 6]
    assert all(line["tau16"] >= 1.0 and line["tau16 T1"] >= 1.0 for line in lines)


def test_a_target_goes_on_from_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    fields = target_fields(tmp_path / "out", steps=1)
    del fields["sizes"], fields["tokenizer"]
    fields |= {"start": str(checkpoint)}
    fields["training"]["schedule"]["peak"] = 1e-9
    train("target", write(tmp_path / "t.yaml", fields))
    one, other = load_target(checkpoint), load_target(tmp_path / "out")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("drafter", "kind"),
    [
        ({"kind": "dflare", "taps": 2, "fusion_fc": True}, "QwenDFlareDraftModel"),
        ({"kind": "dflash", "markov_rank": 4}, "DFlashDraftModel"),
    ],
)
def test_other_block_drafters(
    checkpoint: Path, tmp_path: Path, drafter: dict[str, Any], kind: str
) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out", 2, **drafter)
    fields["training"]["objective"] = {"ce": 1, "kl": 0, "chain": 4, "first_error": 0.3}
    train("drafter", write(tmp_path / "d.yaml", fields))
    found = json.loads((tmp_path / "out" / "config.json").read_text())
    assert found["architectures"] == [kind]
    load_drafter(tmp_path / "out")
    assert {"ce", "chain", "first_error"} <= log_of(tmp_path / "out")[-1].keys()


def test_features_on_disk_train_the_same_drafter_nearly(checkpoint: Path, tmp_path: Path) -> None:
    losses = []
    for features in ("online", "stored"):
        fields = drafter_fields(checkpoint, tmp_path / features, 3) | {"features": features}
        train("drafter", write(tmp_path / f"{features}.yaml", fields))
        losses.append([line["loss"] for line in log_of(tmp_path / features)])
    assert (tmp_path / "stored" / "training" / "features").is_dir()
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)  # they are kept in bf16


def test_eagle(checkpoint: Path, tmp_path: Path) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out", 2)
    fields["drafter"] = {"kind": "eagle3", "taps": [0, 1, 3], "vocabulary": 100, "depth": 3}
    train("drafter", write(tmp_path / "d.yaml", fields))
    assert load_eagle3(tmp_path / "out").config.draft_vocab_size == 100
    assert log_of(tmp_path / "out")[-1]["tau"] >= 1.0


def test_until_and_resume_equal_one_run(checkpoint: Path, tmp_path: Path) -> None:
    parts = write(tmp_path / "p.yaml", drafter_fields(checkpoint, tmp_path / "parts"))
    train("drafter", parts, until=3)
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    train("drafter", parts, resume=True)
    whole = write(tmp_path / "w.yaml", drafter_fields(checkpoint, tmp_path / "whole"))
    train("drafter", whole)
    one, other = (load_file(tmp_path / x / "model.safetensors") for x in ("parts", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in other)


def test_other_seeds_are_other_drafters(checkpoint: Path, tmp_path: Path) -> None:
    found = []
    for seed in (1, 2):
        fields = drafter_fields(checkpoint, tmp_path / str(seed), 2)
        fields["training"]["seed"] = seed
        train("drafter", write(tmp_path / f"{seed}.yaml", fields))
        found.append(load_file(tmp_path / str(seed) / "model.safetensors"))
    assert not torch.equal(found[0]["fc.weight"], found[1]["fc.weight"])


def test_every_step_is_in_the_event_log(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out"))
    train("drafter", config, until=4)
    train("drafter", config, resume=True)
    points = points_of(tmp_path / "out" / "training" / "events")
    assert [step for step, _ in points["training/loss"]] == [1, 2, 3, 4, 5, 6]
    assert [step for step, _ in points["held_out/tau16"]] == [3, 4, 6]
    logged = log_of(tmp_path / "out")[-1]
    assert points["held_out/tau16_T1"][-1][1] == pytest.approx(logged["tau16 T1"], abs=1e-4)


def points_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The scalars of event files, by name."""
    from tensorboardX.proto.event_pb2 import Event

    points: dict[str, list[tuple[int, float]]] = {}
    for file in sorted(folder.iterdir()):
        raw, at = file.read_bytes(), 0
        while at < len(raw):  # length, its checksum, the record, its checksum
            length = int.from_bytes(raw[at : at + 8], "little")
            event = Event.FromString(raw[at + 12 : at + 12 + length])
            at += 16 + length
            for value in event.summary.value:
                points.setdefault(value.tag, []).append((event.step, value.simple_value))
    return points


def test_a_run_in_the_way_is_named(checkpoint: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out", 2))
    train("drafter", config)
    with pytest.raises(SlipstreamError, match="holds a finished run") as found:
        train("drafter", config)
    assert f"slipstream train drafter {config} --resume" in str(found.value)
    changed = drafter_fields(checkpoint, tmp_path / "out", 2)
    changed["training"]["anchors"] = 3
    with pytest.raises(SlipstreamError, match="another config") as found:
        train("drafter", write(config, changed), resume=True)
    assert "training.anchors" in str(found.value)


def test_an_unfinished_run_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "config.json").write_text("{}")
    run = RunFolder(tmp_path, Part(drive="synthetic"))
    opened = run.opened(False, "slipstream train drafter d.yaml")
    with pytest.raises(SlipstreamError, match="an unfinished run lies in") as found, opened:
        pass
    assert "add --resume: slipstream train drafter d.yaml --resume" in found.value.fix


def test_a_run_that_another_process_trains_is_left_alone(checkpoint: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out", 2))
    folder = tmp_path / "out" / "training"
    with held(folder / LOCK, "out"):  # as by another process
        with pytest.raises(SlipstreamError, match="another process trains in") as found:
            train("drafter", config)
        assert str(tmp_path / "out") in str(found.value)
        assert [path.name for path in folder.iterdir()] == [LOCK]
    train("drafter", config)
    assert not (folder / LOCK).exists()


def test_a_checkpoint_in_the_way_is_named(checkpoint: Path) -> None:
    before = (checkpoint / "model.safetensors").read_bytes()
    fields = target_fields(checkpoint)
    with pytest.raises(SlipstreamError, match="is not replaced by a checkpoint"):
        train("target", write(checkpoint.parent / "t.yaml", fields))
    assert (checkpoint / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    "name", ["config.json", "notes.txt", "tokenizer.json", "training/notes.txt", ".git/HEAD"]
)
def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    before = set(tmp_path.rglob("*"))
    opened = RunFolder(tmp_path / "out", Part(drive="synthetic")).opened(True, "")
    with pytest.raises(SlipstreamError, match="is not replaced by a checkpoint") as found, opened:
        pass
    assert found.value.found in (name, name.partition("/")[0])
    assert path.read_text() == "precious"
    assert set(tmp_path.rglob("*")) == before


def test_a_run_that_was_killed_while_it_began_is_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    for name in (LOCK, ".config.json.12345678-1.a.tmp"):
        (tmp_path / "training" / name).touch()
    with RunFolder(tmp_path, Part(drive="synthetic")).opened(False, ""):
        assert (tmp_path / "training" / "config.json").is_file()


@pytest.mark.parametrize(
    ("drafter", "says"),
    [
        ({"taps": [1, 4]}, "drafter.taps don't fit"),
        ({"taps": [2, 1]}, "drafter.taps don't fit"),
        ({"heads": 3, "kv_heads": 2}, "drafter.heads is not valid"),
    ],
)
def test_sizes_that_do_not_fit_the_target(
    checkpoint: Path, tmp_path: Path, drafter: dict[str, Any], says: str
) -> None:
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out", **drafter))
    with pytest.raises(SlipstreamError, match=says):
        train("drafter", config)
    assert not (tmp_path / "out").exists()


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"epochs": 3}, "epochs is unknown", "3"),
    ({"training.objective": {"focal": 1}}, "training.objective.focal is unknown", "1"),
    ({"training.schedule.steps": 0}, "training.schedule.steps is not valid", "0"),
    ({"training.batch": "many"}, "training.batch is not valid", "many"),
    ({"training.objective": {"ce": 0, "kl": 0}}, "training.objective is not valid", "at least one"),
    ({"drafter.kind": "medusa"}, "drafter.kind is not valid", "dflash or dflare or eagle3"),
    ({"drafter.taps": "all"}, "drafter.taps is not valid", "all"),
    ({"drafter": 3}, "drafter is not valid", "fields such as kind"),
    ({"responses.fork_heats": [[0, 0.4]]}, "responses.fork_heats is not valid", "add up to 1"),
    ({"data.validation": [{"drive": "synthetic"}]}, "data is not valid", "apart from training"),
    ({"data.training": []}, "data.training is not valid", "at least 1 item"),
    ({"data.training": [{"drive": "x", "begin": 2}]}, "data.training.0.begin is not valid", "2"),
    ({"evaluation.widths": [17]}, "the config is not valid", "at most drafter.block"),
    ({"target": None}, "target is not valid", "path"),
]


@pytest.mark.parametrize(("changes", "says", "also"), BAD, ids=[says for _, says, _ in BAD])
def test_bad_fields_are_named(
    checkpoint: Path, tmp_path: Path, changes: dict[str, Any], says: str, also: str
) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out")
    for name, value in changes.items():
        *path, last = name.split(".")
        place = fields
        for each in path:
            place = place[each]
        place[last] = value
    config = write(tmp_path / "bad.yaml", fields)
    done = CliRunner().invoke(app, ["train", "drafter", str(config)])
    assert isinstance(done.exception, SlipstreamError)
    assert done.exception.exit_code == 2
    text = str(done.exception)
    assert text.startswith(f"{config}: {says}")
    assert also in text
    assert "to mend it:" in text
    assert not (tmp_path / "out").exists()


def test_a_missing_field_is_named(checkpoint: Path, tmp_path: Path) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out")
    del fields["training"]["schedule"]["peak"]
    with pytest.raises(SlipstreamError, match=r"training.schedule.peak is not valid") as found:
        train("drafter", write(tmp_path / "d.yaml", fields))
    assert "found: nothing" in str(found.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.yaml", "out: [", "is no YAML"),
        ("c.toml", "out = ", "is no TOML"),
        ("c.yaml", "- 1", "holds no fields"),
        ("c.json", "{}", "unknown ending"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    for read in (read_target_config, read_drafter_config):
        with pytest.raises(SlipstreamError, match=says):
            read(path)
    with pytest.raises(SlipstreamError, match="can't be read"):
        read_target_config(tmp_path / "none.yaml")


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "d.toml"
    toml.write_text(
        """
target = "t"
out = "o"
[data]
training = [{drive = "synthetic"}]
validation = [{drive = "synthetic:1"}]
[training]
batch = 3
objective = {ce = 1, kl = 0, gamma = 9}
[training.schedule]
steps = 5
peak = 1e-3
"""
    )
    fields = {
        "target": "t",
        "out": "o",
        "data": {"training": [{"drive": "synthetic"}], "validation": [{"drive": "synthetic:1"}]},
        "training": {
            "batch": 3,
            "objective": {"ce": 1, "kl": 0, "gamma": 9},
            "schedule": {"steps": 5, "peak": 1e-3},
        },
    }
    assert read_drafter_config(toml) == read_drafter_config(write(tmp_path / "d.yaml", fields))


def test_a_target_begins_in_one_way(checkpoint: Path, tmp_path: Path) -> None:
    both = target_fields(tmp_path) | {"start": str(checkpoint)}
    with pytest.raises(SlipstreamError, match="the config is not valid") as found:
        read_target_config(write(tmp_path / "t.yaml", both))
    assert "either sizes" in str(found.value)


def test_a_gpu_that_is_not_there(checkpoint: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out"))
    with pytest.raises(SlipstreamError, match="--device cuda can't be used"):
        run_train("drafter", config, False, None, "cuda", 1)
    with pytest.raises(SlipstreamError, match="--until is not valid"):
        train("drafter", config, until=0)


def test_a_damaged_set_of_responses_is_named(checkpoint: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "d.yaml", drafter_fields(checkpoint, tmp_path / "out"))
    train("drafter", config, until=1)
    said = tmp_path / "out" / "training" / "responses.safetensors"
    said.write_bytes(b"\0" * 30)
    with pytest.raises(SlipstreamError, match=r"responses\.safetensors can't be read"):
        train("drafter", config, resume=True)
