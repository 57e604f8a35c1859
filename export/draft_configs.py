"""The sizes and options of each kind of drafter: DFlash, DFlare, EAGLE-3."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from export.decoder_config import DecoderConfig
from runtime.strict import Size, Token

Flag = Annotated[bool, Field(strict=True)]
Taps = Annotated[tuple[Annotated[int, Field(strict=True)], ...], Field(min_length=1)]
Scale = Annotated[float, Field(strict=True, ge=1e-9, le=1e9)]
LayerKind = tuple[bool, int | None]  # whether the block is read causally, and the window


class BlockDrafterConfig(DecoderConfig):
    """A block drafter: a Qwen3-style stack that reads target taps.

    Attributes:
        block: rows of a block, the anchor included.
        mask_token: stands where a token is to be drafted.
        taps: 0-based target blocks whose output residual is read.
        kinds: of each layer, see `planners.drafter_layouts.layer_kinds`.
        scaffold_in_block: fixed tokens stand in the block as themselves.
        markov_rank: of the head that adds W2 W1[token before] to a slot's logits (DSpark, arXiv
            2607.05147); 0 for none.
        embedding_scale: the block's embeddings are multiplied by it.
        logit_scale: the logits are multiplied by it.
        softcap: c of c tanh(logit / c), of a head of its own; None for none.
        draft_vocab: Vd, of a head of its own; None where it uses the target's.
        own_embedding: it has an embedding of its own.
        mask_embedding: what stands for the mask is a vector of its own.
    """

    block: int = Field(strict=True, gt=1, le=1 << 10)
    mask_token: Token
    taps: Taps
    kinds: tuple[LayerKind, ...] = ()
    scaffold_in_block: Flag = False
    markov_rank: int = Field(default=0, strict=True, ge=0, le=1 << 12)
    embedding_scale: Scale = 1.0
    logit_scale: Scale = 1.0
    softcap: Scale | None = None
    draft_vocab: Size | None = None
    own_embedding: Flag = False
    mask_embedding: Flag = False


class DFlashConfig(BlockDrafterConfig):
    """DFlash (arXiv 2602.06036): one projection of all taps is every layer's context."""


class DFlareConfig(BlockDrafterConfig):
    """DFlare (arXiv 2606.02091): every layer mixes the taps by weights of its own.

    Attributes:
        fusion_softmax: a layer's weights are a softmax; else they are used as they are.
        heterogeneous_kv: context rows have Wk and Wv of their own; else they share the block's.
        fusion_fc: a linear map [d, d], shared by the layers, follows the mixture.
    """

    fusion_softmax: Flag = True
    heterogeneous_kv: Flag = True
    fusion_fc: Flag = False


class Eagle3Config(DecoderConfig):
    """EAGLE-3 (arXiv 2503.01840): one layer that drafts a token a pass; `layers` is 1.

    Attributes:
        draft_vocab: Vd, of the drafter's own head.
        taps: 0-based target blocks whose output residual is read.
        depth: drafts in a row that it was trained for.
        scaffold_runs: fixed tokens are passed with the token before them.
        norm_before_residual: the residual stream starts from the normed feature.
        layer: prefix of the layer's tensors.
        own_embedding: it has an embedding of its own.
    """

    draft_vocab: Size
    taps: Taps
    depth: int = Field(strict=True, gt=0, lt=1 << 10)
    scaffold_runs: Flag = False
    norm_before_residual: Flag = False
    layer: str = "midlayer"
    own_embedding: Flag = False


DrafterConfig = BlockDrafterConfig | Eagle3Config
