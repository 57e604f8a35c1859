"""The tiny planner's data split and its model card; training itself is tested with its loops."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from runtime.errors import SlipstreamError
from slipstream.tiny import DRAFTER, RESPONSES, SIZES, TARGET, drafter_config
from slipstream.tiny_card import card
from slipstream.tiny_data import BOREAS, drives_folder, load_split

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {
    "windows": 12.0,
    "parsed": 1.0,
    "greedy": 3.25,
    "cv": 4.9,
    "ca": 4.6,
    "ctrv": 4.8,
    "ctra": 4.5,
    "turns": 3.0,
    "turns untold": 5.0,
    "turns told": 4.0,
    "acceptance 16": 7.125,
    "acceptance 8": 5.5,
}


def test_no_window_of_the_validation_shares_a_sample_with_training() -> None:
    folder = Path(os.environ.get("SLIPSTREAM_DRIVES", ROOT.parent / "shared" / "drives"))
    if not (folder / BOREAS).is_dir():
        pytest.skip(f"no Boreas drive in {folder} (set SLIPSTREAM_DRIVES)")
    split = load_split(folder)
    loop = split.training.times[: np.argmin(np.diff(split.training.times)) + 1]  # before comma2k19
    assert loop.max() + 5.0 < split.validation.times.min() - 4.0
    assert 0.10 < len(split.validation) / (len(loop) + len(split.validation)) < 0.13


def test_missing_recordings_are_named(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="boreas-2021-08-05-13-34 is missing"):
        drives_folder(tmp_path)


def test_the_drafter_fits_the_target() -> None:
    config = drafter_config(2)
    assert config.hidden_size == SIZES["hidden_size"]
    assert config.vocab_size == SIZES["vocab_size"]
    assert max(config.target_layer_ids) < SIZES["num_hidden_layers"]
    assert config.scaffold_in_block


def test_the_card_holds_the_figures_and_the_licences() -> None:
    text = card(
        {"KITTI 00, held out": FIGURES}, {"nats": 0.3, "hit": 0.85}, TARGET, RESPONSES, DRAFTER
    )
    assert (
        "| KITTI 00, held out | 12 | 3.25 | 4.90 | 4.60 | 4.80 | 4.50 | 100.0% | 7.12 | 5.50 |"
        in text
    )
    assert "5.00 m without, 4.00 m with the command (3 windows)" in text
    for needed in (
        "CC BY 4.0",
        "MIT",
        "must not drive a vehicle",
        f"{TARGET.schedule.steps} steps",
    ):
        assert needed in text
