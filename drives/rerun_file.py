"""A replay as a Rerun recording (rerun.io): a drive in its world, its plans and costs over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive
from drives.metrics import ade, distances
from drives.readers.extra import library
from drives.replay import Replay
from drives.summary import trajectory
from drives.views import Picture, picture_at
from drives.world import WorldFrame, stretches, thinned_rows, world_frames
from planners.plan import Plan
from runtime.errors import SlipstreamError
from runtime.files import check_writable, new_file

Floats = NDArray[np.float64]

TIMELINE = "drive"  # s since the drive's first sample
OPTION = "--rerun"
INSTALL = "pip install '.[viz]' in slipstream's folder"
_PATH, _TRUTH = (150, 158, 170), (245, 245, 245)
_COLORS = ((77, 134, 255), (255, 159, 64), (62, 201, 145), (214, 108, 232), (255, 99, 120))
_BODY, _MIDDLE = (4.6, 1.9, 1.5), (1.4, 0.0, 0.75)  # m, a usual car and its middle from the axle


def check_rerun(out: Path) -> None:
    """Insist, before the work, that the recording can be written.

    Raises:
        SlipstreamError: rerun-sdk is not installed, or `out` can't be written.
    """
    _library("rerun")
    check_writable(out, option=OPTION)


def write_rerun(replay: Replay, drive: Drive, out: Path) -> None:
    """Write a recording that `rerun OUT` opens.

    Entities, all on the timeline `drive` (s since its first sample): /world/path, /world/vehicle,
    /world/truth, /world/plans/DECODER and /world/rollouts/DECODER in the drive's world frame (m);
    /world/vehicle/camera with a calibrated camera's pictures, or /camera; /latency_ms,
    /acceptance_length and /ade_5s_m with a series for each decoder; /about.

    Args:
        replay: what ran.
        drive: what it ran on.
        out: the .rrd file; an older one is replaced.

    Raises:
        SlipstreamError: rerun-sdk is not installed, or `out` can't be written.
    """
    rr = _library("rerun")
    with new_file(out, OPTION) as place:
        stream = rr.RecordingStream("slipstream")
        try:
            stream.save(place, default_blueprint=_blueprint(replay, drive))
            _drive(rr, stream, drive)
            lost = _pictures(rr, stream, replay, drive)
            _about(rr, stream, replay, drive, lost)
            _frames(rr, stream, replay, drive)
            _figures(rr, stream, replay)
            stream.flush()
        finally:
            stream.disconnect()


def _drive(rr: Any, stream: Any, drive: Drive) -> None:
    """Where the vehicle was, and how it is turned."""
    stream.log("world", rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    strips = stretches(drive)
    stream.log("world/path", rr.LineStrips3D(strips, colors=_PATH, radii=0.08), static=True)
    body = rr.Boxes3D(sizes=[_BODY], centers=[_MIDDLE], colors=[_PATH])
    stream.log("world/vehicle/body", body, static=True)
    for time, position, heading in thinned_rows(drive):
        stream.set_time(TIMELINE, duration=time)
        turn = [0.0, 0.0, float(np.sin(0.5 * heading)), float(np.cos(0.5 * heading))]
        pose = rr.Transform3D(translation=position, quaternion=turn)
        stream.log("world/vehicle", pose)


def _frames(rr: Any, stream: Any, replay: Replay, drive: Drive) -> None:
    """Plans, rollouts, and what happened."""
    for index, frame in enumerate(world_frames(replay, drive)):
        stream.set_time(TIMELINE, duration=frame.time)
        stream.set_time("frame", sequence=frame.number)
        truth = replay.windows[index].future
        if truth is not None:
            strip = rr.LineStrips3D([frame.path(truth)], colors=_TRUTH, radii=0.12)
            stream.log("world/truth", strip)
        for number, (name, plans) in enumerate(replay.plans.items()):
            _plan(rr, stream, name, _COLORS[number % len(_COLORS)], frame, plans[index])


def _figures(rr: Any, stream: Any, replay: Replay) -> None:
    """What each plan took and how far off it was, over time."""
    times = [window.observation.time for window in replay.windows]
    futures = [window.future for window in replay.windows]
    truth = np.stack([np.full((20, 2), np.nan) if each is None else each for each in futures])
    for number, (name, plans) in enumerate(replay.plans.items()):
        figures: dict[str, Floats] = {
            "latency_ms": np.array([1e3 * plan.latency for plan in plans]),
            "acceptance_length": np.array([plan.stats.acceptance_length for plan in plans]),
            "ade_5s_m": ade(distances(np.stack([trajectory(plan) for plan in plans]), truth), 5),
        }
        for figure, values in figures.items():
            place = rr.new_entity_path([figure, name])
            color = _COLORS[number % len(_COLORS)]
            stream.log(place, rr.SeriesLines(colors=color, names=name), static=True)
            known = np.isfinite(values)
            clock = rr.TimeColumn(TIMELINE, duration=np.array(times)[known])
            columns = rr.Scalars.columns(scalars=values[known])
            stream.send_columns(place, indexes=[clock], columns=columns)


def _plan(
    rr: Any, stream: Any, name: str, color: tuple[int, int, int], frame: WorldFrame, plan: Plan
) -> None:
    """One decoder's plan and rollouts; a frame without a plan clears the one before."""
    if plan.trajectory is None:
        stream.log(["world", "plans", name], rr.Clear(recursive=False))
    else:
        strip = rr.LineStrips3D([frame.path(plan.trajectory)], colors=color, radii=0.18)
        stream.log(["world", "plans", name], strip)
    strips = [frame.path(rollout) for rollout in plan.rollouts[plan.valid]]
    faint = rr.LineStrips3D(strips, colors=(*color, 110), radii=0.05)
    stream.log(["world", "rollouts", name], faint)


