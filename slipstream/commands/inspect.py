"""`slipstream inspect`: what is in a bundle, from its own files alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import onnx
from onnx import TensorProto
from pydantic_core import to_json
from rich import box
from rich.table import Table

from planners.language import Language
from runtime.bundle import AttentionDims, Bundle, Manifest
from runtime.calibrated import Calibration
from runtime.errors import BundleError
from slipstream.commands.screen import Screen

_STORED = {
    TensorProto.FLOAT: "fp32",
    TensorProto.FLOAT16: "fp16",
    TensorProto.BFLOAT16: "bf16",
    TensorProto.INT8: "int8",
    TensorProto.UINT8: "int8",
    TensorProto.FLOAT8E4M3FN: "fp8",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "int4",
    TensorProto.FLOAT4E2M1: "fp4",
}
_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "fp8": 8, "int4": 4, "fp4": 4}
Facts = dict[str, Any]


def inspect_bundle(folder: Path, as_json: bool) -> None:
    """Print graphs, sizes, tokens, language, limits and provenance of a bundle.

    Raises:
        BundleError: no bundle, or one with a missing or altered file.
    """
    bundle = Bundle.open(folder)
    graphs = {name: _graph(bundle, name) for name in bundle.manifest.graphs}
    if as_json:
        found = {"manifest": bundle.manifest.model_dump(mode="json"), "graphs": graphs}
        print(to_json(found, indent=2).decode())
        return
    console = Screen(highlight=False)
    console.print(f"{bundle.manifest.name}: {bundle.folder}", style="bold", soft_wrap=True)
    console.print(_table(graphs))
    for name, graph in graphs.items():
        console.print(f"{name:<11} {_ends(graph['inputs'])}", soft_wrap=True)
        console.print(f"{'':<8} -> {_ends(graph['outputs'])}", soft_wrap=True)
    console.print()
    for heading, text in _facts(bundle):
        console.print(f"{heading:<11} {text}", soft_wrap=True)


def _graph(bundle: Bundle, name: Any) -> Facts:
    """One graph's files, operators, weights by stored type, inputs and outputs."""
    path = bundle.graph_path(name)
    model = _loaded(path)
    files = [path, *(bundle.folder / each for each in bundle.manifest.graphs[name].external)]
    weights: Counter[str] = Counter()
    packed = _packed(model)
    for weight in model.graph.initializer:
        kind = _STORED.get(weight.data_type)
        if kind:
            size = math.ceil(math.prod(weight.dims) * _BITS[kind] / 8)
            weights[packed.get(weight.name, kind)] += size
    return {
        "file": path.name,
        "precision": bundle.manifest.graphs[name].precision,
        "bytes": sum(each.stat().st_size for each in files),
        "external": len(files) > 1,
        "opset": max(entry.version for entry in model.opset_import),
        "nodes": len(model.graph.node),
        "weights": dict(weights.most_common()),
        "inputs": dict(_values(model.graph.input)),
        "outputs": dict(_values(model.graph.output)),
    }


def _packed(model: onnx.ModelProto) -> dict[str, str]:
    """Weights whose bytes hold numbers of another size, as ONNX Runtime's MatMulNBits has them."""
    return {
        node.input[1]: f"int{attribute.i}"
        for node in model.graph.node
        if node.op_type == "MatMulNBits"
        for attribute in node.attribute
        if attribute.name == "bits"
    }


