"""Damaged and hostile weights and files of a checkpoint: each is one error, and leaves nothing."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from export.bundle import export_bundle
from runtime.errors import SlipstreamError
from tests.export.bad_exports import LIMITS, edit, refused

EMBED = "model.embed_tokens.weight"
Header = dict[str, Any]


def with_header(path: Path, change: Callable[[Header], Header | bytes]) -> None:
    """Write a safetensors file's header anew."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    changed = change(json.loads(raw[8 : 8 + length]))
    header = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw[8 + length :])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", [-1, -5]),
        ("shape", [320.5, 48]),
        ("shape", ["320", "48"]),
        ("shape", [True, 48]),
        ("shape", [1] * 100_000),
        ("shape", [2**62, 4]),
        ("shape", None),
        ("data_offsets", [0]),
        ("data_offsets", [0, 61440.0]),
        ("data_offsets", [-8, 61432]),
        ("data_offsets", [2**63, 2**63 + 61440]),
        ("data_offsets", [4, 61444]),  # shares bytes with another tensor
        ("dtype", "F64"),
        ("dtype", None),
    ],
)
def test_an_entry_of_a_safetensors_header(
    key: str, value: object, copied: Callable[[str], Path]
) -> None:
    folder = copied("qwen2")
    with_header(
        folder / "model.safetensors", lambda each: each | {EMBED: each[EMBED] | {key: value}}
    )
    refused(folder, r"model\.safetensors is damaged")


@pytest.mark.parametrize("header", [b"[1]", b"null", b"[" * 90_000, b'{"a":' * 90_000, b"{}x"])
def test_a_safetensors_header(header: bytes, copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    with_header(folder / "model.safetensors", lambda _: header)
    refused(folder, r"model\.safetensors is damaged")


@pytest.mark.parametrize("length", [0, 5, 8, 9, 200, -1])
def test_a_file_that_was_cut_short(length: int, copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    refused(folder, r"model\.safetensors is damaged")


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "..", "", "config.json", None, 5, ["a"], "x" * 5000]
)
def test_an_index_that_names_no_shard(name: object, copied: Callable[[str], Path]) -> None:
    folder = copied("sharded")
    edit(folder / "model.safetensors.index.json", "weight_map", EMBED, value=name)
    refused(folder, r"index\.json names a file outside of its folder")


def test_an_index_that_lies(copied: Callable[[str], Path]) -> None:
    folder = copied("sharded")
    index = folder / "model.safetensors.index.json"
    shards = json.loads(index.read_text())["weight_map"]
    other = next(name for name in shards.values() if name != shards[EMBED])
    edit(index, "weight_map", EMBED, value=other)
    refused(folder, r"index\.json names a tensor that is not where it says")


def test_of_a_tensor_in_two_shards_the_index_s_is_taken(copied: Callable[[str], Path]) -> None:
    from export.checkpoint import Checkpoint

    folder = copied("sharded")
    shards = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    last = folder / max(name for name in shards.values() if name != shards[EMBED])
    save_file(load_file(last) | {EMBED: np.zeros((320, 48), np.float32)}, last)
    assert Checkpoint.open(folder).tensors[EMBED].path.name == shards[EMBED]


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "generation_config.json"]
)
def test_a_pipe_in_a_file_s_place_is_not_waited_for(
    name: str, copied: Callable[[str], Path]
) -> None:
    folder = copied("qwen2")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(folder, name)


def test_a_device_in_a_file_s_place_is_not_read(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    (folder / "chat_template.jinja").symlink_to("/dev/zero")
    refused(folder, "chat_template")


@pytest.mark.parametrize("content", [b"", b"\xff" * 1000])
def test_a_bundle_with_a_graph_that_is_none(content: bytes, copied: Callable[[str], Path]) -> None:
    from slipstream.commands.inspect import inspect_bundle

    bundle = copied("qwen2").parent / "bundle"
    export_bundle(bundle.parent / "qwen2", None, bundle, limits=LIMITS, check_parity=False)
    (bundle / "target.onnx").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(bundle / "bundle.json", "graphs", "target", "sha256", value=digest)
    with pytest.raises(SlipstreamError, match=r"target\.onnx is no ONNX graph"):
        inspect_bundle(bundle, as_json=True)
