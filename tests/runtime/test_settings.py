"""Settings of the wrong type are refused where they are made, and numpy's numbers become plain."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from runtime.errors import SettingsError
from runtime.settings import DecodeSettings, Sampling


@pytest.mark.parametrize("wrong", [8.0, "8", True, [8], float("nan"), 8j, b"8"])
@pytest.mark.parametrize("name", ["rollouts", "block", "nodes", "paths", "seed", "frame"])
def test_whole_numbers_are_whole_numbers(name: str, wrong: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} has the wrong type") as caught:
        DecodeSettings(**{name: wrong})
    assert repr(wrong) in caught.value.found
    assert caught.value.fix


@pytest.mark.parametrize("name", ["rollouts", "paths", "seed", "frame", "sampling", "method"])
def test_none_is_no_value_where_nothing_may_be_left_open(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} has the wrong type"):
        DecodeSettings(**{name: None})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("method", 3),
        ("method", ["ar"]),
        ("accept", 1.5),
        ("sampling", 0.5),
        ("sampling", {"temperature": 0.5}),
        ("prefix_sampling", "greedy"),
    ],
)
def test_the_other_fields_are_checked_too(name: str, wrong: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} has the wrong type"):
        DecodeSettings(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("temperature", "0.5"),
        ("temperature", True),
        ("temperature", None),
        ("temperature", 1j),
        ("top_k", 5.0),
        ("top_k", False),
        ("top_p", "0.9"),
        ("top_p", [0.9]),
    ],
)
def test_sampling_is_checked_too(name: str, wrong: Any) -> None:
    with pytest.raises(SettingsError, match=f"{name} has the wrong type"):
        Sampling(**{name: wrong})


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), 10**400])
def test_a_budget_is_a_time(wrong: float) -> None:
    with pytest.raises(SettingsError, match=r"budget_ms .* is out of range"):
        DecodeSettings(budget_ms=wrong)
    for mistyped in ("100", True, [1.0]):
        with pytest.raises(SettingsError, match="budget_ms has the wrong type"):
            DecodeSettings(budget_ms=mistyped)  # type: ignore[arg-type]
    assert DecodeSettings(budget_ms=100).budget_ms == 100.0
    assert DecodeSettings().budget_ms is None


def test_numbers_of_numpy_become_plain_ones() -> None:
    settings = DecodeSettings(
        rollouts=np.int64(8),  # type: ignore[arg-type]
        block=np.uint8(16),  # type: ignore[arg-type]
        sampling=Sampling(np.float32(0.5), np.int32(5), 1),  # type: ignore[arg-type]
    )
    assert settings == DecodeSettings(rollouts=8, block=16, sampling=Sampling(0.5, 5, 1.0))
    for made in (settings, settings.sampling):
        for field in fields(made):
            value = getattr(made, field.name)
            assert type(value) in (int, float, str, Sampling, type(None)), field.name
    assert hash(settings) == hash(DecodeSettings(rollouts=8, block=16, sampling=settings.sampling))


def test_no_number_that_is_out_of_range_gets_through() -> None:
    for name, value in (("rollouts", 0), ("block", 1), ("seed", -1), ("seed", 1 << 64)):
        with pytest.raises(SettingsError, match="out of range"):
            DecodeSettings(**{name: value})  # type: ignore[arg-type]
