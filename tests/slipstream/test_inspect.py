"""`slipstream inspect`: what it says is what the files hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import slipstream
from runtime.files import sha256
from tests.slipstream.command import command


def test_a_bundle_is_described(tmp_path: Path) -> None:
    done = command("inspect", str(slipstream.shipped_bundle()), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in (
        "embeddings [N,S,320], positions [N,S], trunk_bias [P], branch_bias [N,S,T+S]",
        "10 x trunk.past_key_values [P,2,64]",
        "-> hidden [N,S,320], taps [N,S,960], 10 x present [S,N,2,64]",
        "5 layers, 4 heads of 64 over 2 key/value heads, width 320, vocabulary 512",
        "dflash, 3 layers",
        "rollouts part at trajectory",
        "trunk 512 rows, branch 256 rows, 16 rollouts, 1024 positions",
        "CC BY 4.0",
    ):
        assert part in done.stdout


def test_everything_is_there_as_json(tmp_path: Path) -> None:
    bundle = slipstream.shipped_bundle()
    done = command("inspect", str(bundle), "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["manifest"] == json.loads((bundle / "bundle.json").read_text()) | found["manifest"]
    target = found["graphs"]["target"]
    assert target["bytes"] == (bundle / "target.onnx").stat().st_size
    assert target["inputs"]["branch_bias"] == ["N", "S", "T+S"]
    assert set(target["weights"]) == {"bf16", "fp32"}
    assert target["opset"] == 23


def test_an_altered_bundle_is_refused(tmp_path: Path) -> None:
    shutil.copytree(slipstream.shipped_bundle(), tmp_path / "bundle")
    with (tmp_path / "bundle" / "head.onnx").open("ab") as file:
        file.write(b"\0")
    done = command("inspect", "bundle", cwd=tmp_path)
    assert done.returncode == 2
    assert "head.onnx was altered or cut short" in done.stderr


@pytest.mark.parametrize(("smooth", "said"), [(None, "int8 on"), (0.5, "int8, smoothed with 0.5")])
def test_a_calibrated_bundle_says_so(tmp_path: Path, smooth: float | None, said: str) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(slipstream.shipped_bundle(), bundle)
    manifest = json.loads((bundle / "bundle.json").read_text())
    graphs = {"target": {"way": "dynamic", "quantized": 15, "kept": 10}}
    manifest["provenance"]["calibration"] = {
        "precision": "int8",
        "graphs": graphs,
        "smooth": smooth,
        "drives": ["kitti-00"],
        "windows": 16,
    }
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    done = command("inspect", str(bundle), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


@pytest.mark.parametrize(
    ("gated", "said"), [(False, ", a Markov head"), (True, ", a gated Markov head")]
)
def test_a_markov_head_is_named(tmp_path: Path, gated: bool, said: str) -> None:
    """Of a drafter, and of a target that drafts for itself."""
    shipped = slipstream.shipped_bundle()
    source = shipped.parents[1] / "fast-ddrive" / "bundle" if gated else shipped
    bundle = tmp_path / "bundle"
    shutil.copytree(source, bundle)
    (bundle / "markov.safetensors").write_bytes(b"tables")
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["draft"] |= {"markov": "markov.safetensors", "markov_gated": gated}
    manifest["files"]["markov.safetensors"] = sha256(bundle / "markov.safetensors")
    (bundle / "bundle.json").write_text(json.dumps(manifest))
    done = command("inspect", str(bundle), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
