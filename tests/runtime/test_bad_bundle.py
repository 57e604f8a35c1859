"""Bundles that were damaged or made up: each is one error, before a graph is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.bundle import Bundle
from runtime.errors import BundleError

GRAPHS = ("embed", "target", "draft", "head")
Edit = Callable[[dict[str, Any]], object]


def write(folder: Path, edit: Edit = lambda manifest: None) -> Path:
    """A bundle whose files are there and fit their hashes, with an edited manifest."""
    for name in (*(f"{graph}.onnx" for graph in GRAPHS), "tokenizer.json"):
        (folder / name).write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    dims = {"layers": 5, "heads": 4, "kv_heads": 2, "head_dim": 64}
    manifest: dict[str, Any] = {
        "version": 1,
        "name": "made up",
        "target": {**dims, "width": 320, "vocab": 512, "taps": [1, 3]},
        "draft": {**dims, "block": 16, "mask_token": 2},
        "graphs": {name: {"file": f"{name}.onnx", "sha256": digest} for name in GRAPHS},
        "head_top_k": 512,
        "files": {"tokenizer.json": digest},
        "mask_token": 2,
        "null_token": 1,
        "eos_token": 0,
        "limits": {"trunk": 64, "branch": 64, "rollouts": 8, "max_position": 128},
        "provenance": {"target": "none"},
    }
    edit(manifest)
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def test_the_unedited_bundle_opens(tmp_path: Path) -> None:
    assert Bundle.open(write(tmp_path)).manifest.name == "made up"


def test_a_manifest_with_a_mark_opens_and_one_with_a_key_twice_does_not(tmp_path: Path) -> None:
    path = write(tmp_path) / "bundle.json"
    text = path.read_text("utf-8")
    path.write_text(text, "utf-8-sig")
    assert Bundle.open(tmp_path).manifest.name == "made up"
    path.write_text('{"limits": {}, ' + text[1:], "utf-8")
    with pytest.raises(BundleError, match="'limits' is there twice"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda m: m.update(version=True), "version is not valid"),
        (lambda m: m["draft"].update(scaffold_in_block="no"), "draft.scaffold_in_block"),
        (lambda m: m["target"].update(layers=10**30), "target.layers"),
        (lambda m: m["target"].update(layers=5.0), "target.layers"),
        (lambda m: m["target"].update(layers="5"), "target.layers"),
        (lambda m: m["target"].update(vocab=10**12), "target.vocab"),
        (lambda m: m["target"].update(taps=[1, 99]), "layers 0..4"),
        (lambda m: m["target"].update(taps=[-1, 3]), "layers 0..4"),
        (lambda m: m["draft"].update(block=10**6), "draft.block"),
        (lambda m: m["draft"].update(block=1), "draft.block"),
        (lambda m: m["draft"].update(mask_token=512), "draft.mask_token 512"),
        (lambda m: m["draft"].update(own_mask=True), "draft.mask_token 2 of own_mask"),
        (lambda m: m.update(mask_token=99999), "mask_token 99999"),
        (lambda m: m.update(eos_token=-1), "eos_token"),
        (lambda m: m.update(null_token=512), "null_token 512 is outside of the 512 tokens"),
        (lambda m: m.update(eos_token=512), "eos_token 512"),
        (lambda m: m.update(mask_token=2.0), "mask_token"),
        (lambda m: m.update(mask_token="2"), "mask_token"),
        (lambda m: m.update(eos_token=True), "eos_token"),
        (lambda m: m.update(null_token=None), "null_token"),
        (lambda m: m.pop("null_token"), "null_token"),
        (lambda m: m["draft"].update(mask_token=-1), "draft.mask_token"),
        (lambda m: m["draft"].pop("mask_token"), "draft.mask_token"),
        (lambda m: m["provenance"].update(data="Boreas"), "provenance.data"),
        (lambda m: m["provenance"].update(weights=["x"]), "provenance.weights"),
        (lambda m: m.update(head_top_k=513), "head_top_k 513"),
        (lambda m: m["limits"].update(trunk=10**12), "limits.trunk"),
        (lambda m: m["limits"].update(branch=10**12), "limits.branch"),
        (lambda m: m["limits"].update(rollouts=10**9), "limits.rollouts"),
        (lambda m: m["graphs"]["embed"].update(file="../embed.onnx"), "graphs.embed.file"),
        (lambda m: m["graphs"]["embed"].update(file="/etc/passwd"), "graphs.embed.file"),
        (lambda m: m["graphs"]["embed"].update(file="a\0b"), "graphs.embed.file"),
        (lambda m: m["graphs"]["embed"].update(file="a" * 5000), "graphs.embed.file"),
        (lambda m: m.update(tokenizer=""), "tokenizer"),
        (lambda m: m.update(language=""), "language"),
        (lambda m: m.update(name="\ud800"), "can't be read"),
    ],
)
def test_a_made_up_manifest_is_refused(edit: Edit, says: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        Bundle.open(write(tmp_path, edit))
    assert says in str(caught.value)
    assert caught.value.expected
    assert caught.value.fix


def test_the_last_token_of_the_vocabulary_may_be_special(tmp_path: Path) -> None:
    opened = Bundle.open(write(tmp_path, lambda m: m.update(eos_token=511, mask_token=511)))
    assert opened.manifest.eos_token == 511


@pytest.mark.parametrize("text", [b"[" * 200_000, b"\xff\xfe", b'{"version": ' + b"1" * 5000])
def test_junk_is_refused(text: bytes, tmp_path: Path) -> None:
    write(tmp_path).joinpath("bundle.json").write_bytes(text)
    with pytest.raises(BundleError, match=r"bundle\.json"):
        Bundle.open(tmp_path)


@pytest.mark.parametrize("leads_to", ["embed.onnx", "/dev/null", "nowhere"])
def test_a_link_that_leads_astray_is_refused(leads_to: str, tmp_path: Path) -> None:
    path = write(tmp_path) / "embed.onnx"
    path.unlink()
    path.symlink_to(leads_to)
    with pytest.raises(BundleError, match=r"embed\.onnx"):
        Bundle.open(tmp_path)


def test_a_bundle_one_level_down_is_pointed_at(tmp_path: Path) -> None:
    with pytest.raises(BundleError) as found:
        Bundle.open(tmp_path)
    assert found.value.fix.startswith("slipstream export")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "bundle.json").write_text("{}")
    with pytest.raises(BundleError) as found:
        Bundle.open(tmp_path)
    assert found.value.fix == f"name {tmp_path / 'bundle'}"
