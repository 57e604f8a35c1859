"""The roofline against published rates, against the bundle's real bytes, and its command."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from runtime.bundle import Bundle
from runtime.cache import TwoPartCache
from runtime.engines.profiles import Profile, text_of
from runtime.engines.store import EngineKey, EngineStore, Sidecar, graph_digest
from runtime.errors import SlipstreamError
from slipstream import shipped_bundle
from slipstream.commands.estimate import _store
from slipstream.estimate.acceptance import Acceptance, Acceptances, given
from slipstream.estimate.activations import of_engines
from slipstream.estimate.bundle_shape import shape_of
from slipstream.estimate.devices import DEVICES, PRECISIONS, device_named
from slipstream.estimate.frame import Work, break_even, estimate_frame, most_rollouts
from slipstream.estimate.named import MODELS
from slipstream.estimate.published import ROWS, WITHIN, Row, slowdown_of_batches
from slipstream.estimate.roofline import Factors, Pass, Roofline
from tests.slipstream.command import ROOT, command, started

BUNDLE = str(shipped_bundle())
ORIN_NX = DEVICES["orin-nx"]


def named(row: Row) -> str:
    return f"{row.device}-{row.model}-{row.precision}-{row.sequences}x{row.block}"


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.open(shipped_bundle())


@pytest.fixture(scope="module")
def tiny(bundle: Bundle) -> Roofline:
    return Roofline(shape_of(bundle), ORIN_NX, "fp16", None)


@pytest.mark.parametrize("row", [row for row in ROWS if row.why_not is None], ids=named)
def test_published_rates_are_reproduced(row: Row) -> None:
    assert row.estimate() == pytest.approx(row.rate, rel=WITHIN)


@pytest.mark.parametrize("row", [row for row in ROWS if row.why_not is not None], ids=named)
def test_rates_said_not_to_be_reproduced_are_not(row: Row) -> None:
    assert row.estimate() > (1 + WITHIN) * row.rate


@pytest.mark.parametrize("row", [row for row in ROWS if row.why_not is None], ids=named)
def test_the_documented_table_is_what_the_code_says(row: Row) -> None:
    decoding = "plain" if row.block == 1 else f"DFlash, {row.committed:g} tokens a round"
    text = (ROOT / "docs" / "jetson.md").read_text(encoding="utf-8")
    assert f"| {decoding} | {row.rate:.1f} | {row.estimate():.1f} |" in text


def test_the_agreement_is_of_the_model_and_not_of_the_factors() -> None:
    """Without any factor the same rows come out too fast, and by less than a half."""
    peak = Factors(bandwidth=1.0, compute=1.0, block=0.0)
    ratios = [row.estimate(peak) / row.rate for row in ROWS if row.why_not is None]
    assert min(ratios) > 1.0
    assert max(ratios) < 1.6
    assert 1.3 < slowdown_of_batches()[0] < slowdown_of_batches()[1] < 2.0


@pytest.mark.parametrize(
    ("name", "billions", "tables"),
    [
        ("qwen3-1.7b", 1.7, 1),
        ("qwen3-4b", 4.0, 1),
        ("qwen3-8b", 8.2, 2),
        ("qwen3.5-0.8b", 0.75, 1),
        ("qwen3.5-4b", 4.2, 1),
        ("qwen3.5-27b", 26.9, 2),
        ("llama-3.1-8b", 8.0, 2),
    ],
)
def test_named_shapes_have_the_parameters_of_their_names(
    name: str, billions: float, tables: int
) -> None:
    model = MODELS[name]
    parameters = model.target.weights + tables * model.table  # one where they are tied
    assert parameters / 1e9 == pytest.approx(billions, rel=0.02)
    stored = Roofline(model, ORIN_NX, "fp16", None).weights()
    drafter = 0 if model.draft is None else model.draft.weights
    assert stored == 2 * (model.target.weights + drafter + 2 * model.table)


@pytest.mark.parametrize("graph", ["target", "draft"])
def test_matrices_of_a_bundle_are_those_in_its_graphs(bundle: Bundle, graph: str) -> None:
    shape = shape_of(bundle)
    network = shape.target if graph == "target" else shape.draft
    assert network is not None
    model = onnx.load(bundle.folder / f"{graph}.onnx")
    arrays = [(t.name, numpy_helper.to_array(t)) for t in model.graph.initializer]
    matrices = [a for name, a in arrays if a.ndim == 2 and not name.startswith("rope")]
    assert network.weights == sum(matrix.size for matrix in matrices)
    assert network.widest == max(max(matrix.shape) for matrix in matrices)
    contexts = [a for name, a in arrays if a.ndim == 2 and ("fc" in name or "context" in name)]
    assert network.context_weights == sum(matrix.size for matrix in contexts)


def test_memory_is_the_runtimes_own(bundle: Bundle, tiny: Roofline) -> None:
    manifest, limits = bundle.manifest, bundle.manifest.limits
    assert manifest.draft is not None
    for n in (1, limits.rollouts):
        caches = [
            TwoPartCache(dims, limits.trunk, limits.branch)
            for dims in (manifest.target, manifest.draft)
        ]
        for cache in caches:
            cache.fork(n)
        full = Roofline(tiny.model, ORIN_NX, "fp32", None)
        assert full.cache(n) == sum(cache.nbytes for cache in caches)
        assert tiny.cache(n) == full.cache(n) / 2
    stored = tiny.model.stored
    assert stored is not None
    assert tiny.weights() == pytest.approx(stored, rel=0.1)  # bf16 files, and rope tables


def test_time_follows_the_formula_by_hand() -> None:
    """One plain token of Qwen3-1.7B in fp16 on Orin NX is bound by its bytes."""
    model = MODELS["qwen3-1.7b"]
    roofline = Roofline(model, ORIN_NX, "fp16", Factors(0.8, 0.5, 1e-4))
    row = 2 * 28 * 8 * 128
    read = 2 * (28 * (2 * 2048 * 2048 + 2 * 2048 * 1024 + 3 * 2048 * 6144) + 101 * row)
    expected = read / (0.8 * 102.4e9) + 28 * 1e-4
    assert roofline.network(model.target, Pass(1, 1, 100, 0)) == pytest.approx(expected)
    many = Pass(1, 4096, 0, 0)
    operations = 2 * 4096 * model.target.row_weights + 4 * 4096 * 4096 * 28 * 16 * 128
    expected = operations / (0.5 * 15e12) + 28 * 1e-4
    assert roofline.network(model.target, many) == pytest.approx(expected)


def test_the_trunk_is_read_once_for_all_rollouts() -> None:
    model = MODELS["qwen3-8b"]
    roofline = Roofline(model, ORIN_NX, "fp16", None)

    def seconds(n: int, trunk: int, branch: int) -> float:
        return roofline.network(model.target, Pass(n, 1, trunk, branch))

    shared, copied = seconds(8, 4096, 0), seconds(8, 0, 4096)
    kept = 7 * 4096 * 2 * 36 * 8 * 128 * 2
    assert copied - shared == pytest.approx(kept / (0.9 * 102.4e9))


def test_activations_are_about_what_tensorrts_builder_says(bundle: Bundle) -> None:
    """MB of the target's profiles in fp16 and fp32, as TensorRT-RTX 1.7 built them for sm86."""
    for precision, built in (("fp16", 37.8), ("fp32", 45.1)):
        roofline = Roofline(shape_of(bundle), ORIN_NX, precision, None)
        logits = roofline.model.block * roofline.model.vocab * 4
        assert (roofline.workspace(1, 100) - logits) / 1e6 == pytest.approx(built, rel=0.1)
        assert roofline.workspace(2, 100) - roofline.workspace(1, 100) == logits


