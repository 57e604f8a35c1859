"""`slipstream train drafter` of kind `self`: a target's checkpoint that drafts for itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from planners.nets.qwen3 import load_target
from runtime.errors import SlipstreamError
from slipstream.commands.export import run_export
from slipstream.training.config import SelfDraftConfig
from slipstream.training.reading import read_drafter_config
from tests.slipstream.training.conftest import drafter_fields, write
from tests.slipstream.training.test_train import log_of, train


def self_fields(target: Path, out: Path, steps: int = 4) -> dict[str, Any]:
    fields = drafter_fields(target, out, steps)
    fields["drafter"] = {"kind": "self", "block": 16}
    fields["training"] |= {"keep": 2.0, "weights": {"trajectory": 3}}
    return fields


def test_a_checkpoint_that_drafts_for_itself(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    config = write(tmp_path / "d.yaml", self_fields(checkpoint, out))
    train("drafter", config, until=2)
    assert not (out / "model.safetensors").exists()
    train("drafter", config, resume=True)
    said = json.loads((out / "config.json").read_text())["self_draft"]
    wanted = {"block_size": 16, "mask_token_id": 2, "scaffold_in_block": True, "value_rows": False}
    assert said == wanted
    lines = log_of(out)
    assert lines[-1]["step"] == 4
    assert {"tau16", "tau16 T1", "same", "kl", "kept", "ce", "hit"} <= lines[-1].keys()
    assert lines[-1]["kl"] > 0
    one, other = load_target(checkpoint), load_target(out)
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)
    bundle = tmp_path / "bundle"
    run_export(out, None, bundle, (128, 64, 2, 512), None, None, None, False)
    draft = json.loads((bundle / "bundle.json").read_text())["draft"]
    assert (draft["method"], draft["block"], draft["mask_token"]) == ("self", 16, 2)


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("anchors", 3, "training.anchors"),
        ("hidden", 1.5, "training.hidden"),
        ("noise", {"trajectory": [0, 1]}, "training.noise.trajectory.0"),
        ("keep", -1, "training.keep"),
        ("kept", 1, "training.kept"),
    ],
)
def test_bad_fields_are_named(
    checkpoint: Path, tmp_path: Path, field: str, value: Any, named: str
) -> None:
    fields = self_fields(checkpoint, tmp_path / "out")
    fields["training"][field] = value
    with pytest.raises(SlipstreamError, match=rf"{named} is"):
        read_drafter_config(write(tmp_path / "d.yaml", fields))


def test_widths_and_layers_that_do_not_fit(checkpoint: Path, tmp_path: Path) -> None:
    fields = self_fields(checkpoint, tmp_path / "out")
    path = write(tmp_path / "d.yaml", fields)
    assert isinstance(read_drafter_config(path), SelfDraftConfig)
    fields["drafter"]["block"] = 8
    with pytest.raises(SlipstreamError, match="not valid") as caught:
        read_drafter_config(write(path, fields))
    assert "evaluation.widths of at most drafter.block, 8" in caught.value.expected
    fields["drafter"] = {"kind": "self", "layers": 3}
    with pytest.raises(SlipstreamError, match=r"drafter\.layers is unknown"):
        read_drafter_config(write(path, fields))


def test_an_unknown_section_is_named_before_training(checkpoint: Path, tmp_path: Path) -> None:
    fields = self_fields(checkpoint, tmp_path / "out")
    fields["training"]["weights"] = {"poetry": 2}
    with pytest.raises(SlipstreamError, match=r"training\.weights names an unknown section"):
        train("drafter", write(tmp_path / "d.yaml", fields))
