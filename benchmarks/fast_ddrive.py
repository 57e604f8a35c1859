"""The figures of a Fast-dDrive planner: `python -m benchmarks.fast_ddrive --bundle BUNDLE`.

Greedy decoders on the same frames; rollouts that share their prefix, at once and in batches; and
what keys and values take behind a prompt of 1,024 tokens. All are from one run. Ratios are medians
over frames of each frame's own ratio, in rotated order, so that what else the machine does falls on
all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import (
    acceptance_length,
    console,
    interleaved,
    options_of,
    planner_and_frames,
    spread,
    table,
    write_results,
)
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from runtime.settings import DecodeSettings, Sampling

SAMPLED = Sampling(temperature=0.5)
GREEDY = {
    "ar": DecodeSettings("ar"),
    "ar-scaffold": DecodeSettings("ar-scaffold"),
    "scaffold-spec": DecodeSettings("scaffold-spec"),
    "section-diffusion": DecodeSettings("section-diffusion"),
}
COUNTS = (1, 4, 16)
SHAPES = [*((f"N={n}", n, None) for n in COUNTS), ("N=16, 4 at a time", 16, 4)]
LONG_PROMPT = 1024


def main() -> None:
    options = options_of(__doc__)
    planner, frames = planner_and_frames(options)
    results: dict[str, Any] = {"drive": options.drive, "frames": len(frames)}
    results["threads"] = planner.threading.threads
    results["greedy"] = greedy(planner, frames)
    results["rollouts"] = rollouts(planner, spread(frames, options.sweep_frames))
    results["memory"] = memory(planner, frames[0])
    write_results(options.out / "fast_ddrive.json", results)


def greedy(planner: Planner, frames: list[Window]) -> dict[str, dict[str, float]]:
    """Every decoder beside `ar`."""
    plans = interleaved(planner, frames, GREEDY, "greedy")
    shown = table(
        f"Greedy, {len(frames)} frames",
        *("decoder", "ms", "of ar", "faster", "tokens a pass", "passes", "length", "= ar"),
    )
    found = {}
    for name, each in plans.items():
        same = [np.array_equal(a.tokens, b.tokens) for a, b in zip(each, plans["ar"], strict=True)]
        found[name] = row = {
            "ms": median_ms(each),
            "of_ar": ratio(each, plans["ar"]),
            "tokens_a_pass": each[0].tokens.shape[1] / passes(each),
            "passes": passes(each),
            "acceptance_length": acceptance_length(each) if each[0].stats.rounds else np.nan,
            "same": float(np.mean(same)),
        }
        shown.add_row(
            name,
            f"{row['ms']:.1f}",
            f"{row['of_ar']:.3f}",
            f"{1 / row['of_ar']:.2f}x",
            f"{row['tokens_a_pass']:.2f}",
            f"{row['passes']:.1f}",
            f"{row['acceptance_length']:.2f}",
            f"{row['same']:.0%}",
        )
    console.print(shown)
    return found


def rollouts(planner: Planner, frames: list[Window]) -> dict[str, dict[str, float]]:
    """N rollouts beside one, at once and a few at a time, and beside `ar-scaffold`."""
    settings = {"greedy": DecodeSettings("scaffold-spec")}
    several = DecodeSettings("scaffold-spec", "coupled", sampling=SAMPLED)
    for name, n, batch in SHAPES:
        settings[name] = replace(several, rollouts=n, batch=batch)
    for n in COUNTS:
        name = f"ar-scaffold N={n}"
        settings[name] = DecodeSettings("ar-scaffold", rollouts=n, sampling=SAMPLED)
    plans = interleaved(planner, frames, settings, "rollouts")
    shown = table(
        f"Rollouts at T = {SAMPLED.temperature:g}, {len(frames)} frames",
        *("rollouts", "ms", "of N=1", "of greedy", "passes", "cache MB", "of N=1"),
    )
    found = {}
    one = plans["N=1"]
    for name, each in plans.items():
        found[name] = row = {
            "ms": median_ms(each),
            "of_one": ratio(each, one),
            "of_greedy": ratio(each, plans["greedy"]),
            "passes": passes(each),
            "cache_mb": cache_mb(each),
            "cache_of_one": cache_mb(each) / cache_mb(one),
        }
        shown.add_row(
            name,
            f"{row['ms']:.1f}",
            f"{row['of_one']:.2f}x",
            f"{row['of_greedy']:.2f}x",
            f"{row['passes']:.1f}",
            f"{row['cache_mb']:.1f}",
            f"{row['cache_of_one']:.2f}x",
        )
    console.print(shown)
    return found


def memory(planner: Planner, window: Window) -> dict[str, float]:
    """MB of keys and values behind a prompt of 1,024 tokens: the frame's own, over and over."""
    prompt = planner.prompt(window.observation).tokens
    prompt = np.resize(prompt, LONG_PROMPT)
    shown = table(f"Keys and values, prompt of {LONG_PROMPT:,}", "rollouts", "MB", "of N=1")
    found: dict[str, float] = {}
    for name, n, batch in SHAPES:
        settings = DecodeSettings(
            "scaffold-spec", "coupled", rollouts=n, batch=batch, sampling=SAMPLED
        )
        fork = planner.language.fork_section
        stats = planner.decoder.decode(prompt, planner.scaffold, settings, fork).stats
        found[name] = stats.cache_bytes / 1e6
        shown.add_row(name, f"{found[name]:.2f}", f"{found[name] / found['N=1']:.2f}x")
    console.print(shown)
    return found


def median_ms(plans: list[Plan]) -> float:
    return float(np.median([plan.latency for plan in plans])) * 1e3


def ratio(plans: list[Plan], others: list[Plan]) -> float:
    """Median over frames of a frame's latency in terms of another's."""
    pairs = zip(plans, others, strict=True)
    return float(np.median([plan.latency / other.latency for plan, other in pairs]))


def passes(plans: list[Plan]) -> float:
    """Forwards of the target a frame, those that draft included."""
    return float(np.mean([p.stats.target_passes + p.stats.draft_passes for p in plans]))


def cache_mb(plans: list[Plan]) -> float:
    return max(plan.stats.cache_bytes for plan in plans) / 1e6


if __name__ == "__main__":
    main()
