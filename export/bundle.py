"""From checkpoints to a bundle: graphs, tokenizer, language and manifest in one new folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnx

from export.checkpoint import Checkpoint, CheckpointError
from export.configs import Qwen3Config, tap_rule, target_config
from export.draft_configs import (
    BlockDrafterConfig,
    DFlareConfig,
    DrafterConfig,
    Eagle3Config,
    drafter_config,
)
from export.graphs.draft import draft_graph
from export.graphs.eagle3 import draft_head_graph, fuse_graph, step_graph
from export.graphs.storage import save_graph
from export.graphs.target import target_graph
from export.graphs.vocabulary import embed_graph, head_graph
from export.markov import MARKOV, save_markov
from export.record import Record, checkpoint_name, earlier_record, folder_name, weights_of
from export.self_draft import SelfDraft, self_draft
from planners.language import Language
from planners.tokens import SpecialNames, Tokenizer
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

FULL_LOGITS_UP_TO = 4096  # tokens; a larger vocabulary returns only its most likely ones
TOP_K = 64
_TOKENIZER, _LANGUAGE = "tokenizer.json", "language.json"


@dataclass(frozen=True)
class Source:
    """The checkpoints of an export, read and checked.

    Attributes:
        taps: 0-based target blocks whose output the target graph returns.
        itself: how the target drafts; None where another drafter does, or none.
    """

    target: Checkpoint
    target_config: Qwen3Config
    drafter: Checkpoint | None
    drafter_config: DrafterConfig | None
    taps: tuple[int, ...]
    itself: SelfDraft | None = None

    @classmethod
    def open(cls, target: Path, drafter: Path | None) -> Source:
        """Read both folders' configs and headers; the weights are read when graphs are made."""
        checkpoint = Checkpoint.open(target)
        config = target_config(checkpoint)
        if drafter is None:
            taps, itself = tap_rule(config.layers), self_draft(checkpoint, config.vocab)
            return cls(checkpoint, config, None, None, taps, itself)
        draft = Checkpoint.open(drafter)
        draft_config = drafter_config(draft, config)
        return cls(checkpoint, config, draft, draft_config, draft_config.taps)

    @property
    def head_top_k(self) -> int:
        return _top_k(self.target_config.vocab)

    def graphs(self, max_position: int) -> Iterator[tuple[GraphName, onnx.ModelProto]]:
        """Make one graph after another, so that only one set of weights is in memory."""
        yield "embed", embed_graph(self.target, self.target_config)
        yield "target", target_graph(self.target, self.target_config, self.taps, max_position)
        yield from self._draft_graphs(max_position)
        yield "head", head_graph(self.target, self.target_config, self.head_top_k)

    def _draft_graphs(self, max_position: int) -> Iterator[tuple[GraphName, onnx.ModelProto]]:
        drafter, config = self.drafter, self.drafter_config
        if drafter is None or config is None:
            return
        if isinstance(config, BlockDrafterConfig):
            yield "draft", draft_graph(drafter, config, max_position)
            return
        yield "fuse", fuse_graph(drafter, config)
        yield "draft", step_graph(drafter, config, max_position)
        yield "draft_head", draft_head_graph(drafter, config, _top_k(config.draft_vocab))


def export_bundle(
    target: Path,
    drafter: Path | None,
    out: Path,
    *,
    limits: Limits,
    name: str | None = None,
    special: SpecialNames | None = None,
    data: Sequence[str] | None = None,
    licences: Sequence[str] | None = None,
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
        special: texts of the special tokens, where they aren't the defaults.
        data, licences: recorded as they are in the provenance; None keeps those of an earlier
            bundle that was made of the same weights.
        check_parity: run the graphs against torch before the bundle takes its name.

    Raises:
        SlipstreamError: a checkpoint that can't be exported, a graph that differs from torch, torch
            missing although parity is asked for, or a folder that can't be written.
    """
    source = Source.open(target, drafter)
    _check_limits(source, limits)
    weights = weights_of(source.target, source.drafter)
    record = earlier_record(weights, target, out) or Record(folder_name(target), (), (), out)
    with new_folder(out) as folder:
        try:
            graphs = {
                graph: save_graph(model, folder / f"{graph}.onnx")
                for graph, model in source.graphs(limits.max_position)
            }
            files = _copy_files(target, folder)
            if source.drafter and isinstance(source.drafter_config, BlockDrafterConfig):
                files |= save_markov(source.drafter, source.drafter_config, folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        tokenizer = Tokenizer.load(folder / _TOKENIZER, special, vocab=source.target_config.vocab)
        if _LANGUAGE in files:
            Language.load(folder / _LANGUAGE).compile(tokenizer)
        parity = _parity(target, drafter, folder, graphs, limits) if check_parity else {}
        manifest = Manifest(
            name=name or record.name,
            target=_target_dims(source),
            draft=_draft_dims(source, tokenizer.mask),
            graphs=graphs,
            head_top_k=source.head_top_k,
            language=_LANGUAGE if _LANGUAGE in files else None,
            tokenizer=_TOKENIZER,
            files=files,
            mask_token=tokenizer.mask,
            null_token=tokenizer.null,
            eos_token=tokenizer.eos,
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
    return manifest


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


def _copy_files(target: Path, folder: Path) -> dict[str, str]:
    """Copy tokenizer and language; returns their SHA-256 by name."""
    if not (target / _TOKENIZER).is_file():
        raise CheckpointError(
            f"{target} lacks {_TOKENIZER}",
            expected="the tokenizer beside the weights",
            found="no such file",
            fix="save the tokenizer there with tokenizer.save_pretrained",
        )
    files = {}
    for name in (_TOKENIZER, _LANGUAGE):
        if (target / name).is_file():
            shutil.copyfile(target / name, folder / name)
            files[name] = sha256(folder / name)
    return files


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
    )


def _top_k(vocab: int) -> int:
    """Logits that a head over `vocab` tokens returns."""
    return vocab if vocab <= FULL_LOGITS_UP_TO else TOP_K


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
            head_top_k=_top_k(c.draft_vocab),
        )
    return DraftDims(
        method="dflare" if isinstance(c, DFlareConfig) else "dflash",
        layers=c.layers,
        heads=c.heads,
        kv_heads=c.kv_heads,
        head_dim=c.head_dim,
        block=c.block,
        mask_token=c.mask_token,
        scaffold_in_block=c.scaffold_in_block,
        markov=MARKOV if c.markov_rank else None,
    )


def _parity(
    target: Path,
    drafter: Path | None,
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
    return check_parity(target, drafter, paths, limits.max_position)


def _exporter(checked: bool) -> str:
    try:
        number = version("slipstream")
    except PackageNotFoundError:  # run from a source tree
        number = "source"
    return f"slipstream {number}" if checked else f"slipstream {number}, parity not checked"
