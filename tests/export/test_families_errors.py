"""Checkpoints that can't be exported: one error that says why, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from export.bundle import export_bundle
from planners.language import Language, Section
from planners.published import text_waypoints
from planners.slots import Text
from runtime.bundle import Limits
from runtime.errors import SlipstreamError
from tests.families import FAMILIES, edit_config, save_tokenizer
from tests.slipstream.command import command

LIMITS = Limits(trunk=64, branch=32, rollouts=4, max_position=128)
OPTIONS = ("--no-parity", "--trunk", "64", "--branch", "32", "--max-position", "128")


def another_architecture(folder: Path) -> None:
    edit_config(folder, architectures=["GemmaForCausalLM"])


def a_missing_shard(folder: Path) -> None:
    sorted(folder.glob("model-*.safetensors"))[1].unlink()


def a_cut_header(folder: Path) -> None:
    path = sorted(folder.glob("model-*.safetensors"))[0]
    raw = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 1 << 40) + raw[8:])


def a_larger_tokenizer(folder: Path) -> None:
    save_tokenizer(folder, *(f"<|extra {i}|>" for i in range(100)))


def a_window(folder: Path) -> None:
    edit_config(folder, use_sliding_window=True, sliding_window=32)


def an_unknown_option(folder: Path) -> None:
    edit_config(folder, final_logit_softcapping=30.0)


def another_rope(folder: Path) -> None:
    edit_config(folder, rope_scaling={"rope_type": "longrope", "factor": 4.0})


def quantized_weights(folder: Path) -> None:
    edit_config(folder, quantization_config={"quant_method": "awq", "bits": 4})


def a_language_without_null(folder: Path) -> None:
    why = Section(name="why", template="<text>", slots={"text": Text(width=4)})
    Language(name="why", sections=(*text_waypoints().sections, why)).save(folder / "language.json")


def an_end_outside(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [258, 151645]}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (another_architecture, "config.json: unknown architecture|Qwen2ForCausalLM"),
        (a_missing_shard, "model-00002-of|is missing"),
        (a_cut_header, "model-00001-of|is damaged or no safetensors file"),
        (a_larger_tokenizer, "vocabulary is smaller than that of|tokenizer.json"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_checkpoint(
    damage: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = FAMILIES["qwen2"](tmp_path / "target", shard="40KB")
    damage(folder)
    done = command("export", str(folder), "-o", "bundle", *OPTIONS, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    for part in says.split("|"):
        assert part in done.stderr
    assert "to mend it:" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (a_window, "use_sliding_window|full attention in every layer"),
        (an_unknown_option, "final_logit_softcapping is unknown, and may change the result"),
        (another_rope, "rope_scaling.rope_type|longrope|llama3 or yarn"),
        (quantized_weights, "quantization_config can't be exported|awq"),
        (a_language_without_null, "has no NULL token|--null"),
        (an_end_outside, "generation_config.json: eos_token_id is not valid|0..319"),
    ],
)
def test_what_else_can_t_be_exported_is_one_error(
    damage: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    folder = FAMILIES["qwen2"](tmp_path / "target")
    damage(folder)
    with pytest.raises(SlipstreamError) as caught:
        export_bundle(folder, None, tmp_path / "bundle", limits=LIMITS, check_parity=False)
    for part in says.split("|"):
        assert part in str(caught.value)
    assert caught.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_sharded_checkpoint_is_exported_by_the_command(tmp_path: Path) -> None:
    folder = FAMILIES["smollm2"](tmp_path / "target", shard="40KB")
    done = command("export", str(folder), "-o", "bundle", "--eos", "256", *OPTIONS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert manifest["eos_token"] == 256
    assert manifest["provenance"]["exported_by"].endswith("parity not checked")
