"""The config files of `slipstream train`: every field, its range and its default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from planners.nets.dflare import FusionInit
from planners.tokens import SpecialNames
from planners.training.drafter import DrafterSettings
from planners.training.drafter_objective import MEANS
from planners.training.eagle import EagleSettings
from planners.training.responses import ResponseSettings
from planners.training.self_drafting import SelfDraftSettings
from planners.training.settings import Positive, Share
from planners.training.target import TargetSettings
from planners.training.teacher import TeacherSettings

Even = Annotated[int, Field(ge=2, multiple_of=2)]
Width = Annotated[int, Field(ge=2, le=1024)]
Layers = Annotated[int, Field(ge=1, le=1024)]


def _named(path: object) -> object:
    if not isinstance(path, str | Path) or not str(path).strip():
        raise ValueError("a path")  # "" would be the current folder
    return path


Place = Annotated[Path, BeforeValidator(_named)]


class Strict(BaseModel):
    """Unknown keys are errors; what was read does not change."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Part(Strict):
    """A drive, or the stretch of it between two shares of its time.

    Attributes:
        drive: a name of `slipstream drives list`, or a path, beside `data.folder` if relative.
    """

    drive: str = Field(min_length=1)
    begin: Share = 0.0
    end: Share = 1.0

    @model_validator(mode="after")
    def _is_a_stretch(self) -> Part:
        if self.begin >= self.end:
            raise ValueError("begin before end")
        return self

    def overlaps(self, other: Part) -> bool:
        return self.drive == other.drive and self.begin < other.end and other.begin < self.end


class Data(Strict):
    """Which windows are trained on, and which the live figures are taken on.

    Attributes:
        folder: where relative paths of drives begin; SLIPSTREAM_DRIVES, else the current folder.
        step_s: s between training windows; those of validation are thinned to a given number.
        guard_s: s left out of a training part at each end where the drive goes on; a window
            reaches 4 s back and 5 s ahead.
    """

    training: tuple[Part, ...] = Field(min_length=1)
    validation: tuple[Part, ...] = Field(min_length=1)
    folder: Place | None = None
    step_s: float = Field(default=0.1, ge=0.001)
    guard_s: float = Field(default=9.0, ge=0)

    @model_validator(mode="after")
    def _apart(self) -> Data:
        for part in self.validation:
            if any(part.overlaps(other) for other in self.training):
                raise ValueError(f"validation apart from training, unlike {part.drive}")
        return self


class Special(Strict):
    """The tokenizer's special tokens, by text or id; see `planners.tokens.SpecialNames`."""

    null: str | int = SpecialNames.null
    mask: str | int = SpecialNames.mask
    eos: str | int = SpecialNames.eos

    def names(self) -> SpecialNames:
        return SpecialNames(self.null, self.mask, self.eos)


class Sizes(Strict):
    """A new Qwen3 target's sizes, as its `config.json` names them."""

    hidden_size: Positive
    intermediate_size: Positive
    num_hidden_layers: Annotated[int, Field(ge=2, le=1024)]
    num_attention_heads: Positive
    num_key_value_heads: Positive
    head_dim: Even
    vocab_size: Positive
    max_position_embeddings: Positive = 1024
    rope_theta: float = Field(default=10000.0, gt=0)
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    tie_word_embeddings: bool = True

    @model_validator(mode="after")
    def _heads_divide(self) -> Sizes:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads that are a multiple of num_key_value_heads")
        return self


class TargetEvaluation(Strict):
    """Live figures: greedy ADE@5s on `windows` of validation, every so many steps."""

    every: Positive = 250
    windows: Positive = 96


class DrafterEvaluation(Strict):
    """Live figures: acceptance length on `windows` of validation, every so many steps.

    Attributes:
        widths: of blocks, anchor included.
        temperatures: of the forked section; above 0 with token verification.
    """

    every: Positive = 500
    windows: Positive = 32
    widths: tuple[Width, ...] = Field(default=(16, 8), min_length=1)
    temperatures: tuple[Annotated[float, Field(ge=0)], ...] = Field(
        default=(0.0, 1.0), min_length=1
    )


class TargetConfig(Strict):
    """`slipstream train target`.

    Attributes:
        out: the checkpoint's folder; the run itself lives in `out/training`.
        tokenizer: `tiny` and `fast-ddrive` make a small planner's, its words and its language;
            else a folder with tokenizer.json and language.json, which `start` has by default.
        sizes: of a new target; or
        start: a checkpoint's folder to go on from.
        warm_start: a checkpoint whose blocks a new target begins with, and its rows of the tokens
            that both tokenizers write alike; of the same sizes, or of smaller ones that grow (see
            `planners.training.growth`); `tiny` is the shipped planner's.
        save_every: steps between two states on disk: what a kill can cost.
    """

    out: Place
    data: Data
    training: TargetSettings
    tokenizer: Literal["tiny", "fast-ddrive"] | Place | None = None
    special: Special = Special()
    sizes: Sizes | None = None
    start: Place | None = None
    warm_start: Literal["tiny"] | Place | None = None
    teacher: TeacherSettings = TeacherSettings()
    evaluation: TargetEvaluation = TargetEvaluation()
    save_every: Positive = 100

    @model_validator(mode="after")
    def _one_beginning(self) -> TargetConfig:
        if (self.sizes is None) == (self.start is None):
            raise ValueError("either sizes of a new target, or the checkpoint to start from")
        if self.warm_start is not None and self.sizes is None:
            raise ValueError("sizes of a new target, beside warm_start")
        if self.tokenizer is None and self.start is None:
            raise ValueError("a tokenizer for a new target: tiny, fast-ddrive, or a folder")
        return self


