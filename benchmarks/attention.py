"""Opset 23's Attention against the graphs' own attention over the two-part cache, on the CPU:
`python -m benchmarks.attention`.

Attention takes one key and one value tensor a rollout, so the trunk is repeated for each and joined
with the branch and the new rows; the graphs' own reads the trunk once and joins scores alone. Both
compute the same, which is checked first. One engine thread, timed by what it computed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.common import console, table, write_results
from calibration.fastest import PLAIN, measure
from export.decoder_config import DecoderConfig
from export.graphs.attention import Attention, KeyValue
from export.graphs.builder import GraphBuilder
from runtime.engines.onnx import OnnxEngine

# rollouts, new rows, trunk rows, branch rows: of the passes of a frame
PASSES = {
    "prefill": (1, 200, 32, 32),
    "verify": (1, 24, 224, 64),
    "single": (1, 1, 256, 64),
    "verify, 8 rollouts": (8, 24, 256, 64),
    "single, 8 rollouts": (8, 1, 256, 64),
}
SIZES = {"tiny": (4, 2, 64), "50M": (8, 4, 64)}  # heads, key/value heads, head size
SEGMENTS = {"trunk": ("P",), "branch": ("T", "N"), "new": ("S", "N")}
Feeds = dict[str, NDArray[Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()
    results: dict[str, Any] = {}
    made = table("Opset 23's Attention", "pass", "sizes", "own, ms", "Attention / own")
    with TemporaryDirectory(prefix="slipstream-attention-") as name:
        for size, numbers in SIZES.items():
            paths = written(config_of(*numbers), Path(name), size)
            for kind, shape in PASSES.items():
                feeds = feeds_of(config_of(*numbers), *shape)
                check_equal(paths, feeds)
                timing = measure(paths, {kind: [feeds]}, 1, options.repeats)[kind]
                results[f"{size}, {kind}"] = timing.ratios["Attention"]
                ratio = f"{timing.ratios['Attention']:.2f}"
                made.add_row(kind, size, f"{1e3 * timing.seconds:.3f}", ratio)
    console.print(made)
    write_results(options.out / "attention.json", results)


def config_of(heads: int, kv_heads: int, head_dim: int) -> DecoderConfig:
    return DecoderConfig(
        layers=1,
        width=heads * head_dim,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=64,
        vocab=64,
        eps=1e-6,
        theta=1e4,
        max_position=64,
    )


def written(config: DecoderConfig, folder: Path, size: str) -> dict[str, Path]:
    """Both graphs on disk: queries and the cache in, mixed values [S, N, H*D] out."""
    paths = {}
    for name, build in ((PLAIN, own_graph), ("Attention", fused_graph)):
        paths[name] = folder / f"{size}.{name}.onnx"
        onnx.save_model(build(config), paths[name])
    return paths


def own_graph(config: DecoderConfig) -> onnx.ModelProto:
    """As the graphs have it."""
    b, parts, (q, x, *biases) = declared(config)
    attention = Attention(
        b,
        config,
        x=x,
        trunk_bias=biases[0],
        branch_bias=biases[1],
        segments=[parts["trunk"].key, parts["branch"].key, x],
    )
    mixed = attention.mix(q, parts["trunk"], [parts["branch"], parts["new"]])
    b.op("Identity", mixed, out="mixed")
    return b.build()


def fused_graph(config: DecoderConfig) -> onnx.ModelProto:
    """One Attention node; its query heads lie as [Hkv, G, D]."""
    b, parts, (q, x, trunk_bias, branch_bias) = declared(config)
    g, kv, d = config.group, config.kv_heads, config.head_dim
    s, n = b.op("Shape", x, end=1), b.op("Shape", x, start=1, end=2)
    rows = b.op("Reshape", q, b.shape(s, n, [g, kv, d]))
    rows = b.op("Transpose", rows, perm=[1, 3, 2, 0, 4])  # [N, Hkv, G, S, D]
    rows = b.op("Reshape", rows, b.shape(n, [g * kv], s, [d]))
    joined = []
    for end in ("key", "value"):
        trunk = b.op("Unsqueeze", getattr(parts["trunk"], end), b.constant([1]))
        repeated = b.op("Expand", trunk, b.shape([1], n, [1, 1]))
        all_rows = [repeated, getattr(parts["branch"], end), getattr(parts["new"], end)]
        joined.append(b.op("Transpose", b.op("Concat", *all_rows, axis=0), perm=[1, 2, 0, 3]))
    bias = b.op("Expand", trunk_bias, b.shape(n, s, [1]))
    bias = b.op("Unsqueeze", b.op("Concat", bias, branch_bias, axis=-1), b.constant([1]))
    mixed = b.op("Attention", rows, *joined, bias, scale=1.0)
    mixed = b.op("Reshape", mixed, b.shape(n, [kv, g], s, [d]))
    mixed = b.op("Transpose", mixed, perm=[3, 0, 2, 1, 4])  # [S, N, G, Hkv, D]
    b.op("Reshape", mixed, b.constant([0, 0, g * kv * d]), out="mixed")
    return b.build()


def declared(config: DecoderConfig) -> tuple[GraphBuilder, dict[str, KeyValue], list[str]]:
    """A builder with the inputs and the output of both graphs."""
    b = GraphBuilder("attention")
    row = (config.kv_heads, config.head_dim)
    q = b.input("q", ["S*N", config.heads, 1, config.head_dim])
    x = b.input("x", ["S", "N", 1])
    biases = [b.input("trunk_bias", ["P"]), b.input("branch_bias", ["N", "S", "T+S"])]
    parts = {
        part: KeyValue(
            b.input(f"{part}.key", [*dims, *row]), b.input(f"{part}.value", [*dims, *row])
        )
        for part, dims in SEGMENTS.items()
    }
    b.output("mixed", ["S", "N", config.heads * config.head_dim])
    return b, parts, [q, x, *biases]


def feeds_of(config: DecoderConfig, n: int, s: int, p: int, t: int) -> Feeds:
    rng = np.random.default_rng(0)
    sizes = {"N": n, "S": s, "P": p, "T": t}
    row = (config.kv_heads, config.head_dim)
    bias = np.zeros((n, s, t + s), np.float32)
    bias[:, :, t:] = np.where(np.tri(s, dtype=np.bool_), 0.0, -30000.0)
    feeds = {
        "q": rng.standard_normal((s * n, config.heads, 1, config.head_dim)) / 8,
        "x": np.zeros((s, n, 1)),
        "trunk_bias": np.zeros(p),
        "branch_bias": bias,
    }
    for part, dims in SEGMENTS.items():
        for end in ("key", "value"):
            feeds[f"{part}.{end}"] = rng.standard_normal((*(sizes[dim] for dim in dims), *row))
    return {name: np.ascontiguousarray(array, np.float32) for name, array in feeds.items()}


def check_equal(paths: dict[str, Path], feeds: Feeds) -> None:
    """Insist that both compute the same."""
    own, fused = (np.array(OnnxEngine(path, 1).run(feeds, {})["mixed"]) for path in paths.values())
    np.testing.assert_allclose(fused, own, atol=2e-5)


if __name__ == "__main__":
    main()
