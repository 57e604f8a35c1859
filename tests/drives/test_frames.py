"""Frames: against closed forms, and against a second sensor of the same vehicle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drives.frames import (
    EGO_FROM_APPLANIX,
    EGO_FROM_CAMERA,
    EGO_FROM_DEVICE,
    enu_from_boreas_sensor,
    enu_from_ecef,
    geodetic_from_ecef,
    headings_of,
    rear_axle,
    rotation_from_quaternion,
    to_ego,
    to_world,
)
from drives.readers.boreas import read_boreas

angles = st.floats(-3.1, 3.1)


@pytest.mark.parametrize("matrix", [EGO_FROM_CAMERA, EGO_FROM_DEVICE, EGO_FROM_APPLANIX])
def test_axis_changes_are_rotations(matrix):
    np.testing.assert_array_equal(matrix @ matrix.T, np.eye(3))
    assert np.linalg.det(matrix) == pytest.approx(1.0)


def test_camera_axes_in_the_ego_frame():
    right, down, forward = np.eye(3)
    np.testing.assert_array_equal(EGO_FROM_CAMERA @ forward, [1, 0, 0])
    np.testing.assert_array_equal(EGO_FROM_CAMERA @ right, [0, -1, 0])
    np.testing.assert_array_equal(EGO_FROM_CAMERA @ down, [0, 0, -1])


@given(angles, st.floats(-1.5, 1.5), angles)
def test_boreas_angles_give_rotations(roll, pitch, heading):
    matrix = enu_from_boreas_sensor(*np.array([[roll], [pitch], [heading]]))[0]
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(matrix) == pytest.approx(1.0)


def test_boreas_heading_turns_clockwise():
    """A sensor with x ahead and 90 degrees of heading looks south: ENU angle -90 degrees."""
    matrix = enu_from_boreas_sensor(np.zeros(1), np.zeros(1), np.array([np.pi / 2]))[0]
    np.testing.assert_allclose(matrix @ [1.0, 0.0, 0.0], [0.0, -1.0, 0.0], atol=1e-12)


def test_boreas_attitude_agrees_with_its_velocity(boreas_excerpt: Path):
    """The camera's forward axis, from roll, pitch and heading alone, points along the velocity."""
    table = np.loadtxt(boreas_excerpt / "applanix" / "camera_poses.csv", delimiter=",", skiprows=1)
    forward = enu_from_boreas_sensor(*table[:, 7:10].T)[:, :, 2]
    velocity = table[:, 4:7]
    moving = np.linalg.norm(velocity, axis=1) > 3.0
    along = np.sum(forward * velocity, axis=1)[moving]
    assert np.all(along > 0.99 * np.linalg.norm(velocity[moving], axis=1))


def test_boreas_positions_agree_with_its_speeds(boreas_excerpt: Path):
    drive = read_boreas(boreas_excerpt)
    steps = np.diff(drive.positions, axis=0)[:, :2]
    middle = 0.5 * (drive.headings[1:] + drive.headings[:-1])
    along = steps[:, 0] * np.cos(middle) + steps[:, 1] * np.sin(middle)
    speeds = 0.5 * (drive.speeds[1:] + drive.speeds[:-1])
    assert np.sqrt(np.mean((along / np.diff(drive.times) - speeds) ** 2)) < 0.1


def test_the_rear_axle_slips_less_than_the_camera(boreas_excerpt: Path):
    def side_slip(lever_arm: float) -> float:
        drive = read_boreas(boreas_excerpt, lever_arm=lever_arm)
        steps = np.diff(drive.positions, axis=0)[:, :2]
        middle = 0.5 * (drive.headings[1:] + drive.headings[:-1])
        across = -steps[:, 0] * np.sin(middle) + steps[:, 1] * np.cos(middle)
        return float(np.sqrt(np.mean((across / np.diff(drive.times)) ** 2)))

    assert side_slip(1.22) < 0.6 * side_slip(0.0)
    assert side_slip(1.22) < side_slip(2.44)


@given(st.floats(-1.5, 1.5), angles, st.floats(-100.0, 9000.0))
def test_geodetic_inverts_its_closed_form(latitude, longitude, height):
    flattening, radius = 1.0 / 298.257223563, 6378137.0
    eccentricity = flattening * (2.0 - flattening)
    normal = radius / np.sqrt(1.0 - eccentricity * np.sin(latitude) ** 2)
    ecef = np.array(
        [
            (normal + height) * np.cos(latitude) * np.cos(longitude),
            (normal + height) * np.cos(latitude) * np.sin(longitude),
            (normal * (1.0 - eccentricity) + height) * np.sin(latitude),
        ]
    )
    found = geodetic_from_ecef(ecef)
    np.testing.assert_allclose(found[:2], [latitude, longitude], atol=1e-9)
    assert found[2] == pytest.approx(height, abs=1e-4)


@given(st.floats(-1.5, 1.5), angles)
def test_enu_axes(latitude, longitude):
    matrix = enu_from_ecef(latitude, longitude)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    up = [
        np.cos(latitude) * np.cos(longitude),
        np.cos(latitude) * np.sin(longitude),
        np.sin(latitude),
    ]
    np.testing.assert_allclose(matrix @ up, [0, 0, 1], atol=1e-12)
    east = [-np.sin(longitude), np.cos(longitude), 0.0]
    np.testing.assert_allclose(matrix @ east, [1, 0, 0], atol=1e-12)


def test_quaternion_about_the_vertical():
    half = 0.5 * np.array([0.3, -2.0])
    turn = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1)
    forward = rotation_from_quaternion(turn) @ [1.0, 0.0, 0.0]
    np.testing.assert_allclose(headings_of(forward), [0.3, -2.0], atol=1e-12)


def test_headings_unwrap_across_unknown_rows():
    headings = np.array([3.0, 3.2, np.nan, 3.4, 6.0, 7.0])
    forward = np.stack([np.cos(headings), np.sin(headings), 0 * headings], axis=1)
    np.testing.assert_allclose(headings_of(forward), headings, atol=1e-12)


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4), angles)
def test_to_ego_and_back(x, y, heading):
    points = np.array([[x + 3.0, y - 2.0], [x, y], [0.0, 0.0]])
    ego = to_ego(points[None], np.array([[x, y]]), np.array([heading]))[0]
    np.testing.assert_allclose(ego[1], 0.0, atol=1e-9)
    np.testing.assert_allclose(to_world(ego, np.array([x, y]), heading), points, atol=1e-8)


def test_ego_axes():
    """Heading north: a point further north is ahead, one further west is to the left."""
    points = np.array([[[5.0, 12.0], [3.0, 10.0]]])
    ego = to_ego(points, np.array([[5.0, 10.0]]), np.array([np.pi / 2]))[0]
    np.testing.assert_allclose(ego, [[2.0, 0.0], [0.0, 2.0]], atol=1e-12)


def test_rear_axle_is_behind_the_sensor():
    moved = rear_axle(np.array([[1.0, 2.0, 3.0]]), np.array([np.pi / 2]), 1.5)
    np.testing.assert_allclose(moved, [[1.0, 0.5, 3.0]], atol=1e-12)
