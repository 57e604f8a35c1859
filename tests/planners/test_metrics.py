"""A planner's metrics: they are the plans' own figures, and Prometheus can read them."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from drives.open import open_drive
from drives.windows import windows
from planners.metrics import Metrics
from planners.plan import Plan
from planners.planner import Planner
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Sampling
from slipstream import shipped_bundle
from slipstream.commands.metered import metered
from slipstream.commands.screen import Screen
from tests.slipstream.command import ROOT

HOT = DecodeSettings(rollouts=3, sampling=Sampling(0.5), block=16, budget_ms=1e5)


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner.load(shipped_bundle(), threads=1)


@pytest.fixture(scope="module")
def plans(planner: Planner) -> list[Plan]:
    """Three plans as they came, one that was late and one without a usable rollout."""
    made = [
        planner.plan(window.observation, HOT, "mean")
        for window in windows(open_drive("synthetic"))[:3]
    ]
    late = replace(made[0], stats=replace(made[0].stats, met=False), flags=("late",))
    lost = replace(made[1], trajectory=None, valid=np.zeros(3, np.bool_))
    return [*made, late, lost]


def read(text: str) -> dict[tuple[str, str], float]:
    """(name, its labels but the decoder's) -> value."""
    return {
        (sample.name, ",".join(v for k, v in sample.labels.items() if k != "decoder")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counters_are_sums_over_plans(planner: Planner, plans: list[Plan], tmp_path: Path) -> None:
    metrics = Metrics(planner.bundle)
    for plan in plans:
        metrics.observe(plan)
    metrics.save(tmp_path / "planner.prom")
    found = read((tmp_path / "planner.prom").read_text("utf-8"))

    def total(what: str) -> float:
        return sum(getattr(plan.stats, what) for plan in plans)

    at = "slipstream_"
    assert found[f"{at}frame_seconds_count", ""] == 5
    assert found[f"{at}frame_seconds_sum", ""] == pytest.approx(sum(p.latency for p in plans))
    stages = [v for (name, _), v in found.items() if name == f"{at}stage_seconds_total"]
    assert sum(stages) == pytest.approx(sum(plan.latency for plan in plans))
    assert (found[f"{at}frames_total", "true"], found[f"{at}frames_total", "false"]) == (4, 1)
    met = [found[f"{at}deadline_frames_total", word] for word in ("true", "false")]
    assert met == [4, 1]
    assert found[f"{at}flagged_frames_total", "late"] == 1
    usable = sum(int(plan.valid.sum()) for plan in plans)
    assert found[f"{at}rollouts_total", "usable"] == usable
    assert found[f"{at}rollouts_total", "unusable"] == 15 - usable >= 3
    for name, what in (
        ("spec_decode_num_drafts_total", "rounds"),
        ("spec_decode_num_draft_tokens_total", "proposed"),
        ("spec_decode_num_accepted_tokens_total", "accepted"),
        ("committed_tokens_total", "committed"),
    ):
        assert found[at + name, ""] == total(what) > 0
    for what, place in (("draft", 0), ("accepted", 1)):
        name = f"{at}spec_decode_num_{what}_tokens_per_pos_total"
        places = sum(plan.stats.by_position[place] for plan in plans)
        assert [found[name, str(k)] for k in np.flatnonzero(places)] == places[places > 0].tolist()
    assert found[f"{at}passes_total", "target"] == total("target_passes")
    rows = found[f"{at}prompt_rows_total", "kept"] + found[f"{at}prompt_rows_total", "passed"]
    assert rows == total("prompt_rows")
    assert found[f"{at}cache_bytes", ""] == plans[-1].stats.cache_bytes
    assert found[f"{at}bundle_info", f"{planner.bundle.key},{planner.bundle.manifest.name}"] == 1


def test_prometheus_reads_them_while_a_replay_runs(
    planner: Planner, capsys: pytest.CaptureFixture[str]
) -> None:
    observation = windows(open_drive("synthetic"))[0].observation
    with metered("0", Screen()) as meter:
        url = capsys.readouterr().out.split()[-1]
        plan = meter.on(planner).plan(observation, HOT, "mean")
        with urlopen(url) as answer:
            text = answer.read().decode()
        assert 'decoder="dflash:block \N{MULTIPLICATION SIGN}3"' in text
        assert read(text)["slipstream_committed_tokens_total", ""] == plan.stats.committed
    with pytest.raises(OSError, match="refused"):
        urlopen(url)
    with metered(None, Screen()) as meter:
        assert meter.on(planner) is planner


@pytest.mark.parametrize("where", ["", "x", "-1", "65536", "1.5", "\N{SUPERSCRIPT TWO}", ":", "a:"])
def test_what_is_no_port_is_refused(where: str) -> None:
    with pytest.raises(SlipstreamError, match="no place to be served"), Metrics().served(where):
        pass


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        served = Metrics().served(port)
        with pytest.raises(SlipstreamError, match=f"served on 127.0.0.1:{port}"), served:
            pass


def test_the_page_names_every_series_and_its_example_runs(plans: list[Plan]) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    section = page.split("## What there is")[1].split("Questions")[0]
    told = set(re.findall(r"`([a-z_]+)`", section)) - {"slipstream_"}
    metrics = Metrics()
    for plan in plans:
        metrics.observe(plan)
    for family in metrics.registry.collect():
        if family.name.startswith("slipstream_"):
            name = family.name.removeprefix("slipstream_")
            ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
            assert name + ending in told
            told -= {name + ending, *(label for s in family.samples for label in s.labels)}
    assert told <= {"name", "key"}  # of the bundle, which was not said here
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    scope: dict[str, Any] = {}
    exec(example, scope)
    counted = generate_latest(scope["metrics"].registry).decode()
    assert read(counted)["slipstream_frame_seconds_count", ""] == 1
