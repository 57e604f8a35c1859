"""The small Fast-dDrive planner: its configs, and a training of a few steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from planners.fast_ddrive import fast_ddrive_language
from planners.language import Language
from planners.nets.files import WEIGHTS
from planners.nets.markov import GatedMarkovHead
from planners.training.examples import FastDdriveExamples
from runtime.errors import SlipstreamError
from slipstream.tiny_data import BOREAS, COMMA
from slipstream.tiny_fast_ddrive import CONFIGS, Workshop
from slipstream.tiny_fast_ddrive_card import card
from slipstream.training.config import SelfDraftConfig, Special
from slipstream.training.reading import read_drafter_config, read_target_config
from slipstream.training.target import load_examples
from slipstream.training.windows import training_windows
from tests.slipstream.training.conftest import drafter_fields, target_fields, write
from tests.slipstream.training.test_train import log_of, train


def self_config() -> SelfDraftConfig:
    config = read_drafter_config(CONFIGS / "sasd.yaml")
    assert isinstance(config, SelfDraftConfig)
    return config


def test_the_config_holds_the_published_table() -> None:
    config = self_config()
    assert config.drafter.block == 32
    how = config.training
    assert dict(how.weights) == {
        "critical_objects": 1.5,
        "explanation": 1,
        "future_meta_behavior": 2,
        "trajectory": 3,
    }
    assert dict(how.noise) == {
        "critical_objects": (1, 2),
        "explanation": (1, 1),
        "future_meta_behavior": (1, 1.5),
        "trajectory": (2, 1),
    }
    assert (how.blocks, how.normalise, how.causal) == ("schema", "sasd", 1)
    assert list(how.weights) == [section.name for section in fast_ddrive_language().sections]


def test_only_drives_that_may_be_given_on_are_trained_on() -> None:
    target = read_target_config(CONFIGS / "target.yaml")
    assert target.data == self_config().data
    assert target.out == self_config().target
    drives = {part.drive for part in target.data.training}
    assert drives == {str(BOREAS), str(COMMA), "boreas/boreas-objects-v1"}


def test_a_planner_of_a_few_steps(tmp_path: Path) -> None:
    fields = target_fields(tmp_path / "target", steps=2)
    fields["tokenizer"] = "fast-ddrive"
    fields["sizes"] |= {"vocab_size": 640}
    train("target", write(tmp_path / "t.yaml", fields))
    folder = tmp_path / "target"
    assert Language.load(folder / "language.json") == fast_ddrive_language()
    examples = load_examples(folder, 640, Special())
    assert isinstance(examples, FastDdriveExamples)
    fields = drafter_fields(folder, tmp_path / "self", 2)
    fields |= {"drafter": {"kind": "self", "block": 32}, "responses": {"count": 3}}
    chosen = self_config().model_dump()["training"]
    kept = ("blocks", "normalise", "causal", "keep", "hidden", "restarts", "value_rows")
    fields["training"] |= {name: chosen[name] for name in kept}
    fields["training"] |= {"objective": {"ce": 1, "kl": 0, "gamma": None}}
    fields["training"] |= {"weights": {"trajectory": 3}, "noise": {"trajectory": [2, 1]}}
    fields["evaluation"] |= {"temperatures": [0], "windows": 1}
    train("drafter", write(tmp_path / "s.yaml", fields))
    said = json.loads((tmp_path / "self" / "config.json").read_text())["self_draft"]
    wanted = {"block_size": 32, "mask_token_id": 2, "scaffold_in_block": True, "value_rows": True}
    assert said == wanted
    assert {"tau16", "same", "kl", "kept", "nats", "ce"} <= log_of(tmp_path / "self")[-1].keys()
    fields |= {"target": str(tmp_path / "self"), "out": str(tmp_path / "markov")}
    fields["drafter"] |= {"markov_rank": 4}
    fields["training"] |= {"frozen": True, "normalise": "mean"}
    train("drafter", write(tmp_path / "m.yaml", fields))
    said = json.loads((tmp_path / "markov" / "config.json").read_text())["self_draft"]
    assert said == wanted | {"markov_rank": 4}
    before, after = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("self", "markov"))
    assert before == after, "a frozen target stays as it is"
    head = GatedMarkovHead.load(tmp_path / "markov")
    assert head.markov_w1.weight.shape == (640, 4)
    assert head.markov_w2.weight.abs().max() > 0, "it has learnt"
    assert log_of(tmp_path / "markov")[-1]["kl"] == 0.0


def test_known_objects_reach_the_labels(tmp_path: Path) -> None:
    from dataclasses import replace

    from planners.tokens import Tokenizer
    from planners.training.examples import examples_of
    from planners.training.tokenizer import train_fast_ddrive_tokenizer

    examples = examples_of(Tokenizer(train_fast_ddrive_tokenizer()), fast_ddrive_language())
    fields = target_fields(tmp_path)
    config = read_target_config(write(tmp_path / "t.yaml", fields))
    found = training_windows(config.data)[:2]
    flags = torch.tensor([[1, 0, -1] * 4, [-1] * 12]).numpy().astype("int8")
    outputs = examples.outputs(replace(found, objects=flags))
    parsed = [examples.language.parse(row, examples.tokenizer) for row in outputs.tolist()]
    assert list(parsed[0]["critical_objects"].values()) == ["yes", "no", "unknown"] * 4
    assert set(parsed[1]["critical_objects"].values()) == {"unknown"}
    assert torch.equal(examples.outputs(found)[1], outputs[1])


def test_a_frozen_target_needs_a_head_that_learns(checkpoint: Path, tmp_path: Path) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out")
    fields["drafter"] = {"kind": "self"}
    fields["training"] |= {"frozen": True}
    with pytest.raises(SlipstreamError, match="not valid") as caught:
        read_drafter_config(write(tmp_path / "d.yaml", fields))
    assert "drafter.markov_rank beside training.frozen" in caught.value.expected


@pytest.mark.parametrize("objective", [{"ce": 1, "kl": 0}, {"gamma": None, "chain": 1}])
def test_sums_need_terms_that_are_sums(
    checkpoint: Path, tmp_path: Path, objective: dict[str, float]
) -> None:
    fields = drafter_fields(checkpoint, tmp_path / "out")
    fields["drafter"] = {"kind": "self"}
    fields["training"] |= {"normalise": "sasd", "objective": objective}
    with pytest.raises(SlipstreamError, match="not valid") as caught:
        read_drafter_config(write(tmp_path / "d.yaml", fields))
    assert "normalise: sasd with an objective of ce, kl" in caught.value.expected


def test_effort_and_the_card(tmp_path: Path) -> None:
    part = Workshop(tmp_path, tmp_path, effort=0.01)
    whole = read_target_config(CONFIGS / "target.yaml").training.schedule.steps
    assert part.target.training.schedule.steps == round(0.01 * whole) > 1
    assert part.sasd.responses.count == round(0.01 * self_config().responses.count) > 1
    assert part.sasd.target == tmp_path / "target"
    assert (part.markov.target, part.markov.out) == (tmp_path / "sasd", tmp_path / "self")
    figures = {"windows": 5.0, "parsed": 1.0, "greedy": 3.25, "cv": 4.9, "ca": 4.6, "ctrv": 4.8}
    figures |= {"ctra": 4.5, "acceptance 32": 6.5, "acceptance 16": 5.25}
    text = card({"KITTI 00": figures}, part.target, part.sasd, part.markov)
    assert "| KITTI 00 | 5 | 3.25 | 4.90 | 4.60 | 4.80 | 4.50 | 100.0% | 6.50 | 5.25 |" in text
    for needed in ("CC BY 4.0", "MIT", "must not drive", "trajectory 3", "`unknown`", "rank 64"):
        assert needed in text
