"""All acceptance rules on the same frames, all from one run: `python -m benchmarks.rules`.

Acceptance length, target passes a frame and latency of every method and rule at T = 0, 0.5 and 1;
SpecTr against its bound; what verification and tree building cost the host; and whether a tree
whose size the cost curve chooses is ever slower than a chain or plain decoding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import (
    acceptance_length,
    console,
    interleaved,
    latency,
    options_of,
    planner_and_frames,
    spread,
    table,
    write_results,
)
from drives.windows import Window
from planners.plan import Plan
from planners.planner import Planner
from runtime.accept import TREE_RULES
from runtime.best_tree import best_nodes, best_tree
from runtime.frame import Frame
from runtime.marginals import Marginals
from runtime.propose import Block
from runtime.settings import RULES, DecodeSettings, Sampling
from runtime.shapes import drawn_nodes, sampled_tree
from runtime.verify_tree import Verdict, k_seq_rho

Floats = NDArray[np.float64]

TEMPERATURES = (0.0, 0.5, 1.0)
NODES, PATHS = 32, 4
COSTS = ((1, 0.0), (4, 0.5), (8, 0.5))  # rollouts and temperature


def main() -> None:
    options = options_of(__doc__)
    planner, frames = planner_and_frames(options)
    frames = spread(frames, options.sweep_frames)
    results: dict[str, Any] = {"drive": options.drive, "frames": len(frames)}
    results["rules"] = {str(t): rules(planner, frames, t) for t in TEMPERATURES}
    results["spectr"] = {str(k): spectr(planner, frames, k) for k in (1, 2, 4, 8)}
    show_spectr(results["spectr"])
    results["tree_ms"] = tree_building(planner)
    results["cost"] = {str(n): cost(planner, frames, n, t) for n, t in COSTS}
    write_results(options.out / "rules.json", results)


def rules(planner: Planner, frames: list[Window], temperature: float) -> dict[str, Any]:
    """Every method and rule at full width, one rollout: a chain of 15 drafts, a tree of NODES."""
    settings = {
        name: DecodeSettings(
            each.method,
            each.accept,
            block=None if each.method == "ddtree" else planner.bundle.manifest.draft.block,
            nodes=NODES,
            paths=PATHS,
            sampling=Sampling(temperature),
        )
        for name, each in (_sampled() if temperature else _greedy()).items()
    }
    with timed_verification() as host:
        plans = interleaved(planner, frames, settings, f"rules, T = {temperature:g}", warm_up=2)
    columns = ("decoder", "acc. length", "in trajectory", "accepted", "passes", "ms", "vs chain")
    shown = table(f"T = {temperature:g}, N = 1, {len(frames)} frames", *columns)
    out: dict[str, Any] = {}
    for name, done in plans.items():
        rounds, committed, _, _ = np.sum([p.stats.by_section["trajectory"] for p in done], axis=0)
        out[name] = {
            "acceptance_length": acceptance_length(done),
            "in_trajectory": float(committed / rounds),
            "acceptance_rate": _rate(done),
            "passes": float(np.mean([p.stats.target_passes for p in done])),
            "ms": latency(done) * 1e3,
            "vs_chain": acceptance_length(done) / acceptance_length(plans[_chain_of(name)]),
        }
        row = out[name]
        shown.add_row(
            name,
            f"{row['acceptance_length']:.2f}",
            f"{row['in_trajectory']:.2f}",
            f"{row['acceptance_rate']:.1%}",
            f"{row['passes']:.1f}",
            f"{row['ms']:.1f}",
            f"{row['vs_chain']:.2f}x",
        )
    console.print(shown)
    share = host.seconds / host.total
    console.print(f"verification outside of engine calls: {share:.1%} of the frames' time")
    return {"decoders": out, "verification_share": share}


def _greedy() -> dict[str, DecodeSettings]:
    return {"dflash": DecodeSettings("dflash"), "ddtree": DecodeSettings("ddtree")}


def _sampled() -> dict[str, DecodeSettings]:
    return {
        f"{method}:{rule}": DecodeSettings(method, rule)
        for method in ("dflash", "ddtree", "spectr")
        for rule in RULES[method]
    }


def _chain_of(name: str) -> str:
    """The chain that a decoder is compared with: of the same rule, or what it is on a chain."""
    _, _, rule = name.partition(":")
    if not rule:
        return "dflash"
    return "dflash:" + {
        "rrs-wor": "token",
        "traversal": "block",
        "k-seq": "token",
        "rrs": "token",
    }.get(rule, rule)


def _rate(plans: list[Plan]) -> float:
    return sum(p.stats.accepted for p in plans) / sum(p.stats.proposed for p in plans)


class Host:
    """s of verification outside of engine calls, and of whole frames."""

    seconds = 0.0
    total = 0.0


@contextmanager
def timed_verification() -> Iterator[Host]:
    """Time the accept and commit steps, less the head's passes."""
    host = Host()
    steps = {name: getattr(Frame, name) for name in ("_accept", "_commit", "finish")}

    def timed(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(frame: Any, *arguments: Any) -> Any:
            head, began = frame.stats.seconds["head"], time.perf_counter()
            result = step(frame, *arguments)
            host.seconds += time.perf_counter() - began - (frame.stats.seconds["head"] - head)
            return result

        return run

    def finish(frame: Any) -> Any:
        tokens = steps["finish"](frame)
        host.total += frame.stats.total
        return tokens

    for name in ("_accept", "_commit"):
        setattr(Frame, name, timed(steps[name]))
    Frame.finish = finish  # type: ignore[method-assign]
    try:
        yield host
    finally:
        for name, step in steps.items():
            setattr(Frame, name, step)


def spectr(planner: Planner, frames: list[Window], k: int) -> dict[str, float]:
    """Acceptance of the first value behind the anchor with k paths at T = 1.

    `measured` is a frequency; the others are means of what the two distributions say: `k_seq` by
    K-SEQ's rho, `single` of one draft, `most` an upper limit of any rule with k independent
    drafts, sum_x min(p, 1 - (1 - q)^k), and `bound` what K-SEQ guarantees of that
    (1 - (1 - 1/k)^k, arXiv 2310.15141).
    """
    whole, seen = TREE_RULES["k-seq"], []

    def recorded(block: Block, n: int, p: Floats, u: Floats) -> Verdict:
        verdict = whole(block, n, p, u)
        if block.drafted[n, 1]:
            q = block.q[n, 1]
            beta = np.minimum(q, p[0] / k_seq_rho(q, p[0], k)).sum()
            most = np.minimum(p[0], 1 - (1 - q) ** k).sum()
            single = np.minimum(p[0], q).sum()
            seen.append((verdict[0] > 0, 1 - (1 - min(beta, 1.0)) ** k, single, most))
        return verdict

    block = planner.bundle.manifest.draft.block
    settings = DecodeSettings("spectr", block=block, paths=k, sampling=Sampling(1.0))
    TREE_RULES["k-seq"] = recorded
    try:
        interleaved(planner, frames, {"spectr": settings}, f"SpecTr, k = {k}", warm_up=0)
    finally:
        TREE_RULES["k-seq"] = whole
    measured, k_seq, single, most = np.mean(np.asarray(seen, np.float64), axis=0)
    share = 1 - (1 - 1 / k) ** k
    return {
        "places": len(seen),
        "measured": measured,
        "k_seq": k_seq,
        "single": single,
        "most": most,
        "share": share,
        "bound": share * most,
    }


def show_spectr(figures: dict[str, dict[str, float]]) -> None:
    columns = ("k", "measured", "K-SEQ", "one draft", "no rule above", "1-(1-1/k)^k", "bound")
    shown = table("SpecTr: acceptance of the first value behind the anchor, T = 1", *columns)
    for k, row in figures.items():
        values = (row[key] for key in ("measured", "k_seq", "single", "most", "share", "bound"))
        shown.add_row(k, *(f"{value:.3f}" for value in values))
    console.print(shown)


def tree_building(planner: Planner, nodes: int = 64) -> dict[str, float]:
    """ms a rollout, from a drafter's logits to the block of a tree."""
    draft = planner.bundle.manifest.draft
    width, vocab = draft.block, planner.scaffold.vocab
    rng, hot, out = np.random.default_rng(0), Sampling(1.0), {}
    shown = table(f"building a tree of {nodes} nodes, ms a rollout", "N", "likeliest", "drawn")
    for n in (1, 4, 8):
        real = np.ones((n, width), np.bool_)
        drafted = real & (np.arange(width) > 0)
        known = Block(
            np.zeros((n, width), np.int64),
            np.tile(np.arange(width), (n, 1)),
            real,
            drafted,
            draft_width=width,
        )
        logits = rng.normal(size=(int(drafted.sum()), vocab)) * 3
        u = rng.random((n, nodes + 1))

        def likeliest(known: Block = known, logits: Any = logits) -> None:
            marginals = Marginals(known, logits)
            best_tree(marginals, *best_nodes(marginals, hot, nodes), nodes + 1)

        def drawn(known: Block = known, logits: Any = logits, u: Floats = u) -> None:
            marginals = Marginals(known, logits)
            chosen = drawn_nodes(marginals, hot, nodes)
            rows = 1 + min(nodes, chosen.most)
            sampled_tree(marginals, chosen, rows, hot, u[:, :rows])

        out |= {f"likeliest N={n}": _ms(likeliest) / n, f"drawn N={n}": _ms(drawn) / n}
        shown.add_row(str(n), f"{out[f'likeliest N={n}']:.3f}", f"{out[f'drawn N={n}']:.3f}")
    console.print(shown)
    return out


def _ms(run: Callable[[], None], repeats: int = 100) -> float:
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return float(np.median(taken)) * 1e3


def cost(planner: Planner, frames: list[Window], n: int, temperature: float) -> dict[str, Any]:
    """Trees of a size chosen by the cost curve, against the best of chains and plain decoding."""
    names = ["ar", "ar-scaffold", "dflash", "ddtree"]
    if temperature:
        names += ["dflash:coupled", "ddtree:traversal"]
    settings = {
        name: DecodeSettings(*name.split(":"), rollouts=n, sampling=Sampling(temperature))
        for name in names
    }
    plans = interleaved(planner, frames, settings, f"cost curve, N = {n}")
    taken = {name: latency(done) for name, done in plans.items()}
    rivals = [name for name in names if not name.startswith("ddtree")]
    best = min(rivals, key=lambda name: taken[name])
    title = f"the cost curve decides, T = {temperature:g}, N = {n}, {len(frames)} frames"
    shown = table(title, "decoder", "ms", "acc. length", f"vs {best}")
    for name, done in plans.items():
        ratio, length = taken[name] / taken[best], acceptance_length(done)
        shown.add_row(name, f"{taken[name] * 1e3:.1f}", f"{length:.2f}", f"{ratio:.2f}x")
    console.print(shown)
    return {name: {"ms": seconds * 1e3, "best": best} for name, seconds in taken.items()}


if __name__ == "__main__":
    main()
