"""What a target's config.json says of drafting for itself."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from export.checkpoint import Checkpoint, CheckpointError
from runtime.strict import Token

KEY = "self_draft"


class SelfDraft(BaseModel):
    """A target that was trained to fill blocks of masks (Fast-dDrive, arXiv 2605.23163).

    Attributes:
        block_size: B, anchor included.
        mask_token_id: stands where a token is to be drafted.
        scaffold_in_block: fixed tokens stand in the block as themselves.
        value_rows: its block holds the anchor and the rows that a value is read from, no others.
        markov_rank: r of its gated Markov head, whose weights are in a file of their own (see
            `export.markov`); 0 without one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    block_size: int = Field(strict=True, gt=1, le=1 << 10)
    mask_token_id: Token
    scaffold_in_block: bool = True
    value_rows: bool = False
    markov_rank: int = Field(default=0, strict=True, ge=0, le=1 << 12)


def self_draft(checkpoint: Checkpoint, vocab: int) -> SelfDraft | None:
    """None for a target that does not draft.

    Raises:
        CheckpointError: a field of `self_draft` is missing, unknown or not valid.
    """
    raw: Any = checkpoint.config.get(KEY)
    if raw is None:
        return None
    try:
        found = SelfDraft.model_validate(raw, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join([KEY, *(str(place) for place in first["loc"])])
        raise _invalid(checkpoint, field, first["msg"], first.get("input")) from error
    if found.mask_token_id >= vocab:
        field, token = f"{KEY}.mask_token_id", found.mask_token_id
        raise _invalid(checkpoint, field, f"one of the {vocab} tokens", token)
    return found


def _invalid(checkpoint: Checkpoint, field: str, expected: str, found: object) -> CheckpointError:
    return CheckpointError(
        f"{checkpoint.folder / 'config.json'}: {field} is not valid",
        expected=expected,
        found=repr(found)[:120],
        fix="use the config.json that was saved with these weights",
    )