def test_a_builders_word_goes_before_the_formula(bundle: Bundle, tmp_path: Path) -> None:
    store = EngineStore(tmp_path / "engines")
    for number, (name, graph) in enumerate(bundle.manifest.graphs.items()):
        assert of_engines(bundle, "fp16", ORIN_NX, store) is None  # one is missing yet
        for capability, size in (("8.6", 7_000_000), ("8.7", 90_000_000)):
            put_engine(store, name, graph_digest(graph), capability, size + number)
    most = len(bundle.manifest.graphs) - 1
    found = of_engines(bundle, "fp16", ORIN_NX, store)
    assert found is not None
    assert found.bytes == 90_000_000 + most
    assert "sm87" in found.source
    assert "more or less" not in found.source
    elsewhere = of_engines(bundle, "fp16", DEVICES["thor"], store)
    assert elsewhere is not None
    assert "those for sm110 may need more or less" in elsewhere.source
    assert of_engines(bundle, "fp32", ORIN_NX, store) is None
    assert of_engines(bundle, "int4", ORIN_NX, store) is None
    done = command(
        *("estimate", BUNDLE, "--device", "orin-nx", "--engines", "engines", "--json"),
        cwd=tmp_path,
    )
    told = json.loads(done.stdout)
    assert told["facts"]["activations"].startswith(
        "90.0 MB, by the builder of the engines for sm87"
    )
    assert all(frame["bytes"]["workspace"] > 90e6 for frame in told["frames"])


