"""Configs with a key that lies, of targets, pictures and drafters: each is one error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from export.rig import Camera, RigOptions
from tests.export.bad_exports import FRONT, edit, refused

HUGE = 2**70


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
