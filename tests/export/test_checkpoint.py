"""Reading checkpoints without torch: exact values, and errors that name the file."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from export.checkpoint import Checkpoint, CheckpointError


def write(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values_are_those_of_torch(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": torch.randn(3, 5).to(dtype), "b": torch.tensor([-0.0, 1e-30, 3e4]).to(dtype)}
    checkpoint = Checkpoint.open(write(tmp_path, tensors))
    for name, tensor in tensors.items():
        found = checkpoint.tensor(name, *tensor.shape)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, tensor.float().numpy())


def test_a_whole_checkpoint_is_read(target: Path) -> None:
    checkpoint = Checkpoint.open(target)
    expected = load_file(target / "model.safetensors")
    assert checkpoint.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(
            checkpoint.tensor(name, *tensor.shape), tensor.float().numpy()
        )


def test_shards_are_joined(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    parts = {"one.safetensors": {"a": torch.ones(2)}, "two.safetensors": {"b": torch.zeros(3)}}
    for name, tensors in parts.items():
        save_file(tensors, tmp_path / name)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    checkpoint = Checkpoint.open(tmp_path)
    assert checkpoint.tensor("a", 2).sum() == 2
    assert checkpoint.tensor("b", 3).sum() == 0
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"two\.safetensors is missing"):
        Checkpoint.open(tmp_path)


def test_a_shard_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    index = {"weight_map": {"a": "../elsewhere.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="outside of its folder"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("{}", "has no weight_map"),
        ('{"weight_map": {}}', "has no weight_map"),
        ('{"weight_map": ["a"]}', "has no weight_map"),
        ("[]", "is not valid"),
        ("{", "can't be read"),
        ('{"weight_map": {"a": "none.safetensors"}}', r"none\.safetensors is missing"),
        ('{"weight_map": {"a": "/etc/passwd"}}', "outside of its folder"),
        ('{"weight_map": {"a": ".."}}', "outside of its folder|damaged|missing"),
    ],
)
def test_a_broken_index_is_named(tmp_path: Path, index: str, says: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match=says) as caught:
        Checkpoint.open(tmp_path)
    assert caught.value.fix


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path, {"a": torch.ones(2, 3)}))
    with pytest.raises(CheckpointError, match=r"lacks the tensor norm\.weight"):
        checkpoint.tensor("norm.weight", 3)
    with pytest.raises(CheckpointError, match=r"(?s)a has the wrong shape.*\[3, 2\].*\[2, 3\]"):
        checkpoint.tensor("a", 3, 2)


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write(tmp_path, {"a": torch.tensor([1.0, float("nan")])}))
    with pytest.raises(CheckpointError, match="not finite"):
        checkpoint.tensor("a", 2)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": torch.ones(64)}) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged") as caught:
        Checkpoint.open(tmp_path)
    assert "cut short" in caught.value.found


def _file(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 1 << 40) + b"{}",
        _file(b"not json"),
        _file(b"[1]"),
        _file(b'{"a": 3}'),
        _file(b'{"a": {"dtype": "F32", "shape": [2]}}'),
        _file(b'{"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}}', b"\0" * 8),
        _file(b'{"a": {"dtype": "F32", "shape": "1", "data_offsets": [0]}}', b"\0" * 8),
        b"PK\x03\x04 a pickled archive, by its first bytes",
    ],
)
def test_damaged_headers_are_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged or no safetensors file"):
        Checkpoint.open(tmp_path)


def test_a_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no checkpoint folder"):
        Checkpoint.open(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json can't be read"):
        Checkpoint.open(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json is not valid"):
        Checkpoint.open(tmp_path)