def put_engine(store: EngineStore, name: str, digest: str, capability: str, size: int) -> None:
    """A file that stands for an engine whose builder reported so many bytes of activations."""
    raw = b"an engine"
    profiles = [Profile(name="decode", dims={"N": (1, 1, 1)})]
    fields = {
        "graph": name,
        "graph_sha256": digest,
        "profile": text_of(profiles),
        "precision": "fp16",
        "flavour": "tensorrt",
        "version": "10.3.0.30",
        "compute_capability": capability,
    }
    sidecar = Sidecar(
        **fields,  # type: ignore[arg-type]
        flags=[],
        timing_cache_sha256=None,
        size=len(raw),
        sha256=hashlib.sha256(raw).hexdigest(),
        built_at="2026-01-01T00:00:00Z",
        builder_seconds=1.0,
        peak_host_bytes=1,
        device_bytes=[1, size],
        tensors=[],
        profiles=profiles,
        layers=1,
        python="3.11",
        system="Linux",
        bundle="tiny",
    )
    store.put(EngineKey(**fields), raw, sidecar)  # type: ignore[arg-type]


def test_acceptance_is_taken_from_the_nearest_number_of_rollouts() -> None:
    known = {n: Acceptance(float(n), 16, f"at {n}") for n in (2, 8)}
    several = Acceptances(known, measured=True)
    assert [several.of(n).length for n in (1, 2, 3, 4, 8, 16)] == [2, 2, 2, 8, 8, 8]
    text = several.text([1, 2, 4, 8])
    assert text == (
        "N = 1, 2: block 16, acceptance length 2.00 (at 2, taken for N = 1 too); "
        "N = 4, 8: block 16, acceptance length 8.00 (at 8, taken for N = 4 too)"
    )
    assert given(3.0, 8).text([1, 2]) == "block 8, acceptance length 3.00 (given)"


def test_more_rollouts_never_take_less(tiny: Roofline) -> None:
    work = Work(100, 80, 90, 4.0, 16)
    frames = [estimate_frame(tiny, work, n) for n in (1, 2, 4, 8, 16)]
    assert np.all(np.diff([frame.seconds for frame in frames]) >= 0)
    assert np.all(np.diff([frame.memory for frame in frames]) > 0)


def test_rollouts_within_a_deadline_are_the_most_that_fit(tiny: Roofline) -> None:
    work = Work(100, 80, 90, 4.0, 16)
    deadline = estimate_frame(tiny, work, 8).seconds * 1.001
    found = most_rollouts(tiny, lambda n: work, deadline)
    assert found >= 8
    assert estimate_frame(tiny, work, found).seconds <= deadline
    if found < tiny.model.most_rollouts:
        assert estimate_frame(tiny, work, found + 1).seconds > deadline
    assert most_rollouts(tiny, lambda n: work, 1e-6) == 0


def test_a_model_that_does_not_fit_the_memory_fits_no_deadline() -> None:
    roofline = Roofline(MODELS["qwen3.5-27b"], DEVICES["orin-nano-8gb"], "fp16", None)
    assert most_rollouts(roofline, lambda n: Work(100, 10, 10), 1e6) == 0


def test_break_even_is_where_both_take_the_same(tiny: Roofline) -> None:
    plain = Work(100, 80, 90)
    drafting = replace(plain, block=16)
    least = break_even(tiny, drafting, 4)
    assert least is not None
    drafted = estimate_frame(tiny, replace(drafting, acceptance_length=least), 4)
    assert drafted.seconds == pytest.approx(estimate_frame(tiny, plain, 4).seconds, rel=1e-6)


@pytest.mark.parametrize("device", sorted(DEVICES))
def test_every_precision_works_or_is_refused(device: str) -> None:
    for precision in PRECISIONS:
        if precision in ("fp8", "nvfp4") and device != "thor":
            with pytest.raises(SlipstreamError, match=f"has no {precision} arithmetic"):
                device_named(device).operations(precision)
        else:
            assert device_named(device).operations(precision) > 1e12


