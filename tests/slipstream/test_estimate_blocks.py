"""The roofline of targets that draft for themselves, in the blocks of the output's schema."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from planners.language import Language
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import Bundle
from runtime.fits import SLACK
from runtime.schema import schema_blocks
from slipstream import shipped_bundle
from slipstream.estimate import fast_ddrive
from slipstream.estimate.bundle_shape import shape_of
from slipstream.estimate.devices import DEVICES, Device
from slipstream.estimate.frame import Work, break_even, estimate_frame
from slipstream.estimate.named import MODELS
from slipstream.estimate.roofline import Pass, Roofline
from slipstream.estimate.schema import Blocks, blocks_of_sections, even_blocks
from slipstream.estimate.work import BundleWork
from tests.camera_planner import make_camera_planner
from tests.slipstream.command import command
from tests.slipstream.self_drafting import self_drafting_bundle

BUNDLE = str(shipped_bundle())
FAST = MODELS["fast-ddrive"]
PREFIX, TAIL, BLOCKS = fast_ddrive.output()
WORK = Work(1024, PREFIX, TAIL, fast_ddrive.LENGTH, fast_ddrive.BLOCK, BLOCKS)
# what the paper's figures were measured on; SXM data sheet, dense
H100 = Device(
    name="h100",
    title="H100",
    memory=80e9,
    bandwidth=3.35e12,
    fp32=67e12,
    fp16=989e12,
    int8=1979e12,
    fp8=1979e12,
    nvfp4=None,
    compute_capability="9.0",
    source="NVIDIA H100 SXM data sheet",
)


def on(device: str) -> Roofline:
    return Roofline(FAST, DEVICES[device], "fp16", None)


def test_the_published_planner_has_its_published_sizes() -> None:
    assert (FAST.target.weights + FAST.table) / 1e9 == pytest.approx(3.09, rel=0.01)
    assert FAST.vision is not None
    assert FAST.vision.weights / 1e9 == pytest.approx(0.67, rel=0.01)
    assert sum(s.values for s in fast_ddrive.SECTIONS) == 280
    assert sum(s.fixed for s in fast_ddrive.SECTIONS) == 124
    assert PREFIX + TAIL == sum(BLOCKS.prefix) + sum(BLOCKS.tail) == 404
    # 1 + 6 + 1 before the fork, then its fixed tokens; 3 behind
    assert (len(BLOCKS.prefix), len(BLOCKS.tail)) == (9, 3)


def test_batches_take_the_memory_of_one_and_the_time_of_all() -> None:
    roofline = on("agx-orin")
    four, eight = (estimate_frame(roofline, WORK, n) for n in (4, 8))
    batched = estimate_frame(roofline, replace(WORK, batch=4), 8)
    assert batched.memory == four.memory < eight.memory
    one_batch = four.rounds - sum(rounds for rounds, _ in WORK.rounds(behind=False))
    assert batched.rounds == pytest.approx(four.rounds + one_batch)
    assert batched.seconds > eight.seconds > four.seconds
    # as even as the runtime's: 6 in batches of at most 4 are 3 and 3
    assert estimate_frame(roofline, replace(WORK, batch=4), 6).cache == roofline.cache(
        3, TAIL + SLACK
    )
    assert estimate_frame(roofline, replace(WORK, batch=4), 4) == four


def test_blocks_of_a_bundle_are_those_that_the_runtime_drafts() -> None:
    bundle = Bundle.open(BUNDLE)
    manifest = bundle.manifest
    assert manifest.language is not None
    special = SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token)
    tokenizer = Tokenizer.load(
        bundle.folder / manifest.tokenizer, special, vocab=manifest.target.vocab
    )
    language = Language.load(bundle.folder / manifest.language)
    scaffold, own = language.compile(tokenizer), BundleWork(bundle)
    for size in (4, 24, 500):
        blocks = own.blocks(size, None)
        assert (sum(blocks.prefix), sum(blocks.tail)) == (own.tokens.prefix, own.tokens.tail)
        numbers = schema_blocks(scaffold, size)
        assert len(blocks.tail) == len(set(numbers[own.tokens.prefix :].tolist()))
        assert blocks.longest <= int(np.bincount(numbers).max())
    assert own.blocks(500, 24).widest == 24


def test_sections_are_cut_into_blocks_of_values() -> None:
    sections = fast_ddrive.SECTIONS
    wide = blocks_of_sections(sections, fast_ddrive.HEADER, 500)
    assert wide.prefix == (72, 197, 43, 5)
    assert wide.tail == (92 - 5,)
    narrow = blocks_of_sections(sections, fast_ddrive.HEADER, 10)
    assert len(narrow.prefix) == 2 + 20 + 1 + 1
    assert even_blocks(70, 30, 32, None) == Blocks((32, 32, 6), (30,))


def test_a_round_is_as_wide_as_what_is_left_of_its_block() -> None:
    """Of a block of 30, 10 tokens a round: 30, 20 and 10 rows."""
    work = Work(100, 30, 60, 10.0, 32, Blocks((30,), (30, 30)))
    assert list(work.rounds(behind=False)) == [(3.0, 20.0)]
    assert list(work.rounds(behind=True)) == [(3.0, 20.0), (3.0, 20.0)]
    narrow = replace(work, blocks=Blocks((30,), (30, 30), widest=16))
    assert list(narrow.rounds(behind=False)) == [(3.0, 16.0)]
    assert list(replace(work, acceptance_length=60.0).rounds(behind=False)) == [(0.5, 30.0)]


def test_what_the_target_drafts_takes_no_pass_of_its_own() -> None:
    for device in ("agx-orin", "thor"):
        frame = estimate_frame(on(device), WORK, 4)
        assert frame.draft == 0 < frame.verify
        apart = estimate_frame(on(device), replace(WORK, blocks=None), 4)
        assert apart.draft == apart.verify, "shapes that are not the schema's"
    assert FAST.networks == [FAST.target]
    one, tail = Blocks((30,), ()), Work(100, 30, 0, 30.0, 32, None)
    frame = estimate_frame(on("thor"), replace(tail, blocks=one), 1)
    assert frame.verify == on("thor").network(FAST.target, Pass(1, 30, 0.0, 115.0))


def test_only_blocks_behind_the_fork_are_multiplied() -> None:
    frames = {n: estimate_frame(on("agx-orin"), WORK, n) for n in (1, 4, 16)}
    assert frames[1].rounds == frames[4].rounds == frames[16].rounds
    # all that 16 rollouts may cost more is 16 times the trajectory's share
    shared = estimate_frame(on("agx-orin"), replace(WORK, blocks=Blocks(BLOCKS.prefix, ())), 1)
    behind = frames[1].seconds - shared.seconds
    assert 0 < frames[16].seconds - frames[1].seconds < 15 * behind
    row, branch = FAST.target.cache_row * 2, TAIL + SLACK
    assert frames[16].cache - frames[4].cache == 12 * branch * row
    assert frames[1].cache == (FAST.trunk_rows + 1) * row


def test_published_frames_take_longer_than_the_roofline_in_the_published_ratio() -> None:
    """WOD-E2E on an H100: AR 7855 ms, scaffold speculation 1919 ms, 665 ms with SGLang."""
    roofline = Roofline(FAST, H100, "fp16", None)
    plain = estimate_frame(roofline, Work(1024, PREFIX, TAIL), 1).seconds
    drafted = estimate_frame(roofline, WORK, 1).seconds
    assert 0.25 * 0.665 < drafted < 0.665
    assert plain < 7.855
    assert plain / drafted == pytest.approx(7855 / 1919, rel=0.25)
    # in a batch, not one after the other: the paper's N = 4 takes 1.8 times as long
    assert estimate_frame(roofline, WORK, 4).seconds < 1.1 * drafted
    assert WORK.acceptance_length > (break_even(roofline, WORK, 1) or 99) > 1


def test_a_bundles_vision_tower_is_read_from_its_graph(tmp_path: Path) -> None:
    bundle = Bundle.open(make_camera_planner(tmp_path, cameras=("front", "left")))
    vision, dims = shape_of(bundle).vision, bundle.manifest.vision
    assert vision is not None
    assert dims is not None
    layers, width, ffn, out = 4, 32, 48, bundle.manifest.target.width
    block, merger = 4 * width**2 + 3 * width * ffn, (4 * width) ** 2 + 4 * width * out
    patches = dims.patch_size * width + layers * block
    assert (vision.blocks, vision.rows, vision.weights) == (layers, 72, patches + merger)
    attention = 4 * layers * 72 * 36 * width  # each picture's 36 patches see each other
    assert vision.operations == 2 * 72 * patches + 2 * 18 * merger + attention
    prompt = BundleWork(bundle).tokens.prompt
    assert prompt > sum(dims.tokens)
    roofline = Roofline(shape_of(bundle), DEVICES["orin-nx"], "fp16", None)
    frame = estimate_frame(roofline, Work(prompt, 10, 10), 1)
    assert frame.encode > 4 * 50e-6
    assert frame.seconds > frame.prefill + frame.encode


def test_the_published_planner_by_name(tmp_path: Path) -> None:
    done = command("estimate", "fast-ddrive", "--device", "thor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [frame["rollouts"] for frame in found["frames"]] == [1, 2, 4, 8, 16]
    frame = found["frames"][0]
    assert frame["ms"]["draft"] == 0
    assert sum(frame["ms"].values()) == pytest.approx(2 * frame["ms"]["frame"])
    assert frame["rounds"] == pytest.approx(404 / 4.9)
    facts = found["facts"]
    assert "blocks of 32, acceptance length 4.90 (published" in facts["decoding"]
    assert "prompt 1024 tokens, 317 before the fork, 87 behind" in facts["frame"]
    assert "x as long" in facts["plain decoding"]
    shown = command(
        *("estimate", "fast-ddrive", "--device", "agx-orin", "--prefix", "100", "--tail", "50"),
        *("--acceptance-length", "7", "--block", "16"),
        cwd=tmp_path,
    )
    assert "blocks of 16, acceptance length 7.00 (given)" in " ".join(shown.stdout.split())
    assert "encode" in shown.stdout
    refused = command(
        "estimate", "fast-ddrive", "--device", "thor", "--acceptance-length", "99", cwd=tmp_path
    )
    assert refused.returncode == 2
    assert "1 to 72, tokens of the schema's longest block" in refused.stderr


def test_a_measured_scaffold_spec_is_taken_from_a_report(tmp_path: Path) -> None:
    bundle = str(self_drafting_bundle(tmp_path / "self"))
    run = command(
        *("run", bundle, "--drive", "synthetic", "--decoder", "scaffold-spec"),
        *("--frames", "1", "--threads", "1", "--block", "16", "-o", "run"),
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    length = report["decoders"][0]["acceptance_length"]
    estimate = ("estimate", bundle, "--device", "agx-orin", "--json")
    done = command(*estimate, "--report", "run/report.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    decoding = found["facts"]["decoding"]
    assert decoding.startswith(f"schema's blocks of 16, acceptance length {length:.2f} (measured: ")
    assert "scaffold-spec" in decoding
    assert "ANOTHER BUNDLE" not in decoding
    assert found["frames"][0]["ms"]["draft"] == 0
    plain = json.loads(command(*estimate, cwd=tmp_path).stdout)
    assert plain["facts"]["decoding"].startswith("plain decoding")
    assert plain["facts"]["drafting pays from"].endswith("(schema's blocks of 32, N = 1)")
    assert plain["frames"][0]["ms"]["draft"] == 0
