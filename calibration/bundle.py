"""A bundle with some of its graphs replaced by quantized ones; everything else is copied."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import onnx

from calibration.stored import read_graph
from export.graphs.precision import is_cache
from export.graphs.quantized import quantization_of
from export.graphs.storage import beside
from runtime.bundle import MANIFEST, Bundle, GraphFile, GraphName, Manifest
from runtime.calibrated import Calibration, StoredPrecision
from runtime.errors import BundleError, SlipstreamError
from runtime.files import contents, new_folder, real_path, sha256, unwritable, write_atomic


def write_bundle(
    source: Bundle,
    out: Path,
    graphs: Mapping[GraphName, Path],
    precisions: Mapping[GraphName, StoredPrecision],
    record: Calibration | None = None,
) -> Manifest:
    """Write a new bundle; the old one stays as it is.

    Args:
        source: the bundle that was quantized.
        out: the new one's folder, replaced as a whole or left alone when anything fails.
        graphs: files that take a graph's place, weights beside them (`NAME.onnx.data`) included.
        precisions: of each of them.
        record: goes into the manifest's provenance, and its precision into the bundle's name.

    Raises:
        SlipstreamError: `out` is the source, or a folder that is no bundle; a graph that the source
            does not have, or with other inputs or outputs than its own; no room.
    """
    check_out(source, out)
    manifest = source.manifest
    for name, path in graphs.items():
        _check_contract(source, name, path)
    with new_folder(out, last=MANIFEST) as folder:
        try:
            made = {name: _copy(path, name, folder) for name, path in graphs.items()}
            for name, graph in manifest.graphs.items():
                if name not in graphs:
                    files = {graph.file: graph.sha256, **graph.external}
                    _copy_all(source.folder, files, folder)
            _copy_all(source.folder, manifest.files, folder)
        except OSError as error:
            raise unwritable(out, error) from error
        now = dict(manifest.graphs)
        for name, file in made.items():
            now[name] = file.model_copy(update={"precision": precisions[name]})
        changes = {
            "name": f"{manifest.name}-{record.precision}" if record else manifest.name,
            "graphs": now,
            "provenance": manifest.provenance.model_copy(update={"calibration": record}),
        }
        written = Manifest.model_validate({**dict(manifest), **changes})
        write_atomic(folder / MANIFEST, written.model_dump_json(indent=2) + "\n")
    return written


def check_out(source: Bundle, out: Path) -> None:
    """Insist, before the work, that a new bundle may stand at `out`.

    Raises:
        SlipstreamError: it is the source, or holds something else than a bundle.
    """
    if real_path(out) == real_path(source.folder):
        raise SlipstreamError(
            f"{out} is the bundle that is to be quantized",
            expected="another folder: fp32 is what the result is measured against",
            found="the same folder",
            fix="name another folder with -o",
        )
    if out.exists() and not (out / MANIFEST).is_file() and not _is_empty(out):
        raise SlipstreamError(
            f"{out} is not replaced by a bundle",
            expected="a new folder, an empty one, or an earlier bundle",
            found="a folder with other files" if out.is_dir() else "a file",
            fix="name another folder with -o",
        )


def check_plain(bundle: Bundle) -> None:
    """Insist on a bundle that can be quantized, whatever its manifest says.

    Raises:
        SlipstreamError: one of its graphs is damaged, or in a reduced precision already.
    """
    for name, graph in bundle.manifest.graphs.items():
        found = f"the graph {name} in {graph.precision}" if graph.precision != "fp32" else ""
        if not found and (node := quantization_of(read_graph(bundle.graph_path(name)))):
            found = f"{node} nodes in the graph {name}"
        if found:
            raise SlipstreamError(
                f"{bundle.folder} is quantized already",
                expected="a bundle in fp32, as `slipstream export` writes it",
                found=found,
                fix="name the bundle that it was made of",
            )


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not contents(folder)


def _copy(path: Path, name: GraphName, folder: Path) -> GraphFile:
    """A graph under its usual name; a graph refers to its weights by their file's name."""
    file = f"{name}.onnx"
    if not beside(path).is_file():
        shutil.copyfile(path, folder / file)
        return GraphFile(file=file, sha256=sha256(folder / file))
    model = onnx.load(path, load_external_data=False)
    data = beside(folder / file)
    shutil.copyfile(beside(path), data)
    for weight in model.graph.initializer:
        for entry in weight.external_data:
            if entry.key == "location":
                entry.value = data.name
    onnx.save_model(model, folder / file)
    return GraphFile(file=file, sha256=sha256(folder / file), external={data.name: sha256(data)})


def _copy_all(source: Path, files: Mapping[str, str], folder: Path) -> None:
    """Files that are still what the source's manifest says of them.

    Args:
        files: name -> SHA-256.
    """
    for name, wanted in files.items():
        try:
            shutil.copyfile(source / name, folder / name)
        except FileNotFoundError as error:
            raise _changed(source / name, wanted, "none") from error
        if (found := sha256(folder / name)) != wanted:
            raise _changed(source / name, wanted, found)


def _changed(path: Path, wanted: str, found: str) -> BundleError:
    return BundleError(
        f"{path} changed while the bundle was quantized",
        expected=f"SHA-256 {wanted}",
        found=found,
        fix="run the command again once nothing writes to the bundle",
    )


def _check_contract(source: Bundle, name: GraphName, path: Path) -> None:
    if name not in source.manifest.graphs:
        raise SlipstreamError(
            f"{source.folder} has no graph {name}",
            expected=f"one of {', '.join(source.manifest.graphs)}",
            found=name,
            fix=f"slipstream inspect {source.folder}",
        )
    wanted, found = _contract(source.graph_path(name)), _contract(path)
    for kind in wanted:
        if wanted[kind] != found[kind]:
            differing = sorted({*map(str, wanted[kind])} ^ {*map(str, found[kind])})
            raise SlipstreamError(
                f"{path} can't stand for the graph {name}: its {kind} differ",
                expected=f"those of {source.graph_path(name)}, in their order",
                found="; ".join(differing) or "another order",
                fix="quantize the bundle's own graph",
            )


def _contract(path: Path) -> dict[str, list[tuple[str, int, list[int | str]]]]:
    """Names, types and shapes; a cache's type may be another one: it never leaves the device."""
    graph = read_graph(path).graph
    return {
        kind: [
            (
                value.name,
                0 if is_cache(value.name) else value.type.tensor_type.elem_type,
                [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
            )
            for value in values
        ]
        for kind, values in (("inputs", graph.input), ("outputs", graph.output))
    }
