"""Damaged, hostile and careless checkpoints: each is one error, soon, and leaves nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from export.bundle import export_bundle
from export.rig import Camera, RigOptions
from export.special import Said
from runtime.bundle import Limits
from runtime.errors import SlipstreamError
from tests.camera_planner import waypoint_language
from tests.export.conftest import make_drafter, make_target
from tests.families import qwen2, qwen2_5_vl

LIMITS = Limits(trunk=64, branch=128, rollouts=4, max_position=128)
FRONT = RigOptions([Camera("front", 96, 72)], min_pixels=4 * 28**2, max_pixels=24 * 28**2)
EMBED = "model.embed_tokens.weight"
HUGE = 2**70


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints without a fault: qwen2, sharded, vl, target and its drafter."""
    folder = tmp_path_factory.mktemp("whole")
    qwen2(folder / "qwen2")
    qwen2(folder / "sharded", shard="40KB")
    waypoint_language().save(qwen2_5_vl(folder / "vl") / "language.json")
    make_target(folder / "target")
    make_drafter(folder / "drafter")
    return folder


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(whole / name, tmp_path / name))


def refused(target: Path, says: str, drafter: Path | None = None, **options: Any) -> None:
    """Exporting is one whole error that says so, and leaves nothing behind."""
    beside = sorted(target.parent.iterdir())
    out = target.parent / "bundle"
    with pytest.raises(SlipstreamError, match=says) as caught:
        export_bundle(target, drafter, out, limits=LIMITS, check_parity=False, **options)
    error = caught.value
    assert error.expected
    assert error.found
    assert error.fix
    assert ".tmp" not in str(error)
    assert len(str(error)) < 4100
    assert sorted(target.parent.iterdir()) == beside


def edit(path: Path, *places: str | int, value: Any) -> None:
    """Set a value deep in a JSON file."""
    raw = inner = json.loads(path.read_text())
    for place in places[:-1]:
        inner = inner[place]
    inner[places[-1]] = value
    path.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", HUGE),
        ("num_hidden_layers", "3"),
        ("num_attention_heads", 0),
        ("hidden_size", 48.0),
        ("vocab_size", "x" * 100_000),
        ("rms_norm_eps", float("nan")),
        ("rms_norm_eps", 1e308),
        ("rms_norm_eps", True),
        ("tie_word_embeddings", "no"),
        ("layer_types", 5),
        ("layer_types", [[1]]),
        ("rope_parameters", [1]),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 1e308}),
        ("rope_parameters", {"rope_type": "default", "rope_theta": 1e-308}),
        ("rope_parameters", {"rope_type": "linear", "rope_theta": 1e4, "factor": 1e-300}),
        ("rope_parameters", {"rope_type": "yarn", "rope_theta": 1.0, "factor": 4.0}),
        ("architectures", ""),
        ("architectures", {"a": 1}),
        ("some_option", {"a": 1}),
    ],
)
def test_a_key_of_config_json(key: str, value: object, copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    edit(folder / "config.json", key, value=value)
    refused(folder, r"config\.json: ")


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("text_config", "rope_parameters", {"rope_theta": 1e6, "mrope_section": [HUGE, 3, 3]}),
        ("text_config", "layer_types", 7),
        ("vision_config", "depth", HUGE),
        ("vision_config", "fullatt_block_indexes", 3),
        ("vision_config", "fullatt_block_indexes", [9]),
        ("vision_config", "window_size", 0),
        ("vision_config", "tokens_per_second", float("inf")),
        ("vision_config", "spatial_merge_size", -2),
        ("vision_config", "rope_parameters", {"rope_theta": 1e308}),
    ],
)
def test_a_key_of_a_vlm(part: str, key: str, value: object, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    edit(folder / "config.json", part, key, value=value)
    refused(folder, r"config\.json: ", rig=FRONT)


@pytest.mark.parametrize("token", [HUGE, -1, 264, True, None])
def test_a_token_that_can_t_stand_for_pictures(
    token: object, copied: Callable[[str], Path]
) -> None:
    folder = copied("vl")
    edit(folder / "config.json", "image_token_id", value=token)
    refused(folder, "image_token_id is not valid", rig=FRONT)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("image_mean", [0.5, 0.5]),
        ("image_mean", [1e308] * 3),
        ("image_mean", [float("nan")] * 3),
        ("image_std", [0, 0, 0]),
        ("image_std", [1e-320] * 3),
        ("do_resize", ""),
        ("rescale_factor", 0),
        ("rescale_factor", float("nan")),
        ("patch_size", 0),
    ],
)
def test_a_key_of_preprocessor_config_json(
    key: str, value: object, copied: Callable[[str], Path]
) -> None:
    folder = copied("vl")
    edit(folder / "preprocessor_config.json", key, value=value)
    refused(folder, r"preprocessor_config\.json", rig=FRONT)


