"""The parts that a frame is decoded with: what drafts, and what proposes."""

from __future__ import annotations

from runtime.cache import TwoPartCache
from runtime.drafter import BlockDrafter
from runtime.draws import Draws
from runtime.fits import MAX_NODES
from runtime.gate import Gate
from runtime.graphs import Graphs
from runtime.inputs import Inputs
from runtime.proposer import Proposer
from runtime.script import Script
from runtime.self_drafter import SelfDrafter
from runtime.settings import DRAFTING, DecodeSettings
from runtime.step_drafter import StepDrafter
from runtime.step_gate import StepGate
from runtime.step_proposer import StepProposer
from runtime.telemetry import FrameStats

Drafter = BlockDrafter | SelfDrafter | StepDrafter


def open_drafter(
    graphs: Graphs,
    settings: DecodeSettings,
    cache: TwoPartCache,
    own: TwoPartCache | None,
    inputs: Inputs,
    kept: int,
) -> Drafter | None:
    """What drafts for a method; None where nothing does.

    Args:
        cache: the target's.
        own: the drafter's; None where the target drafts for itself.
        kept: rows of it that the frame before left.
    """
    draft = graphs.manifest.draft
    if settings.method not in DRAFTING or draft is None:
        return None
    if own is None:
        return SelfDrafter(graphs, cache)
    own.reset(kept)
    if draft.stepwise:
        return StepDrafter(graphs, own, inputs)
    return BlockDrafter(graphs, own)


def open_proposer(
    graphs: Graphs,
    settings: DecodeSettings,
    script: Script,
    drafter: Drafter | None,
    gate: Gate | None,
    draws: Draws,
    stats: FrameStats,
) -> Proposer | StepProposer:
    """What proposes a frame's blocks."""
    rest = draws, stats, min(MAX_NODES, graphs.manifest.limits.branch // 4)
    if isinstance(drafter, StepDrafter):
        depths = gate if isinstance(gate, StepGate) else None
        return StepProposer(settings, script, drafter, depths, *rest)
    return Proposer(settings, script, drafter, gate, *rest)
