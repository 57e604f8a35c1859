"""A small random planner with cameras, and a computed drive with pictures for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from drives.drive import Drive, ImageReferences
from drives.open import open_drive
from drives.readers.plain import write_plain
from export.bundle import export_bundle
from export.rig import Camera, RigOptions
from planners.language import Language, Number, Section
from runtime.bundle import Limits
from tests.export.conftest import make_drafter
from tests.vlm_families import Family, make_vlm

NAMES = [f"{axis}{second}" for second in range(1, 6) for axis in "xy"]
SIZE = (96, 72)  # px


def waypoint_language() -> Language:
    """Five waypoints and a word before them, for a tokenizer that merges nothing."""
    number = Number(digits=2, decimals=1)
    gear = Number(digits=1, decimals=0, signed=False)
    points = " ".join(f"<{name}>" for name in NAMES)
    return Language(
        name="waypoints",
        sections=(
            Section(name="gear", template="gear <gear>;", slots={"gear": gear}),
            Section(name="trajectory", template=points, slots=dict.fromkeys(NAMES, number)),
        ),
    )


def make_camera_planner(
    folder: Path,
    family: Family = "qwen2_5_vl",
    cameras: tuple[str, ...] = ("front",),
    *,
    size: tuple[int, int] = SIZE,
    frames: int = 1,
    drafter: bool = True,
    prompt: str | None = None,
) -> Path:
    """Export a random VLM, and a random DFlash drafter for it; returns the bundle's folder."""
    target = make_vlm(folder / "target", family)
    waypoint_language().save(target / "language.json")
    if prompt is not None:
        (target / "prompt.json").write_text(prompt)
    draft = None
    if drafter:
        sizes = {"hidden_size": 96 if family == "qwen2_5_vl" else 64}
        draft = make_drafter(
            folder / "drafter",
            target_layer_ids=(0, 1, 3),
            max_position_embeddings=1024,
            **sizes,
        )
    side = 32 if family == "qwen3_vl" else 28
    rig = RigOptions(
        [Camera(name, *size) for name in cameras],
        frames=frames,
        frame_rate=4.0,
        min_pixels=4 * side**2 * frames,
        max_pixels=24 * side**2 * frames,
    )
    limits = Limits(trunk=512, branch=128, rollouts=4, max_position=768)
    bundle = folder / "bundle"
    export_bundle(target, draft, bundle, limits=limits, rig=rig, check_parity=False)
    return bundle


def make_camera_drive(folder: Path, cameras: tuple[str, ...] = ("front",)) -> Path:
    """The synthetic drive and 20 s of each camera's pictures at 10 Hz; returns its table."""
    drive = open_drive("synthetic")
    images = tuple(_photographed(drive, camera, folder) for camera in cameras)
    write_plain(replace(drive, images=images), folder / "drive.csv")
    return folder / "drive.csv"


def _photographed(drive: Drive, camera: str, folder: Path) -> ImageReferences:
    step = round(0.1 / float(np.diff(drive.times).mean()))
    samples = np.arange(0, 200 * step, step)
    rng, paths = np.random.default_rng(len(camera)), []
    for index in samples:
        pixels = rng.integers(0, 256, (SIZE[1], SIZE[0], 3)).astype(np.uint8)
        paths.append(folder / f"{camera}-{index}.png")
        Image.fromarray(pixels).save(paths[-1], compress_level=1)
    return ImageReferences(camera, drive.times[samples], tuple(map(str, paths)))
