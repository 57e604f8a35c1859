"""Projection of road points: pixels by hand, clipping, the lens, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from drives.camera import NEAR, Calibration, calibrated, moved
from drives.frames import EGO_FROM_CAMERA, to_ego, to_world
from runtime.errors import SlipstreamError


def camera(**changes: Any) -> Calibration:
    """1 m ahead of the axle, 1.5 m above the road, level, looking ahead; 640 x 480 px."""
    values: dict[str, Any] = {
        "width": 640,
        "height": 480,
        "fx": 500.0,
        "fy": 400.0,
        "cx": 320.0,
        "cy": 240.0,
        "rotation": EGO_FROM_CAMERA,
        "position": np.array([1.0, 0.0, 1.5]),
        "source": "a test",
    }
    return Calibration(**{**values, **changes})


def pitched(angle: float) -> np.ndarray:
    """Looking down by `angle` rad."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]]) @ EGO_FROM_CAMERA


def test_pixels_by_hand() -> None:
    # 10 m before the lens and 1.5 m below it; 2 m to the left is 500 * 2 / 10 px to the left
    found = camera().spots(np.array([[11.0, 0.0], [11.0, 2.0], [21.0, -2.0]]))
    np.testing.assert_allclose(found, [[320, 300], [220, 300], [370, 270]])


def test_a_camera_that_looks_down_sees_the_road_where_its_axis_meets_it() -> None:
    angle = 0.1
    meets = 1.0 + 1.5 / np.tan(angle)
    found = camera(rotation=pitched(angle)).spots(np.array([[meets, 0.0], [1e7, 0.0]]))
    np.testing.assert_allclose(found[0], [320, 240], atol=1e-9)
    assert found[1, 1] == pytest.approx(240 - 400 * np.tan(angle), abs=1e-3)  # the horizon


def test_the_road_may_lie_below_the_vehicle_frame() -> None:
    # Argoverse's frame lies in the axle: the same road is seen from the same height above it
    above = camera().spots(np.array([[11.0, 1.0]]))
    axle = camera(road=-0.33, position=np.array([1.0, 0.0, 1.17])).spots(np.array([[11.0, 1.0]]))
    np.testing.assert_allclose(axle, above)


def test_a_line_is_cut_where_it_comes_too_near() -> None:
    (line,) = camera().project(np.array([[-5.0, 0.0], [0.0, 0.0], [11.0, 0.0], [21.0, 1.0]]))
    np.testing.assert_allclose(line[0], [320, 240 + 400 * 1.5 / NEAR])
    np.testing.assert_allclose(line[1:], [[320, 300], [295, 270]])


def test_a_line_that_leaves_and_comes_back_has_two_pieces() -> None:
    there_and_back = np.array(
        [[5.0, 0.0], [9.0, 1.0], [-9.0, 3.0], [-9.0, 4.0], [9.0, 5.0], [12, 5]]
    )
    first, second = camera().project(there_and_back)
    assert (len(first), len(second)) == (3, 3)
    edge = 240 + 400 * 1.5 / NEAR
    assert (first[-1, 1], second[0, 1]) == pytest.approx((edge, edge))


@pytest.mark.parametrize("points", [[[-3.0, 0.0], [0.5, 0.0]], [[11.0, 0.0]], np.zeros((0, 2))])
def test_nothing_is_drawn_behind_the_camera_or_of_a_single_point(points: Any) -> None:
    assert camera().project(np.array(points, dtype=float).reshape(-1, 2)) == []


def test_the_way_back_from_a_pixel_meets_the_road_where_the_point_was() -> None:
    random = np.random.default_rng(5)
    turn = np.linalg.qr(np.eye(3) + 0.05 * random.normal(size=(3, 3)))[0]
    turn *= np.sign(np.diag(turn))
    seen = camera(rotation=turn @ EGO_FROM_CAMERA, position=np.array([1.6, 0.2, 1.4]), road=0.1)
    points = random.uniform([4.0, -6.0], [60.0, 6.0], (200, 2))
    pixels = seen.spots(points)
    rays = np.column_stack(
        [(pixels[:, 0] - 320) / 500, (pixels[:, 1] - 240) / 400, np.ones(len(pixels))]
    )
    rays = rays @ (turn @ EGO_FROM_CAMERA).T
    reach = (0.1 - 1.4) / rays[:, 2]
    np.testing.assert_allclose(rays[:, :2] * reach[:, None] + [1.6, 0.2], points, atol=1e-6)


