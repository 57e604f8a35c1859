"""The published Fast-dDrive planner by name: its sizes and its frame on WOD-E2E (arXiv 2605.23163).

Qwen2.5-VL-3B-Instruct, three pictures of 32 x 30 patches, 404 output tokens.
"""

from __future__ import annotations

from slipstream.estimate.networks import qwen3
from slipstream.estimate.schema import Blocks, SectionTokens, blocks_of_sections
from slipstream.estimate.shape import ModelShape, VisionShape

NAME = "fast-ddrive"
BLOCK = 32  # values of a block
PROMPT = 1024  # 720 rows of pictures; the text's length is not published
# tokens a forward (paper, table of WOD-E2E). Its rounds are two forwards; here one verifies and
# drafts, and what that saves was not measured with this planner
LENGTH = 4.90
SOURCE = "published: tokens a forward"

# 280 values and 124 fixed tokens; how the fixed ones divide is estimated
SECTIONS = (
    SectionTokens(12, 60),  # critical_objects
    SectionTokens(192, 5),  # explanation
    SectionTokens(6, 37),  # future_meta_behavior
    SectionTokens(70, 22),  # trajectory
)
HEADER = 5  # fixed tokens of the trajectory before its first value
_PICTURES, _PATCHES = 3, 32 * 30


def output(size: int = BLOCK) -> tuple[int, int, Blocks]:
    """Output tokens before the fork and behind it, and the blocks."""
    whole = sum(section.tokens for section in SECTIONS)
    tail = SECTIONS[-1].tokens - HEADER
    return whole - tail, tail, blocks_of_sections(SECTIONS, HEADER, size)


def model() -> ModelShape:
    """Qwen2.5-VL-3B that drafts for itself."""
    width = 2048
    target = qwen3(layers=36, width=width, ffn=11008, heads=16, kv_heads=2, head_dim=128)
    return ModelShape(
        name=NAME,
        target=target,
        draft=target,
        width=width,
        vocab=151936,
        block=BLOCK,
        trunk_rows=1536,
        branch_rows=256,
        most_rollouts=16,
        vision=_tower(width),
    )


def _tower(out: int) -> VisionShape:
    """32 blocks of which 28 attend in windows of 8 x 8 patches, and a merger of 2 x 2."""
    layers, full, width, ffn, window = 32, 4, 1280, 3420, 64
    rows, merged = _PICTURES * _PATCHES, 4 * width
    patch = 3 * 2 * 14 * 14 * width
    block = 4 * width * width + 3 * width * ffn
    merger = merged * merged + merged * out
    seen = full * _PATCHES + (layers - full) * window
    operations = 2.0 * rows * (patch + layers * block) + 2.0 * rows / 4 * merger
    return VisionShape(
        blocks=layers,
        weights=patch + layers * block + merger,
        operations=operations + 4.0 * rows * width * seen,
        rows=rows,
        widest=merged,
    )
