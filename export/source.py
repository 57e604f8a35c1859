"""The checkpoints of an export, read and checked, and the graphs that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from export.checkpoint import Checkpoint
from export.configs import TargetConfig, tap_rule, target_config
from export.draft_configs import BlockDrafterConfig, DrafterConfig
from export.draft_options import drafter_config
from export.graphs.draft import draft_graph
from export.graphs.draft_vocabulary import draft_embed_graph, draft_head_graph, mask_row
from export.graphs.eagle3 import fuse_graph, step_graph
from export.graphs.target import target_graph
from export.graphs.vision import vision_graph
from export.graphs.vocabulary import embed_graph, head_graph
from export.rig import RigOptions, Vision, vision_of
from export.self_draft import SelfDraft, self_draft
from runtime.bundle import GraphName
from runtime.markov import MARKOV

FULL_LOGITS_UP_TO = 4096  # tokens; a larger vocabulary returns only its most likely ones
TOP_K = 64

Build = Callable[[], onnx.ModelProto]


@dataclass(frozen=True)
class Source:
    """The checkpoints of an export, read and checked.

    Attributes:
        taps: 0-based target blocks whose output the target graph returns.
        itself: how the target drafts; None where another drafter does, or none.
        markov: the file of the Markov head that it drafts with; None without one.
        vision: the target's tower and the rig; None for text alone.
    """

    target: Checkpoint
    target_config: TargetConfig
    drafter: Checkpoint | None
    drafter_config: DrafterConfig | None
    taps: tuple[int, ...]
    itself: SelfDraft | None = None
    markov: Checkpoint | None = None
    vision: Vision | None = None

    @classmethod
    def open(cls, target: Path, drafter: Path | None, rig: RigOptions | None = None) -> Source:
        """Read both folders' configs and headers; the weights are read when graphs are made."""
        checkpoint = Checkpoint.open(target)
        config = target_config(checkpoint)
        vision = vision_of(checkpoint, config.width, rig, config.vocab) if rig else None
        if drafter is None:
            taps, itself = tap_rule(config.layers), self_draft(checkpoint, config.vocab)
            markov = checkpoint.beside(MARKOV) if itself and itself.markov_rank else None
            return cls(checkpoint, config, None, None, taps, itself, markov, vision)
        draft = Checkpoint.open(drafter)
        draft_config = drafter_config(draft, config, checkpoint)
        return cls(checkpoint, config, draft, draft_config, draft_config.taps, vision=vision)

    @property
    def mask_token(self) -> int | None:
        """The token that stands for what is to be drafted; None where nothing needs one."""
        if self.itself:
            return self.itself.mask_token_id
        if isinstance(self.drafter_config, BlockDrafterConfig):
            return self.drafter_config.mask_token
        return None

    @property
    def head_top_k(self) -> int:
        return top_k_of(self.target_config.vocab)

    def graphs(self, max_position: int) -> Iterator[tuple[GraphName, Build]]:
        """Each graph by name, made when it is called: one set of weights is in memory at a time."""
        target, config = self.target, self.target_config
        mask = None
        if self.drafter and self.drafter_config and not self.drafter_config.own_embedding:
            mask = mask_row(self.drafter, self.drafter_config)
        yield "embed", partial(embed_graph, target, config, mask)
        yield "target", partial(target_graph, target, config, self.taps, max_position)
        yield from self._draft_graphs(max_position)
        yield "head", partial(head_graph, target, config, self.head_top_k)
        if self.vision:
            yield "vision", partial(vision_graph, target, self.vision.config, self.vision.dims)

    def _draft_graphs(self, max_position: int) -> Iterator[tuple[GraphName, Build]]:
        drafter, config = self.drafter, self.drafter_config
        if drafter is None or config is None:
            return
        if config.own_embedding:
            yield "draft_embed", partial(draft_embed_graph, drafter, config)
        if isinstance(config, BlockDrafterConfig):
            yield "draft", partial(draft_graph, drafter, config, max_position)
        else:
            yield "fuse", partial(fuse_graph, drafter, config)
            yield "draft", partial(step_graph, drafter, config, max_position)
        if config.draft_vocab is not None:
            top_k = top_k_of(config.draft_vocab)
            yield "draft_head", partial(draft_head_graph, drafter, config, top_k)


def top_k_of(vocab: int) -> int:
    """Logits that a head over `vocab` tokens returns."""
    return vocab if vocab <= FULL_LOGITS_UP_TO else TOP_K