def test_the_lens_bends_as_its_equations_say() -> None:
    lens = (-0.2, 0.05, 0.001, -0.002, 0.01)
    (found,) = camera(distortion=lens).spots(np.array([[6.0, 1.0]]))
    x, y = -0.2, 0.3  # 5 m before the lens
    square = x * x + y * y
    radial = 1 + lens[0] * square + lens[1] * square**2 + lens[4] * square**3
    bent_x = x * radial + 2 * lens[2] * x * y + lens[3] * (square + 2 * x * x)
    bent_y = y * radial + lens[2] * (square + 2 * y * y) + 2 * lens[3] * x * y
    np.testing.assert_allclose(found, [500 * bent_x + 320, 400 * bent_y + 240])


def test_a_straight_line_becomes_a_curve_behind_a_lens() -> None:
    ends = np.array([[4.0, -2.0], [40.0, 9.0]])
    (straight,) = camera().project(ends)
    (bent,) = camera(distortion=(-0.1, 0.0, 0.0, 0.0, 0.0)).project(ends)
    assert len(straight) == 2
    assert len(bent) > 60
    chord = bent[-1] - bent[0]
    across = np.array([-chord[1], chord[0]]) / np.linalg.norm(chord)
    away = (bent - bent[0]) @ across
    assert np.abs(away).max() > 1.0


def test_points_beyond_the_lens_model_do_not_fold_back_into_the_picture() -> None:
    lens = (-0.3, 0.0, 0.0, 0.0, 0.0)  # r (1 - 0.3 r²) stops growing at r = 1.054
    wide = camera(distortion=lens)
    assert np.isfinite(wide.spots(np.array([[2.6, 0.0]]))).all()  # r = 0.94
    assert np.isnan(wide.spots(np.array([[2.4, 0.0]]))).all()  # r = 1.07
    (line,) = wide.project(np.array([[1.6, 0.0], [20.0, 0.0]]))
    assert (np.diff(line[:, 1]) < 0).all()


def test_a_later_picture_sees_the_path_from_where_the_vehicle_is_then() -> None:
    speed, yaw_rate, after = 12.0, 0.3, 0.1
    radius, turn = speed / yaw_rate, yaw_rate * after
    pose = np.array([radius * np.sin(turn), radius * (1 - np.cos(turn))])  # on the circle
    points = np.array([[0.0, 0.0], [10.0, 1.0], [40.0, -3.0]])
    found = moved(points, speed, yaw_rate, after)
    np.testing.assert_allclose(
        found, to_ego(points[None], pose[None], np.array([turn]))[0], atol=1e-3
    )
    np.testing.assert_allclose(to_world(found, pose, turn), points, atol=1e-3)
    np.testing.assert_allclose(moved(found, speed, yaw_rate, 0.0), found)


BAD: dict[str, dict[str, Any]] = {
    "no focal length": {"fx": 0.0},
    "NaN": {"cy": float("nan")},
    "infinite": {"fy": float("inf")},
    "no size": {"width": 0},
    "a scaled rotation": {"rotation": 1.1 * EGO_FROM_CAMERA},
    "a mirror": {"rotation": np.diag([1.0, -1.0, 1.0])},
    "rotation of NaN": {"rotation": np.full((3, 3), np.nan)},
    "rotation of another shape": {"rotation": np.eye(4)},
    "far away": {"position": np.array([0.0, 0.0, 1e5])},
    "half a position": {"position": np.zeros(2)},
    "four coefficients": {"distortion": (0.1, 0.0, 0.0, 0.0)},
    "a lens of NaN": {"distortion": (float("nan"),) * 5},
}


@pytest.mark.parametrize("name", BAD)
def test_what_no_camera_has_is_refused(name: str) -> None:
    with pytest.raises(SlipstreamError, match="can't be used: a test"):
        camera(**BAD[name])


def test_the_error_names_the_file() -> None:
    with pytest.raises(SlipstreamError, match=r"FRONT of shard 3 has a calibration") as caught:
        calibrated("FRONT of shard 3", "fetch it again", **{**vars(camera()), "fx": -1.0})
    assert caught.value.fix == "fetch it again"
