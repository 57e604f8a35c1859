"""From checkpoints to a bundle: graphs, tokenizer, language and manifest in one new folder."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from export.checkpoint import CheckpointError
from export.draft_configs import BlockDrafterConfig, DFlareConfig, Eagle3Config
from export.graphs.builder import weights_beside
from export.graphs.storage import beside, save_graph
from export.markov import save_gated_markov, save_markov
from export.record import Record, checkpoint_name, earlier_record, folder_name, weights_of
from export.rig import RigOptions
from export.source import Source, top_k_of
from export.special import TEMPLATE, Said, find_special, save_template
from planners.camera_prompt import PROMPT, CameraPrompt
from planners.language import Language
from planners.prompt_trial import try_prompt
from planners.small_files import exists, small_file
from planners.tokens import SpecialNames, Tokenizer, read_tokenizer
from runtime.bundle import (
    MANIFEST,
    AttentionDims,
    DraftDims,
    GraphFile,
    GraphName,
    Limits,
    Manifest,
    Provenance,
    TargetDims,
)
from runtime.errors import SlipstreamError
from runtime.files import new_folder, sha256, unwritable, write_atomic
from runtime.markov import MARKOV

_TOKENIZER, _LANGUAGE = "tokenizer.json", "language.json"


def export_bundle(
    target: Path,
    drafter: Path | None,
    out: Path,
    *,
    limits: Limits,
    name: str | None = None,
    special: Said | SpecialNames | None = None,
    data: Sequence[str] | None = None,
    licences: Sequence[str] | None = None,
    rig: RigOptions | None = None,
    check_parity: bool = True,
) -> Manifest:
    """Write a bundle; the same checkpoints give the same bytes.

    Args:
        target: folder of a Qwen3 checkpoint with tokenizer.json and, for a planner, language.json.
        drafter: folder of a DFlash, DFlare or EAGLE-3 checkpoint for this target; without one, a
            target that was trained to draft for itself does.
        out: the bundle's folder; replaced as a whole, or left alone when anything fails.
        limits: cache rows, rollouts and positions; max_position rows of RoPE are kept.
        name: of the bundle; None takes the earlier bundle's or the target folder's (see
            `export.record`).
        special: the special tokens, where the checkpoint's files don't say them or say others (see
            `export.special`).
        data, licences: recorded as they are in the provenance; None keeps those of an earlier
            bundle that was made of the same weights.
        rig: the cameras of a VLM; None exports its text decoder alone.
        check_parity: run the graphs against torch before the bundle takes its name.

    Raises:
        SlipstreamError: a checkpoint that can't be exported, a graph that differs from torch, torch
            missing although parity is asked for, or a folder that can't be written.
    """
    source = Source.open(target, drafter, rig)
    _check_limits(source, limits)
    weights = weights_of(source.target, source.drafter, source.markov)
    record = earlier_record(weights, target, out) or Record(folder_name(target), (), (), out)
    with new_folder(out, last=MANIFEST) as folder:
        try:
            graphs = _write_graphs(source, folder, limits.max_position)
            files = _copy_files(source, folder) | _write_markov(source, folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        language = Language.load(target / _LANGUAGE) if _LANGUAGE in files else None
        pads = language is not None and language.pads
        tokenizer, stops = _tokenizer(source, special or Said(), pads)
        if language:
            language.compile(tokenizer)
        parity = _parity(source, folder, graphs, limits) if check_parity else {}
        manifest = _manifest(
            name=name or record.name,
            target=_target_dims(source),
            draft=_draft_dims(source, tokenizer.mask),
            vision=source.vision.dims if source.vision else None,
            graphs=graphs,
            head_top_k=source.head_top_k,
            language=_LANGUAGE if _LANGUAGE in files else None,
            tokenizer=_TOKENIZER,
            files=files,
            mask_token=tokenizer.mask,
            null_token=tokenizer.null,
            eos_token=tokenizer.eos,
            stop_tokens=list(stops),
            limits=limits,
            provenance=Provenance(
                target=checkpoint_name(target),
                drafter=checkpoint_name(drafter) if drafter else None,
                data=list(record.data if data is None else data),
                licences=list(record.licences if licences is None else licences),
                weights=weights,
                exported_by=_exporter(check_parity),
                parity=parity,
            ),
        )
        write_atomic(folder / MANIFEST, manifest.model_dump_json(indent=2) + "\n")
        asked = manifest.vision is not None or PROMPT in files
        if asked and (TEMPLATE in files or manifest.language):
            try_prompt(folder, min(limits.trunk, limits.max_position), target)
    return manifest


def _manifest(**fields: Any) -> Manifest:
    try:
        return Manifest(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise SlipstreamError(
            f"no bundle can be made of this: {where} is not valid",
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
            fix="correct the checkpoint, or the options of `slipstream export`",
        ) from error


def _check_limits(source: Source, limits: Limits) -> None:
    trained = source.target_config.max_position
    if source.drafter_config:
        trained = min(trained, source.drafter_config.max_position)
    if not 64 <= limits.max_position <= trained:
        raise SlipstreamError(
            "limits.max_position does not fit the checkpoints",
            expected=f"64..{trained} (max_position_embeddings)",
            found=str(limits.max_position),
            fix="pass --max-position within these bounds",
        )
    rows = sum(source.vision.dims.tokens) if source.vision else 0
    if rows >= min(limits.trunk, limits.max_position):
        raise SlipstreamError(
            "the cameras' pictures don't fit the cache",
            expected=f"--trunk and --max-position above {rows}, and room for the text",
            found=f"--trunk {limits.trunk}, --max-position {limits.max_position}",
            fix="raise both, or make the pictures smaller with --max-pixels",
        )


def _write_graphs(source: Source, folder: Path, max_position: int) -> dict[GraphName, GraphFile]:
    """Write one graph after another; memory holds a weight, or a graph that is one file."""
    files = {}
    for name, build in source.graphs(max_position):
        path = folder / f"{name}.onnx"
        with weights_beside(beside(path)):
            model = build()
        files[name] = save_graph(model, path)
        del model
    return files


def _tokenizer(
    source: Source, special: Said | SpecialNames, pads: bool
) -> tuple[Tokenizer, tuple[int, ...]]:
    """The target's tokenizer with its special tokens, and all that end an output."""
    path, vocab = source.target.folder / _TOKENIZER, source.target_config.vocab
    inner = read_tokenizer(path)
    texts = inner.get_vocab(with_added_tokens=True)
    mask = source.mask_token
    found = find_special(source.target, special, texts, vocab=vocab, pads=pads, mask=mask)
    return Tokenizer(inner, found.names, vocab=vocab, source=str(path)), found.stops


