"""Optimization profiles: shapes from dimensions, and defaults that hold the decoder's passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import slipstream
from planners.planner import Planner
from runtime.bundle import Bundle, GraphName
from runtime.engines.profiles import Profile, default_profiles, text_of
from runtime.fits import ALONE

DECODE = Profile(name="decode", dims={"N": (1, 4, 8), "S": (1, 16, 65), "T": (1, 64, 256)})
GRAPHS: tuple[GraphName, ...] = ("embed", "target", "draft", "head")


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(slipstream.shipped_bundle())


def test_a_tensor_s_shapes_follow_from_its_dimensions() -> None:
    assert DECODE.shapes(["N", "S", "T+S"]) == ((1, 1, 2), (4, 16, 80), (8, 65, 321))
    assert DECODE.shapes([512, "T", "N"]) == ((512, 1, 1), (512, 64, 4), (512, 256, 8))
    with pytest.raises(KeyError):
        DECODE.shapes(["P"])


def test_the_text_is_canonical() -> None:
    turned = Profile(name="decode", dims=dict(reversed(DECODE.dims.items())))
    assert turned.text == DECODE.text == "decode:N=1:4:8,S=1:16:65,T=1:64:256"
    assert text_of([DECODE, turned]) == f"{DECODE.text};{DECODE.text}"


@pytest.mark.parametrize("sizes", [(0, 1, 1), (2, 1, 3), (1, 4, 3)])
def test_a_range_out_of_order_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValidationError, match="min <= opt <= max"):
        Profile(name="decode", dims={"N": sizes})


def test_sizes_fit_a_profile_or_do_not() -> None:
    assert DECODE.fits({"N": 8, "S": 65, "T": 256, "P": 9999})
    assert not DECODE.fits({"N": 9, "S": 65, "T": 256})


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_input_and_output_has_a_shape(bundle: Bundle, graph: GraphName) -> None:
    for profile in default_profiles(bundle.manifest, graph):
        for spec in _specs(bundle, graph):
            low, best, high = profile.shapes(spec)
            assert all(0 < a <= b <= c for a, b, c in zip(low, best, high, strict=True))


def test_the_decoder_s_passes_fit(bundle: Bundle) -> None:
    """All that a whole frame feeds to the engines, with each decoder and many rollouts."""
    planner = slipstream.load(bundle.folder)
    seen = _record(planner)
    drive = slipstream.open_drive("synthetic")
    window = slipstream.windows(drive)[0]
    rollouts = bundle.manifest.limits.rollouts
    for method in ("ar", "dflash", "ddtree", "spectr"):
        for n in (1, rollouts):
            sampling = slipstream.Sampling(temperature=1.0 if n > 1 or method == "spectr" else 0.0)
            settings = slipstream.DecodeSettings(
                method=method,  # type: ignore[arg-type]
                rollouts=n,
                sampling=sampling,
            )
            planner.plan(window.observation, settings)
    assert {graph for graph, _ in seen} == set(GRAPHS)
    for graph, sizes in seen:
        profiles = default_profiles(bundle.manifest, graph)
        assert any(profile.fits(dict(sizes)) for profile in profiles), (graph, sizes)


def test_the_passes_of_a_target_that_drafts_ahead_fit() -> None:
    """Before the fork they are wider than a tree, in a bundle for a single rollout too."""
    planner = slipstream.load(slipstream.shipped_bundle("fast-ddrive"))
    seen = _record(planner)
    window = slipstream.windows(slipstream.open_drive("synthetic"))[0]
    manifest = planner.bundle.manifest
    alone = manifest.model_copy(
        update={"limits": manifest.limits.model_copy(update={"rollouts": 1})}
    )
    for n, within in ((1, alone), (manifest.limits.rollouts, manifest)):
        sampling = slipstream.Sampling(temperature=0.5 if n > 1 else 0.0)
        settings = slipstream.DecodeSettings("scaffold-spec", rollouts=n, sampling=sampling)
        for _ in range(3):
            planner.plan(window.observation, settings)
        for graph, sizes in seen:
            profiles = default_profiles(within, graph)
            assert any(profile.fits(dict(sizes)) for profile in profiles), (graph, sizes)
        assert max(dict(sizes)["S"] for graph, sizes in seen if graph == "target") > 65
        for graph in ("embed", "target", "head"):  # a pass may verify as many rows, and draft them
            widest = {"N": 1, "S": ALONE, "P": 600, "T": 1}
            assert any(each.fits(widest) for each in default_profiles(within, graph)), graph
        seen.clear()


def _specs(bundle: Bundle, graph: GraphName) -> list[tuple[int | str, ...]]:
    from runtime.engines.onnx import OnnxEngine

    engine = OnnxEngine(bundle.graph_path(graph), threads=1)
    return [spec.shape for spec in (*engine.inputs.values(), *engine.outputs.values())]


def _record(planner: Planner) -> set[tuple[GraphName, tuple[tuple[str, int], ...]]]:
    """Collects the dimensions of every pass from here on."""
    seen: set[tuple[GraphName, tuple[tuple[str, int], ...]]] = set()
    for graph, engine in planner.decoder.graphs._engines.items():
        run = engine.run

        def recorded(
            feeds: Mapping[str, Any],
            into: Mapping[str, Any],
            *,
            _graph: GraphName = graph,
            _run: Any = run,
            _inputs: Mapping[str, Any] = engine.inputs,
        ) -> Any:
            sizes: dict[str, int] = {}
            for name, spec in _inputs.items():
                for dim, size in zip(spec.shape, np.shape(feeds[name]), strict=True):
                    if isinstance(dim, str) and "+" not in dim:
                        sizes[dim] = size
            seen.add((_graph, tuple(sorted(sizes.items()))))
            return _run(feeds, into)

        engine.run = recorded  # type: ignore[method-assign]
    return seen
