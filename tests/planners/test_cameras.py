"""Prompts of planners with cameras: chat template, `prompt.json`, pictures in their rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planners.camera_prompt import CameraPrompt, variables
from planners.cameras import CameraPrompts
from planners.chat import ChatTemplate
from planners.observation import Intent, Observation
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import CameraDims, VisionDims
from runtime.errors import SlipstreamError
from tests.vlm_families import CHAT_TEMPLATE, VISION_TOKENS, _save_tokenizer


def rig(family: Any, tokens: dict[str, int], *frames: int) -> VisionDims:
    """Cameras cam0, cam1, .. of 2 x 3 tokens a frame (of Qwen's two frames)."""
    side = 14 if family == "qwen2_5_vl" else 16
    return VisionDims(
        family=family,
        cameras=[
            CameraDims(
                name=f"cam{i}",
                width=6 * side,
                height=4 * side,
                frames=count,
                grid=(-(-count // 2), 4, 6),
            )
            for i, count in enumerate(frames)
        ],
        patch=side,
        temporal_patch=2,
        merge=2,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        image_token=tokens[VISION_TOKENS[2]],
        video_token=tokens[VISION_TOKENS[3]],
        vision_start=tokens[VISION_TOKENS[0]],
        vision_end=tokens[VISION_TOKENS[1]],
        frame_rate=4.0,
        tokens_per_second=2.0,
    )


def seen(speed: float = 5.0, **images: Any) -> Observation:
    still = np.zeros(16)
    return Observation(np.zeros((16, 2)), still, still + speed, still, still, images=images)


def picture(vision: VisionDims, number: int = 0) -> np.ndarray:
    camera = vision.cameras[0]
    return np.random.default_rng(number).integers(
        0, 256, (camera.height, camera.width, 3), np.uint8
    )


@pytest.fixture
def make(tmp_path: Path):
    """A bundle's folder with tokenizer, template and prompt, and what reads it."""
    tokens = _save_tokenizer(tmp_path)
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json", SpecialNames())

    def made(family: str, *frames: int, prompt: Any = None, chat: str = CHAT_TEMPLATE) -> Any:
        (tmp_path / "chat_template.jinja").write_text(chat)
        if prompt is not None:
            (tmp_path / "prompt.json").write_text(json.dumps(prompt))
        vision = rig(family, tokens, *frames)
        manifest = SimpleNamespace(vision=vision, target=SimpleNamespace(mrope=True))
        bundle: Any = SimpleNamespace(folder=tmp_path, manifest=manifest)
        return CameraPrompts(bundle, tokenizer), vision, tokenizer

    return made


def test_every_picture_has_a_token_for_each_row_and_text_around_it(make) -> None:
    prompts, vision, tokenizer = make("qwen2_5_vl", 1, 3)
    images = {"cam0": picture(vision), "cam1": [picture(vision, i) for i in range(3)]}
    observation = seen(**images)
    pictures = prompts.pictures(observation)
    assert len(pictures) == 4
    patches = prompts.patches(pictures)
    assert patches.shape == (vision.rows, vision.patch_size)
    prompt = prompts.prompt(observation, patches)
    text = tokenizer.decode(prompt.tokens.tolist())
    start, end, image, video = VISION_TOKENS
    assert text.count(start + image * 6 + end) == 1
    assert text.count(start + video * 12 + end) == 1
    assert text.startswith("<|im_start|>system\nYou drive a vehicle.")
    assert text.endswith("v050\n<|im_end|>\n<|im_start|>assistant\n")
    assert prompt.positions.shape == (3, len(prompt))
    rows = prompt.picture_rows(vision)
    assert rows[rows >= 0].tolist() == list(range(18))


def test_qwen3_takes_videos_apart_and_says_their_times(make) -> None:
    prompts, vision, tokenizer = make("qwen3_vl", 3, 4)
    images = {f"cam{i}": [picture(vision, i)] * n for i, n in enumerate((3, 4))}
    observation = seen(**images)
    prompt = prompts.prompt(observation, prompts.patches(prompts.pictures(observation)))
    text = tokenizer.decode(prompt.tokens.tolist())
    start, end, _, video = VISION_TOKENS
    part = start + video * 6 + end
    # frames at 0, 1/4, 1/2 s, the last one twice; then four of them; "%.1f" of 1/8 and 5/8 s
    assert f"<0.1 seconds>{part}<0.5 seconds>{part}<0.1 seconds>{part}<0.6 seconds>{part}" in text
    assert prompt.tokens.tolist().count(vision.video_token) == 24


def test_own_words_stand_where_prompt_json_puts_them(make) -> None:
    prompts, vision, tokenizer = make(
        "qwen2_5_vl",
        1,
        prompt={
            "system": None,
            "user": [
                {"text": "go {{ command }} at {{ '%.1f'|format(speed) }} m/s: "},
                {"camera": "cam0"},
                {"text": "{% for s in history[-2:] %}[{{ s.t }}, {{ s.x }}]{% endfor %}"},
            ],
        },
    )
    observation = replace(seen(7.25, cam0=picture(vision)), intent=Intent.LEFT)
    prompt = prompts.prompt(observation, prompts.patches(prompts.pictures(observation)))
    text = tokenizer.decode(prompt.tokens.tolist())
    assert text.startswith("<|im_start|>user\ngo left at 7.2 m/s: <|vision_start|>")
    assert text.endswith("[-0.25, 0.0][0.0, 0.0]<|im_end|>\n<|im_start|>assistant\n")


def test_unchanged_words_come_before_what_changes(make) -> None:
    """Only so can the trunk keep them: the first difference is in the picture."""
    prompts, vision, _ = make("qwen2_5_vl", 1)
    slow, fast = (seen(speed, cam0=picture(vision)) for speed in (5.0, 6.0))
    one, other = (prompts.prompt(o, prompts.patches(prompts.pictures(o))) for o in (slow, fast))
    first = int(np.argmin(one.tokens == other.tokens))
    assert first > np.flatnonzero(one.tokens == vision.image_token).max()


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ({}, "no pictures of camera cam0"),
        ({"cam1": 0}, "found: cam1"),
        ({"cam0": 2}, "another number of pictures"),
        ({"cam0": "float"}, "wrong type"),
        ({"cam0": "wide"}, "another size"),
    ],
)
def test_a_picture_that_does_not_fit_is_named(make, images, says: str) -> None:
    prompts, vision, _ = make("qwen2_5_vl", 1)
    good = picture(vision)
    kinds: dict[Any, Any] = {
        0: good,
        2: [good, good],
        "float": np.full(good.shape, np.nan, np.float32),
        "wide": np.concatenate([good, good], axis=1),
    }
    observation = seen(**{name: kinds[kind] for name, kind in images.items()})
    with pytest.raises(SlipstreamError) as caught:
        prompts.patches(prompts.pictures(observation))
    assert says in str(caught.value)
    assert "cam0" in str(caught.value)


def test_images_are_a_mapping() -> None:
    with pytest.raises(SlipstreamError, match="images"):
        replace(seen(), images=[np.zeros((4, 4, 3), np.uint8)])


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ({"user": []}, "user"),
        ({"user": [{"text": "go"}]}, "does not show the bundle's cameras"),
        ({"user": [{"camera": "cam0"}, {"camera": "cam0"}]}, "found: cam0, cam0"),
        ({"user": [{"camera": "rear"}]}, "found: rear"),
        ({"user": [{"camera": "cam0"}, {"text": "{{ speed "}]}, "no template"),
        ({"user": [{"camera": "cam0"}], "more": 1}, "more"),
        ({"version": 2, "user": [{"camera": "cam0"}]}, "version"),
        ({"version": True, "user": [{"camera": "cam0"}]}, "version"),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused(make, prompt: Any, says: str) -> None:
    with pytest.raises(SlipstreamError) as caught:
        make("qwen2_5_vl", 1, prompt=prompt)
    assert says in str(caught.value)
    assert "prompt.json" in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_prompt_or_template(make, tmp_path: Path) -> None:
    _, vision, _ = make("qwen2_5_vl", 1, prompt={"user": [{"camera": "cam0"}]})
    for name in ("prompt.json", "tokenizer.json"):
        path = tmp_path / name
        path.write_text(path.read_text("utf-8"), "utf-8-sig")
    assert len(CameraPrompt.load(tmp_path / "prompt.json", vision).user) == 1
    assert Tokenizer.load(tmp_path / "tokenizer.json").vocab


def test_a_text_that_asks_for_more_than_there_is(make) -> None:
    prompt = {"user": [{"camera": "cam0"}, {"text": "{{ weather }}"}]}
    prompts, vision, _ = make("qwen2_5_vl", 1, prompt=prompt)
    observation = seen(cam0=picture(vision))
    with pytest.raises(SlipstreamError, match="weather"):
        prompts.prompt(observation, prompts.patches(prompts.pictures(observation)))


@pytest.mark.parametrize(
    ("chat", "says"),
    [
        ("{{ messages[0].content }}", "1 pictures"),
        ("{% for", "a jinja template"),
        ("{{ raise_exception('no system') }}", "no system"),
        ("{{ messages.__class__.__mro__[1].__subclasses__() }}", "unsafe|access"),
    ],
)
def test_a_chat_template_that_can_t_be_used(make, chat: str, says: str) -> None:
    def ask() -> None:
        prompts, vision, _ = make("qwen2_5_vl", 1, chat=chat)
        observation = seen(cam0=picture(vision))
        prompts.prompt(observation, prompts.patches(prompts.pictures(observation)))

    with pytest.raises(SlipstreamError, match=says):
        ask()


def test_a_bundle_without_a_chat_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="no such file"):
        ChatTemplate(tmp_path / "chat_template.jinja")


def test_variables_are_those_of_the_observation() -> None:
    known = variables(seen(3.0))
    assert known["speed"] == 3.0
    assert [state["t"] for state in known["history"]][::15] == [-3.75, 0.0]
    assert CameraPrompt.load(Path("nowhere"), None).messages(seen(), set())[-1]["role"] == "user"