@pytest.mark.parametrize("edge", [0, -1, float("nan"), "3136", None, [], 1 << 60])
def test_bounds_of_a_picture_s_pixels(edge: object, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    edit(folder / "preprocessor_config.json", "size", "shortest_edge", value=edge)
    refused(folder, "bounds of a picture's pixels", rig=RigOptions([Camera("front", 96, 72)]))


@pytest.mark.parametrize(
    ("size", "frames"), [((1, 201), 1), ((20000, 3), 1), ((0, 0), 1), ((96, 72), 1 << 11)]
)
def test_pictures_of_impossible_sizes(
    size: tuple[int, int], frames: int, copied: Callable[[str], Path]
) -> None:
    rig = RigOptions([Camera("front", *size)], frames=frames)
    refused(copied("vl"), "camera", rig=rig)


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


def _no_tokens(raw: Any) -> None:
    raw["model"] |= {"vocab": {}, "merges": []}
    raw["added_tokens"] = []


def _same_ids(raw: Any) -> None:
    raw["model"]["vocab"]["Z"] = raw["model"]["vocab"]["Q"]


def _lower_case(raw: Any) -> None:
    raw["normalizer"] = {"type": "Lowercase"}


def _no_byte_level(raw: Any) -> None:
    raw |= {"pre_tokenizer": None, "decoder": None}


def _huge_id(raw: Any) -> None:
    raw["model"]["vocab"]["zz"] = 2**32 - 1


def _without_unknown(raw: Any) -> None:
    raw["model"] = {"type": "Unigram", "vocab": [], "unk_id": None}


@pytest.mark.parametrize(
    "change", [_no_tokens, _same_ids, _lower_case, _no_byte_level, _huge_id, _without_unknown]
)
def test_a_tokenizer(change: Callable[[Any], None], copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    path = folder / "tokenizer.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    refused(folder, r"tokenizer\.json")


@pytest.mark.parametrize("said", [Said(null=True), Said(null=10**12), Said(eos=""), Said(mask=-1)])
def test_special_tokens_that_are_none(said: Said, copied: Callable[[str], Path]) -> None:
    refused(copied("qwen2"), "has no (null|mask|eos) token", special=said)


def test_a_padding_token_that_is_no_token_is_passed_over(copied: Callable[[str], Path]) -> None:
    folder = copied("qwen2")
    edit(folder / "generation_config.json", "pad_token_id", value=True)
    made = export_bundle(folder, None, folder.parent / "b", limits=LIMITS, check_parity=False)
    assert type(made.null_token) is int


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", HUGE),
        ("layer_types", ["full_attention"]),
        ("layer_types", 5),
        ("rope_theta", 1e308),
        ("block_size", "8"),
        ("vocab_size", 299),
        ("draft_vocab_size", 301),
        ("mask_token_id", 300),
        ("target_layer_ids", [5]),
        ("target_layer_ids", []),
        ("target_layer_ids", 1),
        ("is_causal", "no"),
        ("scaffold_in_block", "no"),
        ("input_embedding_scale", 1e308),
        ("markov_rank", HUGE),
    ],
)
def test_a_drafter_whose_config_lies(
    key: str, value: object, copied: Callable[[str], Path]
) -> None:
    target, drafter = copied("target"), copied("drafter")
    places = [key]
    if key in json.loads((drafter / "config.json").read_text())["dflash_config"]:
        places = ["dflash_config", key]
    edit(drafter / "config.json", *places, value=value)
    refused(target, "drafter", drafter)


@pytest.mark.parametrize("window", [0, -1, 1.5, HUGE, None])
def test_a_drafter_without_a_window(window: object, copied: Callable[[str], Path]) -> None:
    target, drafter = copied("target"), copied("drafter")
    edit(drafter / "config.json", "layer_types", value=["sliding_attention"] * 2)
    edit(drafter / "config.json", "sliding_window", value=window)
    refused(target, "sliding_window", drafter)


TEMPLATES = {
    "{% for i in range(10**9) %}{% endfor %}": "OverflowError",
    "{{ 'x' * 10**10 }}": "MemoryError",
    "{% include '/etc/passwd' %}": "no loader",
    "plain": "does not show the bundle's pictures",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "within 1 s",
}


@pytest.mark.parametrize("text", TEMPLATES)
def test_a_chat_template(text: str, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    (folder / "chat_template.jinja").write_text(text)
    refused(folder, TEMPLATES[text], rig=FRONT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{{ speed.__class__ }}", "SecurityError"),
        ("{{ '(' * }}", "no template"),
    ],
)
def test_a_text_of_prompt_json(text: str, says: str, copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    parts = [{"camera": "front"}, {"text": text}]
    (folder / "prompt.json").write_text(json.dumps({"version": 1, "user": parts}))
    refused(folder, says, rig=FRONT)


def test_a_prompt_that_does_not_fit_the_cache(copied: Callable[[str], Path]) -> None:
    folder = copied("vl")
    parts = [{"camera": "front"}, {"text": "x" * 100}]
    (folder / "prompt.json").write_text(json.dumps({"version": 1, "user": parts}))
    refused(folder, "the prompt does not fit the cache", rig=FRONT)


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
