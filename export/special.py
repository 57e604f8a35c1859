"""Special tokens and the chat template, as a checkpoint's own files name them.

Published checkpoints have neither NULL nor MASK. A planner's language needs a NULL that the target
was trained with; a bundle for text alone only needs ids that nothing else uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from export.checkpoint import Checkpoint, CheckpointError, read_json
from planners.chat import LARGEST_TEMPLATE
from planners.small_files import exists, small_file
from planners.tokens import SpecialNames

TEMPLATE = "chat_template.jinja"
_GENERATION, _TOKENIZER = "generation_config.json", "tokenizer_config.json"


@dataclass(frozen=True)
class Said:
    """Special tokens by text or id, as the user says them; None leaves it to the checkpoint."""

    null: str | int | None = None
    mask: str | int | None = None
    eos: str | int | None = None


@dataclass(frozen=True)
class Special:
    """What an export found.

    Attributes:
        names: of NULL, MASK and the token that ends an output.
        stops: all ids that end an output, the checkpoint's list.
    """

    names: SpecialNames
    stops: tuple[int, ...]


def find_special(
    checkpoint: Checkpoint,
    said: Said | SpecialNames,
    texts: dict[str, int],
    *,
    vocab: int,
    pads: bool,
    mask: int | None,
) -> Special:
    """NULL, MASK and EOS of a checkpoint: what was said, else what its files say.

    EOS: of generation_config.json's list the one that tokenizer_config.json calls eos_token, else
    the list's first; then config.json's; then the usual name. NULL and MASK: the usual names where
    the tokenizer has them. Where nothing is padded, NULL is else the padding token, or a row of the
    embedding that no text uses; MASK is else the drafter's, or NULL.

    Args:
        texts: the tokenizer's tokens and their ids.
        vocab: V, rows of the embedding.
        pads: the language has slots that NULL pads; then it has to be a token that was trained.
        mask: the drafter's token, if there is one.

    Raises:
        CheckpointError: a file can't be read, or names a token outside of the vocabulary.
    """
    usual = SpecialNames()
    stops = tuple(_stops(checkpoint, vocab))
    eos = said.eos if said.eos is not None else _eos(checkpoint, texts, stops, usual.eos)
    null, masked = said.null, said.mask
    if null is None and usual.null in texts:
        null = usual.null
    elif null is None and pads:
        raise CheckpointError(
            f"{checkpoint.folder / 'tokenizer.json'} has no NULL token",
            expected=f"a token {usual.null}, which pads the choices and texts of language.json",
            found="no such token",
            fix="name the one that the target was trained with: --null TOKEN",
        )
    elif null is None:
        null = _unused(checkpoint, texts, vocab, (*stops, texts.get(str(eos), eos)))
    if masked is None:
        masked = usual.mask if usual.mask in texts else mask if mask is not None else null
    return Special(SpecialNames(null, masked, eos), stops)


def save_template(checkpoint: Checkpoint, folder: Path) -> bool:
    """Write the checkpoint's chat template as a file of its own; False if it has none.

    It stands in chat_template.jinja, in chat_template.json, or in tokenizer_config.json: one text,
    or a list of named ones of which `default` is taken.
    """
    own = checkpoint.folder / TEMPLATE
    if exists(own):
        (folder / TEMPLATE).write_bytes(_read_template(own))
        return True
    text: Any = None
    for name in ("chat_template.json", _TOKENIZER):
        if text is None:
            text = _optional(checkpoint, name).get("chat_template")
    if isinstance(text, list):
        texts = [each for each in text if isinstance(each, dict)]
        text = next((e.get("template") for e in texts if e.get("name") == "default"), None)
    if not isinstance(text, str):
        return False
    (folder / TEMPLATE).write_text(text, encoding="utf-8")
    return True


def _stops(checkpoint: Checkpoint, vocab: int) -> Iterator[int]:
    """The ids of the first file that names some."""
    for name in (_GENERATION, "config.json"):
        found: Any = _optional(checkpoint, name).get("eos_token_id")
        if found is None:
            continue
        listed = found if isinstance(found, list) else [found]
        for token in listed:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab:
                raise CheckpointError(
                    f"{checkpoint.folder / name}: eos_token_id is not valid",
                    expected=f"a token, 0..{vocab - 1}, or a list of them",
                    found=repr(found)[:80],
                    fix="use the files that were saved with these weights",
                )
            yield token
        if listed:
            return


def _eos(
    checkpoint: Checkpoint, texts: dict[str, int], stops: tuple[int, ...], usual: str | int
) -> str | int:
    text: Any = _optional(checkpoint, _TOKENIZER).get("eos_token")
    if isinstance(text, dict):  # an added token with its options
        text = text.get("content")
    own = texts.get(text) if isinstance(text, str) else None
    if own is not None and (own in stops or not stops):
        return own
    return stops[0] if stops else usual


def _unused(
    checkpoint: Checkpoint, texts: dict[str, int], vocab: int, taken: tuple[object, ...]
) -> int | str:
    """The padding token if it ends nothing, else a row behind the tokenizer's, else the usual."""
    pad: Any = _optional(checkpoint, _GENERATION).get("pad_token_id")
    if pad is None:
        text: Any = _optional(checkpoint, _TOKENIZER).get("pad_token")
        text = text.get("content") if isinstance(text, dict) else text
        pad = texts.get(text) if isinstance(text, str) else None
    if type(pad) is int and 0 <= pad < vocab and pad not in taken:
        return pad
    behind = max(texts.values()) + 1
    return behind if behind < vocab else next(t for t in taken if isinstance(t, int | str))


def _optional(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    path = checkpoint.folder / name
    return read_json(path, checkpoint.folder) if exists(path) else {}


def _read_template(path: Path) -> bytes:
    try:
        return small_file(path, LARGEST_TEMPLATE)
    except OSError as error:
        raise CheckpointError(
            f"{path} can't be read",
            expected="a jinja template",
            found=str(error),
            fix="copy or save the checkpoint again",
        ) from error