def _copy_files(source: Source, folder: Path) -> dict[str, str]:
    """Copy tokenizer, language, prompt and chat template; returns their SHA-256 by name."""
    target = source.target.folder
    if not exists(target / _TOKENIZER):
        raise CheckpointError(
            f"{target} lacks {_TOKENIZER}",
            expected="the tokenizer beside the weights",
            found="no such file",
            fix="save the tokenizer there with tokenizer.save_pretrained",
        )
    files = {}
    for name in (_TOKENIZER, _LANGUAGE, PROMPT):
        if exists(target / name):
            (folder / name).write_bytes(_small(target / name))
            files[name] = sha256(folder / name)
    if PROMPT in files:
        CameraPrompt.load(target / PROMPT, source.vision.dims if source.vision else None)
    if save_template(source.target, folder):
        files[TEMPLATE] = sha256(folder / TEMPLATE)
    return files


def _small(path: Path) -> bytes:
    try:
        return small_file(path)
    except OSError as error:
        raise CheckpointError(
            f"{path} can't be read",
            expected="a file",
            found=str(error),
            fix="copy or save the checkpoint again",
        ) from error


def _write_markov(source: Source, folder: Path) -> dict[str, str]:
    """Write the drafter's Markov head, or the target's own; returns its SHA-256 by name."""
    drafter, itself, c = source.drafter, source.itself, source.target_config
    if drafter and isinstance(source.drafter_config, BlockDrafterConfig):
        return save_markov(drafter, source.drafter_config, folder)
    if source.markov and itself:
        return save_gated_markov(source.markov, c.vocab, itself.markov_rank, c.width, folder)
    return {}


def _target_dims(source: Source) -> TargetDims:
    c = source.target_config
    return TargetDims(
        layers=c.layers,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        width=c.width,
        vocab=c.vocab,
        taps=list(source.taps),
        mrope=c.mrope_section is not None,
        deepstack=c.deepstack,
    )


def _draft_dims(source: Source, mask_token: int) -> DraftDims | None:
    c, itself = source.drafter_config, source.itself
    if itself is not None:
        sizes = _target_dims(source).model_dump(include=set(AttentionDims.model_fields))
        return DraftDims(
            method="self",
            **sizes,
            block=itself.block_size,
            mask_token=itself.mask_token_id,
            scaffold_in_block=itself.scaffold_in_block,
            value_rows=itself.value_rows,
            markov=MARKOV if itself.markov_rank else None,
            markov_gated=bool(itself.markov_rank),
        )
    if c is None:
        return None
    if isinstance(c, Eagle3Config):
        return DraftDims(
            method="eagle3",
            layers=c.layers,
            heads=c.heads,
            kv_heads=c.kv_heads,
            head_dim=c.head_dim,
            block=c.depth + 1,
            mask_token=mask_token,
            scaffold_in_block=c.scaffold_runs,
            head_top_k=top_k_of(c.draft_vocab),
        )
    return DraftDims(
        method="dflare" if isinstance(c, DFlareConfig) else "dflash",
        layers=c.layers,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        block=c.block,
        mask_token=c.vocab if c.mask_embedding else c.mask_token,
        own_mask=c.mask_embedding,
        scaffold_in_block=c.scaffold_in_block,
        head_top_k=None if c.draft_vocab is None else top_k_of(c.draft_vocab),
        markov=MARKOV if c.markov_rank else None,
    )


def _parity(
    source: Source,
    folder: Path,
    graphs: dict[GraphName, GraphFile],
    limits: Limits,
) -> dict[str, float]:
    try:
        from export.parity import check_parity
    except ImportError as error:
        raise SlipstreamError(
            "the graphs can't be checked against torch",
            expected="torch and transformers",
            found=str(error),
            fix="pip install '.[train]' in slipstream's folder, or pass --no-parity",
        ) from error
    paths = {name: folder / graph.file for name, graph in graphs.items()}
    drafter = source.drafter.folder if source.drafter else None
    vision = source.vision.dims if source.vision else None
    return check_parity(source.target.folder, drafter, paths, limits.max_position, vision)


def _exporter(checked: bool) -> str:
    try:
        number = version("slipstream")
    except PackageNotFoundError:  # run from a source tree
        number = "source"
    return f"slipstream {number}" if checked else f"slipstream {number}, parity not checked"
