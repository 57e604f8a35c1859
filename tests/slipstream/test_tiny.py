"""The tiny planner's data split and its model card; training itself is tested with its loops."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from runtime.errors import SlipstreamError
from slipstream.tiny import CONFIGS, Workshop
from slipstream.tiny_card import card
from slipstream.tiny_data import BOREAS, COMMA, drives_folder
from slipstream.training.config import BlockDrafterConfig
from slipstream.training.reading import read_drafter_config, read_target_config
from slipstream.training.windows import training_windows, validation_windows

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
    "acceptance 24": 9.0,
    "acceptance 16": 7.125,
    "acceptance 8": 5.5,
}


def test_no_window_of_the_validation_shares_a_sample_with_training() -> None:
    folder = Path(os.environ.get("SLIPSTREAM_DRIVES", ROOT.parent / "shared" / "drives"))
    if not (folder / BOREAS).is_dir():
        pytest.skip(f"no Boreas drive in {folder} (set SLIPSTREAM_DRIVES)")
    config = read_target_config(CONFIGS / "target.yaml")
    data = config.data.model_copy(update={"folder": folder})
    times = training_windows(data).times
    loop = times[: np.argmin(np.diff(times)) + 1]  # before comma2k19
    kept = validation_windows(data, 1 << 30).times
    assert loop.max() + 5.0 < kept.min() - 4.0
    assert 0.10 < len(kept) / (len(loop) + len(kept)) < 0.13


def test_missing_recordings_are_named(tmp_path: Path) -> None:
    with pytest.raises(SlipstreamError, match="boreas-2021-08-05-13-34 is missing"):
        drives_folder(tmp_path)


def test_both_configs_train_on_the_named_recordings() -> None:
    target = read_target_config(CONFIGS / "target.yaml")
    drafter = read_drafter_config(CONFIGS / "drafter.yaml")
    assert target.data == drafter.data
    assert [part.drive for part in target.data.training] == [str(BOREAS), str(COMMA)]
    assert drafter.target == target.out


def test_effort_shortens_everything(tmp_path: Path) -> None:
    whole, part = Workshop(tmp_path, tmp_path), Workshop(tmp_path, tmp_path, effort=0.01)
    assert part.target.training.schedule.steps == 20
    assert part.target.training.schedule.peak == whole.target.training.schedule.peak
    assert part.drafter.responses.count == 80
    assert part.drafter.target == tmp_path / "target"
    assert part.drafter.data.folder == tmp_path


def test_the_card_holds_the_figures_and_the_licences() -> None:
    target = read_target_config(CONFIGS / "target.yaml")
    drafter = read_drafter_config(CONFIGS / "drafter.yaml")
    assert isinstance(drafter, BlockDrafterConfig)
    losses = {"nats": 0.3, "hit": 0.85}
    text = card({"KITTI 00, held out": FIGURES}, losses, target.training, drafter)
    errors, lengths = "3.25 | 4.90 | 4.60 | 4.80 | 4.50 | 100.0%", "9.00 | 7.12 | 5.50"
    assert f"| KITTI 00, held out | 12 | {errors} | {lengths} |" in text
    assert "5.00 m without, 4.00 m with the command (3 windows)" in text
    for needed in (
        "CC BY 4.0",
        "MIT",
        "must not drive a vehicle",
        "2000 steps",
        "0.5 ce + 0.5 kl + 4 chain_block, gamma 10",
    ):
        assert needed in text