def _loaded(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(path, load_external_data=False)
        found = "" if model.opset_import else "no operator set"
    except Exception as error:  # protobuf's own, which differ between its versions
        model, found = onnx.ModelProto(), str(error)[:200]
    if found:
        raise BundleError(
            f"{path} is no ONNX graph",
            expected="a graph that `slipstream export` wrote",
            found=found,
            fix="export the checkpoint again: slipstream export TARGET --draft DRAFTER -o BUNDLE",
        )
    return model


def _values(values: Any) -> Iterator[tuple[str, list[int | str]]]:
    for value in values:
        dims = value.type.tensor_type.shape.dim
        yield value.name, [dim.dim_param or dim.dim_value for dim in dims]


def _table(graphs: dict[Any, Facts]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("graph", "precision", "MB", "weights", "nodes", "opset"):
        justify: Literal["left", "right"] = "right" if heading in ("MB", "nodes") else "left"
        table.add_column(heading, justify=justify)
    for name, graph in graphs.items():
        size = f"{graph['bytes'] / 1e6:.1f}" + (" *" if graph["external"] else "")
        kinds = ", ".join(graph["weights"]) or "none"
        row = size, kinds, str(graph["nodes"]), str(graph["opset"])
        table.add_row(name, graph["precision"], *row)
    if any(graph["external"] for graph in graphs.values()):
        table.caption = "* weights in a file beside the graph"
    return table


def _ends(values: dict[str, list[int | str]]) -> str:
    """Names and shapes; a cache's tensors are counted."""
    caches = ("trunk.past_key_values", "branch.past_key_values", "present")
    lines, counted = [], Counter[tuple[str, str]]()
    for name, dims in values.items():
        shape = f"[{','.join(map(str, dims))}]"
        cache = next((each for each in caches if name.startswith(f"{each}.")), None)
        if cache is None:
            lines.append(f"{name} {shape}")
        else:
            counted[cache, shape] += 1
    return ", ".join([*lines, *(f"{n} x {name} {shape}" for (name, shape), n in counted.items())])


def _facts(bundle: Bundle) -> Iterator[tuple[str, str]]:
    manifest = bundle.manifest
    target = manifest.target
    yield "target", f"{_network(target)}, width {target.width}, vocabulary {target.vocab}"
    yield "taps", f"blocks {', '.join(map(str, target.taps))}"
    if target.mrope:
        deep = f", features of pictures after {target.deepstack} blocks" * bool(target.deepstack)
        yield "positions", f"time, height, width (M-RoPE){deep}"
    yield from _drafter(manifest)
    if manifest.vision:
        yield "vision", f"{manifest.vision.family}, {sum(manifest.vision.tokens)} tokens a plan"
        for camera, tokens in zip(manifest.vision.cameras, manifest.vision.tokens, strict=True):
            grid = " x ".join(map(str, camera.grid))
            size = f"{camera.width}x{camera.height}"
            yield (
                "camera",
                f"{camera.name} {size}, {camera.frames} frames: {grid} = {tokens} tokens",
            )
    top = "all logits" if manifest.head_top_k == target.vocab else f"top {manifest.head_top_k}"
    yield "head", top
    ends = f", stops {', '.join(map(str, manifest.stop_tokens))}" * bool(manifest.stop_tokens)
    yield (
        "tokens",
        f"eos {manifest.eos_token}, null {manifest.null_token}, mask {manifest.mask_token}{ends}",
    )
    yield "language", _language(bundle)
    limits = manifest.limits
    yield (
        "limits",
        f"trunk {limits.trunk} rows, branch {limits.branch} rows, {limits.rollouts} rollouts, "
        f"{limits.max_position} positions",
    )
    yield "cache", f"{_cache_bytes(manifest) / 1e6:.1f} MB in fp32 when full"
    yield "files", ", ".join(sorted(manifest.files))
    yield from _provenance(manifest)


def _network(dims: AttentionDims) -> str:
    heads = f"{dims.heads} heads of {dims.head_dim} over {dims.kv_heads} key/value heads"
    return f"{dims.layers} layers, {heads}"


def _drafter(manifest: Manifest) -> Iterator[tuple[str, str]]:
    draft = manifest.draft
    if draft is None:
        yield "drafter", "none"
        return
    masks = "fixed tokens" if draft.scaffold_in_block else "masks"
    head = "" if draft.head_top_k is None else ", a head of its own"
    gated = "gated " if draft.markov_gated else ""
    markov = f", a {gated}Markov head" if draft.markov else ""
    rows = ", rows of values alone" if draft.value_rows else ""
    blocks = f"blocks of {draft.block} with {masks}{rows}"
    yield "drafter", f"{draft.method}, {_network(draft)}, {blocks}{head}{markov}"


def _language(bundle: Bundle) -> str:
    name = bundle.manifest.language
    if name is None:
        return "none: text alone"
    language = Language.load(bundle.folder / name)
    sections = ", ".join(section.name for section in language.sections)
    return f"{language.name} ({sections}; rollouts part at {language.fork_section})"


def _cache_bytes(manifest: Manifest) -> int:
    limits = manifest.limits
    rows = limits.trunk + limits.rollouts * limits.branch
    return sum(2 * 4 * n.layers * n.kv_heads * n.head_dim * rows for n in manifest.networks)


def _provenance(manifest: Manifest) -> Iterator[tuple[str, str]]:
    known = manifest.provenance
    yield "made of", " and ".join(filter(None, (known.target, known.drafter)))
    for what, digest in known.weights.items():
        yield "", f"{what} weights {digest[:16]}"
    yield "made by", known.exported_by or "not recorded"
    if known.parity:
        worst = max(known.parity, key=lambda check: known.parity[check])
        checks = f"{len(known.parity)} checks, largest difference {known.parity[worst]:.0e}"
        yield "parity", f"{checks} ({worst})"
    yield from _calibration(known.calibration)
    yield "trained on", "; ".join(known.data) or "not recorded"
    yield "licences", "; ".join(known.licences) or "not recorded"


def _calibration(known: Calibration | None) -> Iterator[tuple[str, str]]:
    if known is None:
        return
    smooth = "" if known.smooth is None else f", smoothed with {known.smooth:g}"
    drives = f" on {known.windows} windows of {', '.join(known.drives)}" * bool(known.drives)
    yield "calibrated", f"{known.precision}{smooth}{drives}"
    for name, graph in known.graphs.items():
        total = graph.quantized + graph.kept
        yield "", f"{name}: {graph.way}, {graph.quantized} of {total} weight products"
    failed = f": {', '.join(known.failed)}" * bool(known.failed)
    says = {"passed": "passed", "forced": f"not passed, written all the same{failed}"}
    yield "gates", says.get(known.gates, "not asked")
    if known.figures:
        yield "", ", ".join(f"{name} {value:.4g}" for name, value in known.figures.items())
