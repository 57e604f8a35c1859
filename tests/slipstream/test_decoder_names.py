"""Decoders are named with the acceptance rule in force, so that runs can be told apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from slipstream.commands.request import decoder_name, method_and_rule

HOT = Sampling(0.5)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (DecodeSettings(), "dflash"),
        (DecodeSettings(accept="token"), "dflash:token"),
        (DecodeSettings(sampling=HOT, rollouts=4), "dflash:block ×4"),
        (DecodeSettings(sampling=HOT, rollouts=4, accept="coupled"), "dflash:coupled ×4"),
        (DecodeSettings(method="ddtree", sampling=HOT), "ddtree:coupled"),
        (DecodeSettings(prefix_sampling=HOT), "dflash:block"),
        (DecodeSettings(method="ar", sampling=HOT, rollouts=4), "ar ×4"),
        (DecodeSettings("scaffold-spec"), "scaffold-spec"),
        (DecodeSettings("scaffold-spec", sampling=HOT, rollouts=4), "scaffold-spec:coupled ×4"),
        (DecodeSettings("section-diffusion", sampling=HOT, rollouts=4), "section-diffusion ×4"),
    ],
)
def test_the_rule_is_named_above_temperature_0(settings: DecodeSettings, name: str) -> None:
    assert decoder_name(settings) == name


def test_a_colon_needs_a_rule() -> None:
    assert method_and_rule("dflash") == ("dflash", None)
    assert method_and_rule("dflash:token") == ("dflash", "token")
    for text in ("dflash:", ":"):
        with pytest.raises(SlipstreamError, match="names no rule") as caught:
            method_and_rule(text)
        assert caught.value.found == text


def test_nothing_between_commas_is_told_as_nothing() -> None:
    with pytest.raises(SlipstreamError, match="decoder is out of range") as caught:
        DecodeSettings(*method_and_rule(""))
    assert caught.value.found == "nothing"


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_out_of_range_is_named_alone(seed: int) -> None:
    with pytest.raises(SlipstreamError, match=r"^seed is out of range") as caught:
        DecodeSettings(seed=seed)
    assert caught.value.found == str(seed)
    with pytest.raises(SlipstreamError, match=r"^frame is out of range"):
        DecodeSettings(frame=seed)


def test_what_is_given_and_what_is_default_are_named_alike() -> None:
    given = DecodeSettings(sampling=HOT, accept="block")
    assert decoder_name(given) == decoder_name(replace(given, accept=None))
