"""`slipstream export`: checkpoints to a bundle."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console

from export.bundle import export_bundle
from export.rig import Camera, RigOptions
from export.special import Said
from runtime.bundle import MANIFEST, Limits, Manifest
from runtime.errors import SlipstreamError
from runtime.files import check_writable, contents
from slipstream.commands.screen import Screen


def run_export(
    target: Path,
    draft: Path | None,
    out: Path,
    limits: tuple[int, int, int, int],
    name: str | None,
    data: Sequence[str] | None,
    licences: Sequence[str] | None,
    parity: bool,
    rig: RigOptions | None = None,
    special: Mapping[str, str | None] | None = None,
) -> None:
    """Export and say where the bundle is; limits are trunk, branch, rollouts, max_position.

    With data or licences None, those of an earlier bundle of the same weights are kept. `special`
    names null, mask and eos by text or id, None where the checkpoint says them.

    Raises:
        SlipstreamError: bad limits, a folder that is no bundle in the way, or a failed export.
    """
    checked = _limits(limits)
    _check_out(out)
    console = Screen()
    with console.status("exporting, and checking parity" if parity else "exporting"):
        manifest = export_bundle(
            target,
            draft,
            out,
            limits=checked,
            name=name,
            data=data,
            licences=licences,
            rig=rig,
            check_parity=parity,
            special=Said(**{role: _token(text) for role, text in (special or {}).items()}),
        )
    if gaps := manifest.provenance.parity:
        worst = max(gaps.values())
        console.print(
            f"parity with torch: {len(gaps)} checks, largest difference {worst:.0e}",
            highlight=False,
        )
    _show_cameras(manifest, console)
    _show_record(manifest, console)
    console.print(f"bundle: {out}", highlight=False, soft_wrap=True)


def rig_options(
    cameras: Sequence[str],
    frames: int,
    frame_rate: float,
    min_pixels: int | None,
    max_pixels: int | None,
) -> RigOptions | None:
    """The rig that the options name; None without cameras.

    Raises:
        SlipstreamError: an option that is not valid, or that needs a --camera.
    """
    named = {"--min-pixels": min_pixels, "--max-pixels": max_pixels, "--frames": frames}
    for option, value in named.items():
        if value is not None and not 1 <= value <= 1 << 31:
            raise _bad_option(option, "a whole number above 0", str(value))
    if not 0 < frame_rate <= 1000:  # NaN is neither
        raise _bad_option("--frame-rate", "a number of Hz above 0", str(frame_rate))
    if not cameras and (min_pixels or max_pixels or frames > 1):
        raise _bad_option("--camera", "the cameras that the other options are about", "none")
    if not cameras:
        return None
    return RigOptions(
        [_camera(each) for each in cameras], frames, frame_rate, min_pixels, max_pixels
    )


def _camera(text: str) -> Camera:
    found = re.fullmatch(r"([A-Za-z0-9][\w.-]*)=([0-9]{1,6})[xX]([0-9]{1,6})", text)
    if found is None:
        raise _bad_option("--camera", "NAME=WIDTHxHEIGHT, such as front=1280x720", text)
    return Camera(found[1], int(found[2]), int(found[3]))


def _bad_option(option: str, expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        f"{option} is not valid",
        expected=expected,
        found=found,
        fix="slipstream export ... --camera front=1280x720, and see `slipstream export --help`",
    )


def _show_cameras(manifest: Manifest, console: Console) -> None:
    """Each camera, and the rows that it takes in the cache."""
    if (vision := manifest.vision) is not None:
        for camera, tokens in zip(vision.cameras, vision.tokens, strict=True):
            frames = f", {camera.frames} frames" if camera.frames > 1 else ""
            _, height, width = (side * vision.patch for side in camera.grid)
            console.print(
                f"camera {camera.name}: {camera.width}x{camera.height}{frames}, "
                f"resized to {width}x{height}: {tokens} tokens",
                highlight=False,
            )
    elif manifest.target.mrope:
        console.print("cameras: none; name them with --camera NAME=WIDTHxHEIGHT", style="yellow")


def _show_record(manifest: Manifest, console: Console) -> None:
    """The name, and what the bundle says of its training; silence there must not go unsaid."""
    known = manifest.provenance
    record = [("name", [manifest.name]), ("trained on", known.data), ("licences", known.licences)]
    options = {"trained on": "--data", "licences": "--licence"}
    for what, entries in record:
        if entries:
            console.print(f"{what}: {'; '.join(entries)}", highlight=False)
        else:
            console.print(f"{what}: not recorded; say it with {options[what]}", style="yellow")


def _token(text: str | None) -> str | int | None:
    """A token as the user says it: by its number, or by its text."""
    return int(text) if text is not None and text.isdecimal() else text


def _limits(limits: tuple[int, int, int, int]) -> Limits:
    names = ("trunk", "branch", "rollouts", "max_position")
    try:
        return Limits.model_validate(dict(zip(names, limits, strict=True)))
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise SlipstreamError(
            f"--{option} is out of range",
            expected=first["msg"],
            found=str(first["input"]),
            fix="see `slipstream export --help`",
        ) from error


def _check_out(out: Path) -> None:
    """An earlier bundle is replaced; anything else is left alone."""
    check_writable(out, folder=True)
    if not out.exists() or (out / MANIFEST).is_file() or (out.is_dir() and not contents(out)):
        return
    raise SlipstreamError(
        f"{out} is not replaced by a bundle",
        expected="a new folder, an empty one, or an earlier bundle",
        found="a folder with other files" if out.is_dir() else "a file",
        fix="name another folder with -o",
    )
