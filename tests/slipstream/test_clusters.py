"""`slipstream run --clusters`: read before the engine, and a run goes on only with the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import slipstream
from drives.clusters import clusters_key, read_clusters
from drives.results import read_report
from runtime.errors import SlipstreamError
from tests.slipstream.command import command

pytestmark = pytest.mark.skipif(
    not (slipstream.shipped_bundle() / "bundle.json").is_file(), reason="no shipped bundle"
)


def test_key_tells_clusters_apart() -> None:
    assert clusters_key({}) == ""
    assert clusters_key({"a": "x", "b": "y"}) == clusters_key({"b": "y", "a": "x"})
    assert clusters_key({"a": "x"}) != clusters_key({"a": "y"})


def test_a_sequence_is_in_one_cluster_and_a_mark_is_no_part_of_its_name(tmp_path: Path) -> None:
    path = tmp_path / "clusters.json"
    path.write_text('{"clip": "rain"}', "utf-8-sig")
    assert read_clusters(path) == {"clip": "rain"}
    path.write_text('{"clip": "rain", "clip": "sun"}')
    with pytest.raises(SlipstreamError, match="'clip' is there twice"):
        read_clusters(path)


def test_the_run_keeps_them(tmp_path: Path) -> None:
    clusters = tmp_path / "clusters.json"
    words = ["run", str(slipstream.shipped_bundle()), "--drive", "synthetic", "--frames", "1"]
    words += ["--decoder", "dflash", "--clusters", str(clusters), "-o", "out"]

    missing = command(*words, cwd=tmp_path)
    assert missing.returncode == 2
    assert f"{clusters} holds no scenario clusters" in missing.stderr

    clusters.write_text(json.dumps({"clip": {"scenario_cluster": "rain"}}), "utf-8")
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asked = read_report(tmp_path / "out" / "report.json").asked
    assert asked is not None
    assert asked.clusters == clusters_key({"clip": "rain"})

    many = [*words[:-1], "many", "--workers", "1"]
    assert command(*many, cwd=tmp_path).returncode == 0
    clusters.write_text(json.dumps({"clip": "sun"}), "utf-8")
    refused = command(*many, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--clusters" in refused.stderr
