"""What a VLM's configs say, and the rig made of it: read as published, refused when wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.checkpoint import Checkpoint
from export.rig import Camera, RigOptions, Vision, vision_of
from export.vision_configs import vision_config
from runtime.errors import SlipstreamError
from tests.vlm_families import make_vlm

Change = Callable[[dict[str, Any]], Any]
FRONT = RigOptions([Camera("front", 640, 363)])


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vlm(tmp_path_factory.mktemp("vlm"), request.param)


@pytest.fixture(scope="module")
def qwen2_5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vlm(tmp_path_factory.mktemp("vlm"), "qwen2_5_vl")


def changed(folder: Path, out: Path, name: str, change: Change) -> Path:
    """A copy of a checkpoint (its weights linked) with another JSON file in it."""
    out.mkdir(exist_ok=True)
    for path in folder.iterdir():
        target = out / path.name
        if not target.exists():
            target.symlink_to(path)
    said = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    change(said)
    (out / name).unlink(missing_ok=True)
    (out / name).write_text(json.dumps(said))
    return out


def vision(folder: Path, options: RigOptions = FRONT) -> Vision:
    checkpoint = Checkpoint.open(folder)
    text = checkpoint.config.get("text_config", checkpoint.config)
    return vision_of(checkpoint, text["hidden_size"], options)


def refusal(folder: Path, options: RigOptions = FRONT) -> str:
    with pytest.raises(SlipstreamError) as caught:
        vision(folder, options)
    return str(caught.value)


def in_vision(**values: Any) -> Change:
    return lambda said: said["vision_config"].update(values)


@pytest.mark.parametrize(
    ("values", "key", "expected"),
    [
        ({"hidden_act": "relu"}, "vision_config.hidden_act", "expected: "),
        ({"in_channels": 4}, "vision_config.in_channels", "expected: 3"),
        ({"depth": None}, "vision_config.depth", "valid integer"),
        ({"num_heads": 5}, "vision_config.hidden_size", "5 heads of 32"),
        ({"patch_size": [14, 14]}, "vision_config.patch_size", "valid integer"),
        ({"out_hidden_size": 48}, "vision_config.out_hidden_size", "found: 48"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters", "rope_type axial"),
        ({"use_register_tokens": 4}, "vision_config.use_register_tokens is unknown", "found: use"),
    ],
)
def test_values_that_the_graph_does_not_have_are_named(
    folder: Path, tmp_path: Path, values: dict[str, Any], key: str, expected: str
) -> None:
    said = refusal(changed(folder, tmp_path / "odd", "config.json", in_vision(**values)))
    assert key in said
    assert expected in said
    assert "config.json" in said


def test_layers_beyond_the_last_are_refused(qwen2_5: Path, tmp_path: Path) -> None:
    odd = changed(qwen2_5, tmp_path / "odd", "config.json", in_vision(fullatt_block_indexes=[4]))
    assert "layer 4 of 4" in refusal(odd)
    narrow = changed(qwen2_5, tmp_path / "odd", "config.json", in_vision(window_size=14))
    assert "a window of 14 px" in refusal(narrow)


def test_tokens_of_pictures_must_be_named(folder: Path, tmp_path: Path) -> None:
    odd = changed(folder, tmp_path / "odd", "config.json", lambda s: s.pop("image_token_id"))
    assert "image_token_id is not valid" in refusal(odd)


def test_a_published_config_says_less(qwen2_5: Path, tmp_path: Path) -> None:
    """Older folders name neither RoPE nor the temporal patch, and call channels `in_chans`."""

    def publish(said: dict[str, Any]) -> None:
        tower = said["vision_config"]
        for key in ("in_channels", "rope_parameters", "temporal_patch_size", "initializer_range"):
            del tower[key]
        tower |= {"in_chans": 3, "spatial_patch_size": 14}

    odd = changed(qwen2_5, tmp_path / "old", "config.json", publish)
    assert vision_config(Checkpoint.open(odd)) == vision_config(Checkpoint.open(qwen2_5))

    def bounds(said: dict[str, Any]) -> None:
        del said["size"]
        said |= {"min_pixels": 3136, "max_pixels": 60_000}

    odd = changed(odd, tmp_path / "bounds", "preprocessor_config.json", bounds)
    assert vision(odd).dims.cameras[0].grid == (1, 12, 22)  # 168 x 308


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"do_resize": False}, "do_resize"),
        ({"resample": 2}, "resample"),
        ({"rescale_factor": 0.5}, "rescale_factor"),
        ({"merge_size": 4}, "merge_size"),
        ({"patch_size": 8}, "patch_size"),
        ({"image_std": [0.5, 0.5]}, "std"),
        ({"image_std": [0.5, 0.0, 0.5]}, "std"),
        ({"image_mean": None}, "mean"),
    ],
)
def test_a_processor_that_does_something_else_is_refused(
    folder: Path, tmp_path: Path, values: dict[str, Any], key: str
) -> None:
    odd = changed(folder, tmp_path / "odd", "preprocessor_config.json", lambda s: s.update(values))
    said = refusal(odd)
    assert key in said
    assert "preprocessor_config.json" in said


def test_no_processor_or_no_bounds(folder: Path, tmp_path: Path) -> None:
    odd = changed(folder, tmp_path / "odd", "preprocessor_config.json", lambda s: s.pop("size"))
    assert "pass --min-pixels and --max-pixels" in refusal(odd)
    given = RigOptions(FRONT.cameras, min_pixels=4000, max_pixels=80_000)
    assert vision(odd, given).dims.rows > 0
    (odd / "preprocessor_config.json").unlink()
    assert "does not say how pictures become patches" in refusal(odd)


def test_one_file_may_hold_both_processors(folder: Path, tmp_path: Path) -> None:
    usual = vision(folder).dims
    image = json.loads((folder / "preprocessor_config.json").read_text())
    video = image | {"size": {"shortest_edge": 4000, "longest_edge": 50_000}}
    both = {"image_processor": image, "video_processor": video, "processor_class": "Any"}
    odd = changed(folder, tmp_path / "odd", "processor_config.json", lambda s: s.update(both))
    (odd / "preprocessor_config.json").unlink()
    assert vision(odd).dims == usual
    moving = vision(odd, RigOptions(FRONT.cameras, frames=4)).dims
    _, height, width = moving.cameras[0].grid
    frames = 4 if moving.family == "qwen3_vl" else 1  # its bounds are of all frames together
    assert frames * height * width * moving.patch**2 <= 50_000
    assert moving.cameras[0].grid[0] == 2


def test_videos_have_a_processor_of_their_own(folder: Path, tmp_path: Path) -> None:
    image = json.loads((folder / "preprocessor_config.json").read_text())
    video = image | {"size": {"shortest_edge": 4000, "longest_edge": 50_000}}
    odd = changed(
        folder, tmp_path / "odd", "video_preprocessor_config.json", lambda s: s.update(video)
    )
    assert vision(odd).dims == vision(folder).dims
    options = RigOptions(FRONT.cameras, frames=2)
    assert vision(odd, options).dims.rows < vision(folder, options).dims.rows
    capped = changed(
        odd,
        tmp_path / "capped",
        "video_preprocessor_config.json",
        lambda s: s.update(cap_pixels_per_frame=True),
    )
    assert "cap_pixels_per_frame" in refusal(capped, options)


def test_cameras_that_can_t_be(folder: Path) -> None:
    assert "no --camera" in refusal(folder, RigOptions([]))
    twice = RigOptions([Camera("front", 640, 363), Camera("front", 320, 200)])
    assert "two cameras are called front" in refusal(folder, twice)
    assert "200 times" in refusal(folder, RigOptions([Camera("front", 4020, 20)]))
    assert "at least 1 px" in refusal(folder, RigOptions([Camera("front", 0, 20)]))
    huge = RigOptions([Camera("front", 30_000, 30_000)], max_pixels=1 << 31)
    assert "--camera front=30000x30000 is not valid" in refusal(folder, huge)


def test_a_text_target_takes_no_cameras(qwen2_5: Path, tmp_path: Path) -> None:
    text = changed(
        qwen2_5,
        tmp_path / "text",
        "config.json",
        lambda s: s.update(architectures=["Qwen2ForCausalLM"]),
    )
    assert "takes no pictures" in refusal(text)
