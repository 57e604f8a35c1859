"""`slipstream inspect`: what it says is what the files hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import slipstream
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