class BlockSizes(Strict):
    """What DFlash and DFlare drafters share. Sizes that are not given are the target's.

    Attributes:
        layers: of the drafter; block: B, anchor included.
        taps: 0-based target blocks whose output is read; or how many, placed by DFlash's rule.
        markov_rank: of the in-block dependence head; 0 for none.
        scaffold_in_block: fixed tokens stand in the block as themselves.
    """

    layers: Layers = 3
    block: Width = 16
    taps: tuple[Annotated[int, Field(ge=0)], ...] | Positive = 5
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Even | None = None
    intermediate: Positive | None = None
    markov_rank: Annotated[int, Field(ge=0)] = 0
    scaffold_in_block: bool = True


class DFlashSizes(BlockSizes):
    kind: Literal["dflash"] = "dflash"


class DFlareSizes(BlockSizes):
    """With the paper's ablations; see `planners.nets.dflare.DFlareConfig`."""

    kind: Literal["dflare"]
    fusion_init: FusionInit = "onset"
    fusion_softmax: bool = True
    heterogeneous_kv: bool = True
    fusion_fc: bool = False


class Eagle3Sizes(Strict):
    """See `planners.nets.eagle3.Eagle3Config`.

    Attributes:
        taps: low, middle and high target block.
        vocabulary: tokens of its own head, the commonest in the responses; null is all.
    """

    kind: Literal["eagle3"]
    taps: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    depth: Layers = 7
    vocabulary: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Even | None = None
    intermediate: Positive | None = None
    scaffold_runs: bool = True
    qk_norm: bool = False


class _DrafterConfig(Strict):
    """`slipstream train drafter`.

    Attributes:
        target: the target checkpoint's folder, with tokenizer.json and language.json.
        out: the checkpoint's folder; the run itself lives in `out/training`.
        responses: the target's own outputs that the drafter learns from (on-policy).
        save_every: steps between two states on disk: what a kill can cost.
    """

    target: Place
    out: Place
    data: Data
    special: Special = Special()
    responses: ResponseSettings = ResponseSettings()
    evaluation: DrafterEvaluation = DrafterEvaluation()
    save_every: Positive = 100


class BlockDrafterConfig(_DrafterConfig):
    """A drafter of whole blocks.

    Attributes:
        features: the target's taps of the responses are computed at every step, or once and kept
            on disk, 2 (K + 1) d bytes a token.
        warm_start: a drafter of the same kind and vocabulary that it begins with; of the same
            sizes, or of smaller ones that grow; `tiny` is the shipped planner's. Its taps are
            taken in their order.
    """

    drafter: Annotated[DFlashSizes | DFlareSizes, Field(discriminator="kind")]
    training: DrafterSettings
    warm_start: Literal["tiny"] | Place | None = None
    features: Literal["online", "stored"] = "online"

    @model_validator(mode="after")
    def _widths_fit(self) -> BlockDrafterConfig:
        _check_widths(self.evaluation, self.drafter.block)
        return self


class EagleConfig(_DrafterConfig):
    """The autoregressive baseline."""

    drafter: Eagle3Sizes
    training: EagleSettings


class SelfSizes(Strict):
    """The target itself drafts.

    Attributes:
        block: B, anchor included; with `training.blocks: schema` the values of a block.
        markov_rank: of a gated Markov head for drafts; 0 for none.
    """

    kind: Literal["self"]
    block: Width = 16
    markov_rank: Annotated[int, Field(ge=0)] = 0


class SelfDraftConfig(_DrafterConfig):
    """A target that learns to draft for itself; `out` becomes a target's checkpoint."""

    drafter: SelfSizes
    training: SelfDraftSettings

    @model_validator(mode="after")
    def _widths_fit(self) -> SelfDraftConfig:
        _check_widths(self.evaluation, self.drafter.block)
        return self

    @model_validator(mode="after")
    def _something_learns(self) -> SelfDraftConfig:
        if self.training.frozen and not self.drafter.markov_rank:
            raise ValueError("a drafter.markov_rank beside training.frozen, or nothing learns")
        return self

    @model_validator(mode="after")
    def _sums_are_of_means(self) -> SelfDraftConfig:
        objective = self.training.objective
        alone = objective.gamma is None and set(objective.terms()) <= set(MEANS)
        if self.training.normalise == "sasd" and not alone:
            terms = ", ".join(MEANS)
            raise ValueError(f"normalise: sasd with an objective of {terms}, and gamma: null")
        return self


DrafterConfig = BlockDrafterConfig | EagleConfig | SelfDraftConfig


def _check_widths(evaluation: DrafterEvaluation, block: int) -> None:
    if max(evaluation.widths) > block:
        raise ValueError(f"evaluation.widths of at most drafter.block, {block}")