def test_the_command_labels_itself_and_states_its_formula(tmp_path: Path) -> None:
    done = command("estimate", BUNDLE, "--device", "orin-nx", "--deadline-ms", "500", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for words in ("ESTIMATE", "nothing was measured", "max(bytes / (e_b x bandwidth)", "e_b 0.9"):
        assert words in done.stdout
    limit = Bundle.open(shipped_bundle()).manifest.limits.rollouts
    assert f"rollouts within 500 ms  {limit} (limit of the model: {limit})" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_has_stages_that_add_up(tmp_path: Path) -> None:
    done = command(
        *("estimate", BUNDLE, "--device", "thor", "--precision", "fp8", "--rollouts", "8"),
        *("--acceptance-length", "6", "--json"),
        cwd=tmp_path,
    )
    found = json.loads(done.stdout)
    (frame,) = found["frames"]
    stages = frame["ms"]
    parts = sum(stages[name] for name in ("prefill", "draft", "verify", "head"))
    assert stages["frame"] == pytest.approx(parts)
    assert found["estimate"] is True
    assert "given" in found["facts"]["decoding"]


def test_acceptance_is_read_from_a_report(tmp_path: Path) -> None:
    run = command(
        *("run", BUNDLE, "--drive", "synthetic", "--decoder", "ar,dflash", "--block", "8"),
        *("--frames", "2", "--threads", "1", "-o", "run"),
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    measured = report["decoders"][1]["acceptance_length"]
    arguments = ("estimate", BUNDLE, "--device", "agx-orin", "--json", "--report")
    done = command(*arguments, "run/report.json", cwd=tmp_path)
    decoding = json.loads(done.stdout)["facts"]["decoding"]
    assert decoding.startswith(f"block 8, acceptance length {measured:.2f} (measured: dflash")
    assert "ANOTHER BUNDLE" not in decoding
    # several reports, each for its number of rollouts; what is borrowed is marked
    sampled = report["decoders"][1]
    sampled["settings"]["rollouts"], sampled["acceptance_length"] = 4, 2.0
    (tmp_path / "run" / "sampled.json").write_text(json.dumps(report))
    both = ("--report", "run/report.json", "--report", "run/sampled.json")
    done = command("estimate", BUNDLE, "--device", "agx-orin", *both, cwd=tmp_path)
    taken = re.findall(r"^ *(\d+) .* ([\d.]+\??) *$", done.stdout, re.MULTILINE)
    alone = f"{measured:.2f}"
    assert taken == [("1", alone), ("2", "2.00?"), ("4", "2.00"), ("8", "2.00?"), ("16", "2.00?")]
    assert "--report of a run with --rollouts 16" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((BUNDLE, "--device", "xavier"), "--device xavier is not known"),
        ((BUNDLE, "--device", "thor", "--precision", "fp2"), "--precision fp2 is not known"),
        ((BUNDLE, "--device", "orin-nx", "--precision", "nvfp4"), "has no nvfp4 arithmetic"),
        (("nowhere", "--device", "thor"), "neither a bundle nor a known model"),
        (("qwen3-4b", "--device", "thor"), "no known length"),
        ((BUNDLE, "--device", "thor", "--rollouts", "0"), "--rollouts is out of range"),
        ((BUNDLE, "--device", "thor", "--rollouts", "5000"), "--rollouts is out of range"),
        ((BUNDLE, "--device", "thor", "--deadline-ms", "nan"), "--deadline-ms is out of range"),
        ((BUNDLE, "--device", "thor", "--acceptance-length", "0.5"), "--acceptance-length"),
        ((BUNDLE, "--device", "thor", "--acceptance-length", "99"), "--acceptance-length"),
        ((BUNDLE, "--device", "thor", "--report", "nowhere.json"), "nowhere.json is no report"),
        (
            (*(BUNDLE, "--device", "thor"), *("--acceptance-length", "5", "--report", "r.json")),
            "contradict each other",
        ),
        (
            (
                *("qwen3-1.7b", "--device", "thor", "--acceptance-length", "2"),
                *("--prompt", "9", "--prefix", "9", "--tail", "9"),
            ),
            "has no drafter",
        ),
    ],
)
def test_bad_input_is_one_message(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    done = command("estimate", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "to mend it:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("model", ["fast-ddrive", BUNDLE])
def test_every_figure_stands_in_80_columns(model: str, tmp_path: Path) -> None:
    asked = ("--batch", "4", "--deadline-ms", "4000")
    arguments = "estimate", model, "--device", "orin-nano-8gb", *asked
    out, err = started(*arguments, cwd=tmp_path, columns=80).communicate(timeout=60)
    assert err == ""
    assert "at most 4 rollouts at once" in " ".join(out.split())
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_user_without_a_home_has_estimates_without_engines(homeless: None) -> None:
    assert _store(None) is None
