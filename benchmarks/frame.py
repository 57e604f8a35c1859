"""The figures of a frame, all from one run: `python -m benchmarks.frame`.

Greedy decoders on the same frames, rollout sweep with the cost gate, cache memory, host share, and
trajectory error against kinematic baselines. Ratios are of means over the same frames, in rotated
order, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from drives.baselines import BASELINES, baseline
from drives.bootstrap import BlockBootstrap
from drives.fetch import fetch, is_cached
from drives.metrics import ade, distances
from drives.open import open_drive
from drives.windows import Window, windows
from planners.plan import Plan
from planners.planner import Planner
from planners.prompt import prompt_text
from runtime.files import write_atomic
from runtime.neartie import first_difference, top_two_gap
from runtime.settings import DecodeSettings, Sampling
from runtime.telemetry import FrameStats
from slipstream import shipped_bundle

NEAR_TIE = 1e-3
SAMPLED = Sampling(temperature=0.5)
GREEDY = {
    "ar": DecodeSettings(method="ar"),
    "ar-scaffold": DecodeSettings(method="ar-scaffold"),
    "dflash (gate)": DecodeSettings(),
    "dflash block 16": DecodeSettings(block=16),
    "dflash block 8": DecodeSettings(block=8),
}
SWEEP = (1, 4, 8, 16)
console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, default=shipped_bundle())
    parser.add_argument("--drive", default="kitti-00")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--sweep-frames", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    if options.drive == "kitti-00" and not is_cached(options.drive):
        fetch(options.drive)
    planner = Planner.load(options.bundle)
    frames = _spread(windows(open_drive(options.drive)).windows, options.frames)
    results: dict[str, Any] = {"drive": options.drive, "frames": len(frames)}
    results["greedy"] = greedy(planner, frames)
    results["instruments"] = instruments(planner, frames[:20])
    results["sweep"] = sweep(planner, _spread(frames, options.sweep_frames))
    results["rules"] = rules(planner, _spread(frames, options.sweep_frames))
    write_atomic(options.out / "frame.json", json.dumps(results, indent=2))
    console.print(f"written to {options.out / 'frame.json'}")


def greedy(planner: Planner, frames: list[Window]) -> dict[str, Any]:
    """Identity, latency, acceptance, host share and error of the greedy decoders."""
    plans = _interleaved(planner, frames, GREEDY, "greedy decoders")
    table = Table(title=f"greedy, N = 1, {len(frames)} frames")
    columns = ("decoder", "ms", "vs ar", "vs ar-scaffold", "passes", "acc. length", "host", "same")
    for column in columns:
        table.add_column(column, justify="left" if column == "decoder" else "right")
    latency = {name: _latency(done) for name, done in plans.items()}
    out: dict[str, Any] = {}
    for name, done in plans.items():
        differing = [i for i, plan in enumerate(done) if _differs(plan, plans["ar"][i])]
        gaps = {i: _gap(planner, frames[i], done[i], plans["ar"][i]) for i in differing}
        out[name] = {
            "ms": latency[name] * 1e3,
            "speedup_vs_ar": latency["ar"] / latency[name],
            "speedup_vs_ar_scaffold": latency["ar-scaffold"] / latency[name],
            "target_passes": float(np.mean([p.stats.target_passes for p in done])),
            "acceptance_length": _acceptance_length(done),
            "host_share": _host_share(done),
            "identical_to_ar": len(done) - len(differing),
            "near_ties": {frames[i].observation.frame: gap for i, gap in gaps.items()},
            "all_differences_are_near_ties": all(gap < NEAR_TIE for gap in gaps.values()),
        }
        row = out[name]
        table.add_row(
            name,
            f"{row['ms']:.1f}",
            f"{row['speedup_vs_ar']:.2f}x",
            f"{row['speedup_vs_ar_scaffold']:.2f}x",
            f"{row['target_passes']:.1f}",
            f"{row['acceptance_length']:.2f}",
            f"{row['host_share']:.1%}",
            f"{row['identical_to_ar']}/{len(done)}",
        )
    console.print(table)
    for name, row in out.items():
        if row["near_ties"]:
            console.print(f"{name}: differing frames and their top-2 logit gap {row['near_ties']}")
    out["error"] = error(frames, plans["dflash (gate)"])
    return out


def instruments(planner: Planner, frames: list[Window]) -> dict[str, float]:
    """Share of a frame that timers and counters take, from their cost one by one."""
    plans = [planner.plan(window.observation, DecodeSettings(), "mean") for window in frames]
    stats, depth = FrameStats(), np.arange(16)[None]
    some = depth % 2 == 0
    repeats = 2000
    began = time.perf_counter()
    for _ in range(repeats):
        with stats.stage("embed"):
            pass
    timer = (time.perf_counter() - began) / repeats
    began = time.perf_counter()
    for _ in range(repeats):
        stats.count_round(depth, some, some, np.zeros(1, np.int64), ["section"])
    counter = (time.perf_counter() - began) / repeats
    rounds = float(np.mean([plan.stats.rounds for plan in plans]))
    share = (
        rounds * (6 * timer + counter) / _latency(plans)
    )  # embed, draft, head; embed, verify, head
    console.print(f"timers and counters: {share:.2%} of a frame")
    return {"timer_us": timer * 1e6, "counter_us": counter * 1e6, "share": share}


def error(frames: list[Window], plans: list[Plan]) -> dict[str, Any]:
    """ADE@3s and ADE@5s of greedy plans and of the kinematic baselines, and the paired ratio."""
    truth = np.stack([window.future for window in frames if window.future is not None])
    observations = [window.observation for window in frames]
    bootstrap = BlockBootstrap(np.asarray([o.time for o in observations]))
    blank = np.full((20, 2), np.nan)
    paths = {"greedy": np.stack([blank if p.trajectory is None else p.trajectory for p in plans])}
    paths |= {name: baseline(name, observations) for name in BASELINES}
    errors = {name: distances(path, truth) for name, path in paths.items()}
    table = Table(title=f"ADE, m, {len(frames)} frames, 95 % block bootstrap")
    for column in ("path", "ADE@3s", "ADE@5s"):
        table.add_column(column, justify="left" if column == "path" else "right")
    out: dict[str, Any] = {}
    for name, distance in errors.items():
        intervals = [bootstrap.mean(ade(distance, horizon)) for horizon in (3.0, 5.0)]
        cells = [f"{i.value:.2f} [{i.low:.2f}, {i.high:.2f}]" for i in intervals]
        table.add_row(name, *cells)
        out[name] = {"ade_3s": vars(intervals[0]), "ade_5s": vars(intervals[1])}
    best = min(set(BASELINES) - {"still"}, key=lambda name: out[name]["ade_5s"]["value"])
    out["best_baseline"] = best
    out["ratio_to_best"] = out["greedy"]["ade_5s"]["value"] / out[best]["ade_5s"]["value"]
    paired = bootstrap.difference(ade(errors["greedy"], 5.0), ade(errors[best], 5.0))
    out["paired_difference_to_best"] = vars(paired)
    console.print(table)
    console.print(
        f"greedy / {best}: {out['ratio_to_best']:.3f}; paired difference "
        f"{paired.value:+.2f} m [{paired.low:+.2f}, {paired.high:+.2f}]"
    )
    return out


def sweep(planner: Planner, frames: list[Window]) -> dict[str, Any]:
    """Latency over the number of rollouts, gate against scaffold-skipping decoding; memory."""
    settings = {
        f"{method} N={n}": DecodeSettings(method=method, rollouts=n, sampling=SAMPLED)
        for n in SWEEP
        for method in ("ar-scaffold", "dflash")
    }
    plans = _interleaved(planner, frames, settings, "rollout sweep")
    latency = {name: _latency(done) for name, done in plans.items()}
    table = Table(title=f"rollouts at T = {SAMPLED.temperature}, {len(frames)} frames")
    columns = ("N", "ar-scaffold ms", "dflash ms", "speedup", "vs N = 1", "acc. length", "cache MB")
    for column in columns:
        table.add_column(column, justify="right")
    out: dict[str, Any] = {}
    for n in SWEEP:
        plain, gated = f"ar-scaffold N={n}", f"dflash N={n}"
        out[str(n)] = {
            "ar_scaffold_ms": latency[plain] * 1e3,
            "dflash_ms": latency[gated] * 1e3,
            "speedup": latency[plain] / latency[gated],
            "cost_vs_one": latency[gated] / latency["dflash N=1"],
            "acceptance_length": _acceptance_length(plans[gated]),
            "cache_mb": plans[gated][0].stats.cache_bytes / 1e6,
        }
        row = out[str(n)]
        table.add_row(
            str(n),
            f"{row['ar_scaffold_ms']:.1f}",
            f"{row['dflash_ms']:.1f}",
            f"{row['speedup']:.2f}x",
            f"{row['cost_vs_one']:.2f}x",
            f"{row['acceptance_length']:.2f}",
            f"{row['cache_mb']:.2f}",
        )
        assert plans[gated][0].stats.cache_bytes == _trunk_and_branches(planner, n)
    console.print(table)
    return out


def _trunk_and_branches(planner: Planner, n: int) -> int:
    """Bytes of one trunk and n branches, target and drafter."""
    manifest = planner.bundle.manifest
    networks = [manifest.target, *([manifest.draft] if manifest.draft else [])]
    row = sum(2 * 4 * each.layers * each.kv_heads * each.head_dim for each in networks)
    branches = n * manifest.limits.branch if n > 1 else 1  # without a fork, one masked row
    return row * (manifest.limits.trunk + branches)


def rules(planner: Planner, frames: list[Window]) -> dict[str, Any]:
    """Acceptance of the three rules for sampled chains, on the same frames."""
    settings = {
        f"{rule} T={t}": DecodeSettings(accept=rule, block=16, rollouts=4, sampling=Sampling(t))
        for t in (0.5, 1.0)
        for rule in ("coupled", "token", "block")
    }
    plans = _interleaved(planner, frames, settings, "acceptance rules")
    table = Table(title=f"sampled chains, block 16, N = 4, {len(frames)} frames")
    for column in ("rule", "acc. length in trajectory", "acceptance rate", "ms"):
        table.add_column(column, justify="left" if column == "rule" else "right")
    out: dict[str, Any] = {}
    for name, done in plans.items():
        counts = np.sum([p.stats.by_section["trajectory"] for p in done], axis=0)
        rounds, committed, proposed, accepted = counts
        out[name] = {
            "acceptance_length": float(committed / rounds),
            "acceptance_rate": float(accepted / proposed),
            "ms": _latency(done) * 1e3,
        }
        row = out[name]
        table.add_row(
            name,
            f"{row['acceptance_length']:.2f}",
            f"{row['acceptance_rate']:.1%}",
            f"{row['ms']:.1f}",
        )
    console.print(table)
    return out


def _interleaved(
    planner: Planner, frames: list[Window], settings: dict[str, DecodeSettings], title: str
) -> dict[str, list[Plan]]:
    names = list(settings)
    for name in names:
        for window in frames[:3]:
            planner.plan(window.observation, settings[name], "mean")
    plans: dict[str, list[Plan]] = {name: [] for name in names}
    for i, window in enumerate(track(frames, title, console=console, transient=True)):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            frame = replace(settings[name], frame=window.observation.frame)
            plans[name].append(planner.plan(window.observation, frame, "mean"))
    return plans


def _spread(frames: Any, count: int) -> list[Window]:
    """`count` frames, evenly spread."""
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    return [frames[i] for i in np.unique(chosen)]


def _latency(plans: list[Plan]) -> float:
    """s; mean over frames."""
    return float(np.mean([plan.latency for plan in plans]))


def _acceptance_length(plans: list[Plan]) -> float:
    return sum(p.stats.committed for p in plans) / sum(p.stats.rounds for p in plans)


def _host_share(plans: list[Plan]) -> float:
    """Share of a frame outside of engine calls, from prompt to plan."""
    engine = sum(sum(plan.stats.seconds.values()) for plan in plans)
    return 1.0 - engine / sum(plan.latency for plan in plans)


def _differs(plan: Plan, other: Plan) -> bool:
    return not np.array_equal(plan.tokens, other.tokens)


def _gap(planner: Planner, window: Window, plan: Plan, other: Plan) -> float:
    prompt = np.asarray(planner.tokenizer.encode(prompt_text(window.observation)), np.int64)
    index = first_difference(plan.tokens[0], other.tokens[0])
    assert index is not None
    graphs = planner.decoder.graphs
    return top_two_gap(graphs, prompt, planner.scaffold, other.tokens[0], index)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    console.print(f"{time.perf_counter() - started:.0f} s in all")
