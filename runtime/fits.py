"""Whether one output's decoding fits a bundle, said before the first pass."""

from __future__ import annotations

import numpy as np

from runtime.bundle import Manifest
from runtime.errors import SlipstreamError
from runtime.script import Script
from runtime.settings import BY_SCHEMA, DRAFTING, UNVERIFIED, DecodeSettings

MAX_NODES = 64  # of a tree whose size the cost curve chooses
SLACK = 64  # rows of a branch
ALONE = 128  # rows of a pass that verifies and drafts for one rollout


def check_fits(manifest: Manifest, script: Script, fork: int, settings: DecodeSettings) -> None:
    """Refuse what the bundle has not, or has no room for.

    Args:
        fork: position at which rollouts part.

    Raises:
        SlipstreamError: names the setting.
    """
    limits, draft = manifest.limits, manifest.draft
    if settings.method in DRAFTING and draft is None:
        raise SlipstreamError(
            "the bundle has no drafter, and its target does not draft for itself",
            expected="a decoder that needs neither: ar or ar-scaffold",
            found=f"decoder {settings.method}",
            fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
        )
    if settings.method in UNVERIFIED and not (draft and draft.of_target):
        drafts = "draft " + draft.method if draft else "no drafter"
        raise SlipstreamError(
            f"{settings.method} needs a target that fills masks itself",
            expected="a bundle whose target drafts for itself (draft.method self)",
            found=f"a bundle with {drafts}",
            fix="train one with drafter.kind self (docs/training.md), or --decoder scaffold-spec",
        )
    by_schema = settings.method in BY_SCHEMA
    if settings.block and draft and settings.block > draft.block and not by_schema:
        raise SlipstreamError(
            "block is wider than the drafter's",
            expected=f"at most {draft.block}",
            found=str(settings.block),
            fix=f"--block {draft.block}",
        )
    if settings.rollouts > limits.rollouts:
        raise SlipstreamError(
            "more rollouts than the bundle was made for",
            expected=f"at most {limits.rollouts} (the bundle's limits.rollouts)",
            found=str(settings.rollouts),
            fix=f"--rollouts {limits.rollouts}",
        )
    last = len(script) - 1 if script.rotary is None else int(script.rotary.max())
    if script.prompt < 2 or max(len(script), last + 1) > limits.max_position:
        raise SlipstreamError(
            "prompt and output don't fit the bundle",
            expected=f"a prompt of at least 2 tokens, {limits.max_position} positions in all",
            found=f"a prompt of {script.prompt}, {max(len(script), last + 1)} positions in all",
            fix="shorten the prompt, or export with a larger --max-position",
        )
    _check_tree(manifest, script, fork, settings)


def branch_rows(manifest: Manifest, left: int, settings: DecodeSettings) -> int:
    """Rows that a branch of the target's cache needs for `left` tokens and a pass behind them.

    A chain reaches no further than the output does, and what it leaves in its way is compacted. The
    slack keeps that rare.
    """
    tree = {"ddtree": settings.nodes or MAX_NODES, "spectr": settings.paths * left}
    return min(manifest.limits.branch, left + tree.get(settings.method, 0) + SLACK)


def _check_tree(manifest: Manifest, script: Script, fork: int, settings: DecodeSettings) -> None:
    """A tree's rows must fit beside every row that is held when it is verified."""
    width = _chain_rows(manifest, script, settings)
    if settings.method == "ddtree" and settings.nodes:
        name, asked, most = "nodes", settings.nodes, _room(manifest, script, fork, settings) - 1
    elif settings.method == "spectr":
        name, asked = "paths", settings.paths
        most = (_room(manifest, script, fork, settings) - 1) // (width - 1)
    else:
        return
    if asked > most:
        raise SlipstreamError(
            f"{name} is more than the cache has room for",
            expected=f"at most {most} for this prompt (the bundle's limits.trunk and .branch)",
            found=str(asked),
            fix=f"--{name} {most}"
            if most > 0
            else "export the bundle with a larger --trunk and --branch",
        )


def _chain_rows(manifest: Manifest, script: Script, settings: DecodeSettings) -> int:
    """The most rows of a chain, the anchor's included."""
    draft = manifest.draft
    width = settings.block or (draft.block if draft else 1)
    if draft is None or not draft.stepwise:
        return width
    last, start = len(script) - 1, np.arange(script.prompt - 1, len(script) - 1)
    end = start
    for _ in range(width - 1):
        place = script.next_value[end] if draft.scaffold_in_block else end + 1
        end = np.minimum(place, last)
    return int((script.next_value[end] - start).max())


def _room(manifest: Manifest, script: Script, fork: int, settings: DecodeSettings) -> int:
    """Rows that are free in each part of the cache at the end of an output."""
    limits = manifest.limits
    if settings.rollouts == 1:
        return limits.trunk - len(script)
    return min(limits.trunk - fork, limits.branch - (len(script) - fork))