def _pictures(rr: Any, stream: Any, replay: Replay, drive: Drive) -> str:
    """The camera that looks ahead, at the frames; returns why pictures are missing."""
    lost = ""
    for window in replay.windows:
        try:
            picture = picture_at(drive, window.observation.time)
        except SlipstreamError as error:
            lost = f"{error.what}: {error.found}; {error.fix}"
            continue
        if picture is None:
            continue
        stream.set_time(TIMELINE, duration=picture.time)
        place = _camera(rr, stream, picture)
        stream.log(place, rr.EncodedImage(contents=picture.jpeg, media_type="image/jpeg"))
    return lost


def _camera(rr: Any, stream: Any, picture: Picture) -> str:
    """Say where the camera is; a lens' distortion is not part of Rerun's pinhole."""
    known = picture.camera.calibration
    if known is None:
        return "camera/image"
    scale = picture.scale
    pinhole = rr.Pinhole(
        focal_length=[known.fx * scale[0], known.fy * scale[1]],
        principal_point=[known.cx * scale[0], known.cy * scale[1]],
        width=picture.width,
        height=picture.height,
        image_plane_distance=4.0,
    )
    lower = known.position - np.array([0.0, 0.0, known.road])  # paths are drawn at height 0
    pose = rr.Transform3D(translation=lower, mat3x3=known.rotation)
    stream.log("world/vehicle/camera", pose, static=True)
    stream.log("world/vehicle/camera", pinhole, static=True)
    return "world/vehicle/camera/image"


def _about(rr: Any, stream: Any, replay: Replay, drive: Drive, lost: str) -> None:
    lines = [
        f"# {drive.name}",
        f"{drive.source}. Licence: {drive.licence}.",
        f"{len(replay.windows)} frames; decoders: {', '.join(replay.settings)}; rollouts become "
        f"one trajectory by {replay.rule}.",
        *(["**Synthetic drive**: computed motion, no vehicle drove it."] * drive.synthetic),
        *([f"Pictures are missing: {lost}"] if lost else []),
    ]
    text = rr.TextDocument("\n\n".join(lines), media_type="text/markdown")
    stream.log("about", text, static=True)


def _blueprint(replay: Replay, drive: Drive) -> Any:
    """The world and the camera side by side, the figures below them."""
    rrb = _library("rerun.blueprint")
    above = [rrb.Spatial3DView(origin="/world", name="World", eye_controls=_follow(rrb))]
    calibrated = any(each.calibration for each in drive.images or ())
    if drive.images:
        place = "/world/vehicle/camera" if calibrated else "/camera"
        contents = ["$origin/**", "/world/plans/**", "/world/rollouts/**", "/world/truth"]
        above.append(
            rrb.Spatial2DView(
                origin=place, contents=contents if calibrated else "$origin/**", name="Camera"
            )
        )
    below = [
        rrb.TimeSeriesView(origin="/latency_ms", name="Latency, ms"),
        rrb.TimeSeriesView(origin="/acceptance_length", name="Acceptance length, tokens a round"),
        rrb.TimeSeriesView(origin="/ade_5s_m", name="ADE@5s, m"),
        rrb.TextDocumentView(origin="/about", name="About"),
    ]
    return rrb.Blueprint(
        rrb.Vertical(rrb.Horizontal(*above), rrb.Horizontal(*below), row_shares=[2, 1]),
        rrb.TimePanel(timeline=TIMELINE, state="collapsed"),
        collapse_panels=True,
    )


def _follow(rrb: Any) -> Any:
    return rrb.EyeControls3D(tracking_entity="/world/vehicle/body")


def _library(module: str) -> Any:
    return library(module, "a Rerun recording", act="written", fix=INSTALL)
