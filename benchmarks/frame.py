"""The figures of a frame, all from one run: `python -m benchmarks.frame`.

Greedy decoders on the same frames, rollout sweep with the cost gate, cache memory, host share, and
trajectory error against kinematic baselines. Ratios are of means over the same frames, in rotated
order, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.common import (
    acceptance_length,
    console,
    host_share,
    interleaved,
    latency,
    options_of,
    planner_and_frames,
    spread,
    table,
    write_results,
)
from drives.baselines import BASELINES, baseline
from drives.bootstrap import BlockBootstrap
from drives.metrics import ade, distances
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from planners.prompt import prompt_text
from runtime.neartie import first_difference, top_two_gap
from runtime.settings import DecodeSettings, Sampling
from runtime.telemetry import FrameStats

NEAR_TIE = 1e-3
SAMPLED = Sampling(temperature=0.5)
GREEDY = {
    "ar": DecodeSettings(method="ar"),
    "ar-scaffold": DecodeSettings(method="ar-scaffold"),
    "dflash (gate)": DecodeSettings(),
    "dflash block 24": DecodeSettings(block=24),
    "dflash block 16": DecodeSettings(block=16),
    "dflash block 8": DecodeSettings(block=8),
}
SWEEP = (1, 4, 8, 16)


def main() -> None:
    options = options_of(__doc__)
    planner, frames = planner_and_frames(options)
    results: dict[str, Any] = {"drive": options.drive, "frames": len(frames)}
    results["greedy"] = greedy(planner, frames)
    results["instruments"] = instruments(planner, frames[:20])
    results["sweep"] = sweep(planner, spread(frames, options.sweep_frames))
    write_results(options.out / "frame.json", results)


def greedy(planner: Planner, frames: list[Window]) -> dict[str, Any]:
    """Identity, latency, acceptance, host share and error of the greedy decoders."""
    plans = interleaved(planner, frames, GREEDY, "greedy decoders")
    columns = ("decoder", "ms", "vs ar", "vs ar-scaffold", "passes", "acc. length", "host", "same")
    shown = table(f"greedy, N = 1, {len(frames)} frames", *columns)
    taken = {name: latency(done) for name, done in plans.items()}
    out: dict[str, Any] = {}
    for name, done in plans.items():
        differing = [i for i, plan in enumerate(done) if _differs(plan, plans["ar"][i])]
        gaps = {i: _gap(planner, frames[i], done[i], plans["ar"][i]) for i in differing}
        out[name] = {
            "ms": taken[name] * 1e3,
            "speedup_vs_ar": taken["ar"] / taken[name],
            "speedup_vs_ar_scaffold": taken["ar-scaffold"] / taken[name],
            "target_passes": float(np.mean([p.stats.target_passes for p in done])),
            "acceptance_length": acceptance_length(done),
            "host_share": host_share(done),
            "identical_to_ar": len(done) - len(differing),
            "near_ties": {frames[i].observation.frame: gap for i, gap in gaps.items()},
            "all_differences_are_near_ties": all(gap < NEAR_TIE for gap in gaps.values()),
        }
        row = out[name]
        shown.add_row(
            name,
            f"{row['ms']:.1f}",
            f"{row['speedup_vs_ar']:.2f}x",
            f"{row['speedup_vs_ar_scaffold']:.2f}x",
            f"{row['target_passes']:.1f}",
            f"{row['acceptance_length']:.2f}",
            f"{row['host_share']:.1%}",
            f"{row['identical_to_ar']}/{len(done)}",
        )
    console.print(shown)
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
        rounds * (6 * timer + counter) / latency(plans)
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
    title = f"ADE, m, {len(frames)} frames, 95 % block bootstrap"
    shown = table(title, "path", "ADE@3s", "ADE@5s")
    out: dict[str, Any] = {}
    for name, distance in errors.items():
        intervals = [bootstrap.mean(ade(distance, horizon)) for horizon in (3.0, 5.0)]
        cells = [f"{i.value:.2f} [{i.low:.2f}, {i.high:.2f}]" for i in intervals]
        shown.add_row(name, *cells)
        out[name] = {"ade_3s": vars(intervals[0]), "ade_5s": vars(intervals[1])}
    best = min(set(BASELINES) - {"still"}, key=lambda name: out[name]["ade_5s"]["value"])
    out["best_baseline"] = best
    out["ratio_to_best"] = out["greedy"]["ade_5s"]["value"] / out[best]["ade_5s"]["value"]
    paired = bootstrap.difference(ade(errors["greedy"], 5.0), ade(errors[best], 5.0))
    out["paired_difference_to_best"] = vars(paired)
    console.print(shown)
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
    plans = interleaved(planner, frames, settings, "rollout sweep")
    taken = {name: latency(done) for name, done in plans.items()}
    columns = ("N", "ar-scaffold ms", "dflash ms", "speedup", "vs N = 1", "acc. length", "cache MB")
    shown = table(f"rollouts at T = {SAMPLED.temperature}, {len(frames)} frames", *columns)
    out: dict[str, Any] = {}
    for n in SWEEP:
        plain, gated = f"ar-scaffold N={n}", f"dflash N={n}"
        out[str(n)] = {
            "ar_scaffold_ms": taken[plain] * 1e3,
            "dflash_ms": taken[gated] * 1e3,
            "speedup": taken[plain] / taken[gated],
            "cost_vs_one": taken[gated] / taken["dflash N=1"],
            "acceptance_length": acceptance_length(plans[gated]),
            "cache_mb": plans[gated][0].stats.cache_bytes / 1e6,
        }
        row = out[str(n)]
        shown.add_row(
            str(n),
            f"{row['ar_scaffold_ms']:.1f}",
            f"{row['dflash_ms']:.1f}",
            f"{row['speedup']:.2f}x",
            f"{row['cost_vs_one']:.2f}x",
            f"{row['acceptance_length']:.2f}",
            f"{row['cache_mb']:.2f}",
        )
        assert plans[gated][0].stats.cache_bytes <= _trunk_and_branches(planner, n)
    console.print(shown)
    return out


def _trunk_and_branches(planner: Planner, n: int) -> int:
    """Bytes of one trunk and n branches of the most rows, target and drafter."""
    manifest = planner.bundle.manifest
    row = sum(2 * 4 * each.layers * each.kv_heads * each.head_dim for each in manifest.networks)
    branches = n * manifest.limits.branch if n > 1 else 1  # without a fork, one masked row
    return row * (manifest.limits.trunk + branches)


def _differs(plan: Plan, other: Plan) -> bool:
    return not np.array_equal(plan.tokens, other.tokens)


def _gap(planner: Planner, window: Window, plan: Plan, other: Plan) -> float:
    prompt = np.asarray(planner.tokenizer.encode(prompt_text(window.observation)), np.int64)
    index = first_difference(plan.tokens[0], other.tokens[0])
    assert index is not None
    graphs = planner.decoder.graphs
    return top_two_gap(graphs, prompt, planner.scaffold, other.tokens[0], index)


if __name__ == "__main__":
    main()
