"""The bundle: a folder with `bundle.json`, graphs, tokenizer and language, all hash-checked."""

from __future__ import annotations

import os
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from runtime.calibrated import Calibration, StoredPrecision
from runtime.errors import BundleError
from runtime.files import sha256
from runtime.json_text import model_of, parsed
from runtime.strict import Count, FileName, One, Size, Strict, Token
from runtime.vision_dims import CameraDims, VisionDims

__all__ = [
    "BUNDLE_VERSION",
    "MANIFEST",
    "AttentionDims",
    "Bundle",
    "Calibration",
    "CameraDims",
    "DraftDims",
    "GraphFile",
    "GraphName",
    "Limits",
    "Manifest",
    "Provenance",
    "Strict",
    "TargetDims",
    "VisionDims",
]

BUNDLE_VERSION = 1
MANIFEST = "bundle.json"
BUNDLE = "bundle"  # the usual name of its folder
GraphName = Literal[
    "embed", "target", "draft", "head", "fuse", "draft_head", "draft_embed", "vision"
]


class AttentionDims(Strict):
    """One network's attention: L layers, H query heads, Hkv key/value heads, D head size."""

    layers: Count
    heads: Count
    kv_heads: Count
    head_dim: Size

    @model_validator(mode="after")
    def _heads_divide(self) -> AttentionDims:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        return self


class TargetDims(AttentionDims):
    """The target's sizes: d width, V vocabulary, K taps.

    Attributes:
        taps: 0-based blocks whose output residual is tapped.
        mrope: positions have three rows: time, height and width.
        deepstack: the first blocks, after each of which features of pictures are added.
    """

    width: Size
    vocab: Size
    taps: list[int] = Field(min_length=1)
    mrope: bool = False
    deepstack: int = Field(default=0, strict=True, ge=0, le=1 << 10)

    @model_validator(mode="after")
    def _taps_are_layers(self) -> TargetDims:
        if not all(0 <= tap < self.layers for tap in self.taps):
            raise ValueError(f"taps {self.taps} are not all among layers 0..{self.layers - 1}")
        if self.deepstack > self.layers:
            raise ValueError(f"deepstack {self.deepstack} is above {self.layers} layers")
        return self


class DraftDims(AttentionDims):
    """A drafter's sizes. `block` counts the anchor: block - 1 tokens are drafted at most.

    A stepwise drafter (EAGLE-3) drafts a token a pass; its block counts the anchor and the passes,
    and fixed tokens that are passed with the token before them come on top. A target that drafts
    for itself (`self`) has no graph more; its sizes are given again. A drafter with an embedding of
    its own has a graph `draft_embed`, one with a head of its own `draft_head`.

    Attributes:
        mask_token: what stands where a token is drafted.
        own_mask: its embedding is a row of its own behind the vocabulary's; it is then token V.
    """

    method: Literal["dflash", "dflare", "eagle3", "self"] = "dflash"
    block: int = Field(strict=True, gt=1, le=1 << 10)
    mask_token: Token
    own_mask: bool = False
    # Fixed tokens stand in the block as themselves, or are passed with the token before them;
    # published checkpoints have masks there, or take a pass for each.
    scaffold_in_block: bool = False
    # a target's own draft passes the anchor and the rows that a value is read from, and no others
    value_rows: bool = False
    # k of the drafter's own head; None where it uses the target's
    head_top_k: Size | None = None
    # what the token before a slot adds to its logits (safetensors); None: slots are independent
    markov: FileName | None = None
    markov_gated: bool = False  # by the state that a slot is read from

    @property
    def stepwise(self) -> bool:
        """A pass drafts one token, and the next pass reads it."""
        return self.method == "eagle3"

    @property
    def of_target(self) -> bool:
        """The target's own pass drafts, over its own cache."""
        return self.method == "self"

    @property
    def graphs(self) -> set[GraphName]:
        """What a bundle with this drafter needs besides the target's graphs."""
        own: set[GraphName] = set() if self.of_target else {"draft"}
        own |= {"fuse"} if self.stepwise else set()
        return own | {"draft_head"} if self.head_top_k is not None else own

    @model_validator(mode="after")
    def _heads_are_known(self) -> DraftDims:
        if self.stepwise and self.head_top_k is None:
            raise ValueError("head_top_k is missing: a stepwise drafter has a head of its own")
        if self.of_target and self.head_top_k is not None:
            raise ValueError("head_top_k belongs to a drafter with a head of its own")
        if self.value_rows and not self.of_target:
            raise ValueError("value_rows belongs to a target that drafts for itself")
        if self.markov_gated and not (self.of_target and self.markov):
            raise ValueError("markov_gated belongs to a target that drafts for itself, with markov")
        return self


class GraphFile(Strict):
    """One graph file; `external` names the weight files beside it (graphs over 2 GB)."""

    file: FileName
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    precision: StoredPrecision = "fp32"
    external: dict[FileName, str] = Field(default_factory=dict)  # file name -> sha256


class Limits(Strict):
    """Cache capacities in rows, and the most rollouts a bundle was made for."""

    trunk: Size
    branch: Size
    rollouts: Count
    max_position: Size


class Provenance(Strict):
    """Where a bundle came from, for the model card and the report.

    An entry of `data` names a data set and the recording, and "first 80 %" where only that part was
    trained on, so that a replay on it can say so.
    """

    target: str
    drafter: str | None = None
    data: list[str] = Field(default_factory=list)
    licences: list[str] = Field(default_factory=list)
    # "target", "drafter" -> SHA-256 over the checkpoint's weight files: the record belongs to these
    weights: dict[str, str] = Field(default_factory=dict)
    exported_by: str = ""
    parity: dict[str, float] = Field(default_factory=dict)  # check name -> max abs difference
    calibration: Calibration | None = None  # of a quantized bundle; parity is its source's


class Manifest(Strict):
    """`bundle.json`."""

    version: One = BUNDLE_VERSION  # type: ignore[assignment]
    name: str
    target: TargetDims
    draft: DraftDims | None = None
    vision: VisionDims | None = None
    graphs: dict[GraphName, GraphFile]
    # k of the head graph; equal to the vocabulary, its logits come in token order
    head_top_k: Size
    language: FileName | None = None
    tokenizer: FileName = "tokenizer.json"
    files: dict[FileName, str] = Field(default_factory=dict)  # other files -> sha256
    mask_token: Token
    null_token: Token
    eos_token: Token
    stop_tokens: list[Token] = Field(default_factory=list)  # all that end an output
    limits: Limits
    provenance: Provenance

    @model_validator(mode="after")
    def _graphs_are_there(self) -> Manifest:
        wanted = {"embed", "target", "head"} | (self.draft.graphs if self.draft else set())
        wanted |= {"vision"} if self.vision else set()
        if missing := sorted(wanted - set(self.graphs)):
            raise ValueError(f"graphs lack {', '.join(missing)}")
        if self.vision is None and "vision" in self.graphs:
            raise ValueError("a graph `vision` without the key `vision`: its cameras")
        return self

    @model_validator(mode="after")
    def _one_network_has_one_size(self) -> Manifest:
        for name in AttentionDims.model_fields if self.draft and self.draft.of_target else ():
            own, given = getattr(self.target, name), getattr(self.draft, name)
            if own != given:
                raise ValueError(f"draft.{name} {given} of a target that has {own}")
        return self

    @property
    def networks(self) -> list[AttentionDims]:
        """Those with a cache of their own: the target, and a drafter that is not the target."""
        own = self.draft if self.draft and not self.draft.of_target else None
        return [self.target, own] if own else [self.target]

    @model_validator(mode="after")
    def _tokens_are_in_the_vocabulary(self) -> Manifest:
        vocab = self.target.vocab
        tokens = {name: getattr(self, name) for name in ("mask_token", "null_token", "eos_token")}
        if self.draft and self.draft.own_mask:
            if self.draft.mask_token != vocab:
                raise ValueError(f"draft.mask_token {self.draft.mask_token} of own_mask: {vocab}")
        elif self.draft:
            tokens["draft.mask_token"] = self.draft.mask_token
        if self.vision:
            names = "image_token", "vision_start", "vision_end"
            tokens |= {f"vision.{name}": getattr(self.vision, name) for name in names}
        for name, token in tokens.items():
            if token >= vocab:
                raise ValueError(f"{name} {token} is outside of the {vocab} tokens")
        if self.head_top_k > self.target.vocab:
            raise ValueError(f"head_top_k {self.head_top_k} is above vocab {self.target.vocab}")
        return self


class Bundle:
    """A bundle on disk, opened: every file named by the manifest is there and unaltered.

    Raises:
        BundleError: no manifest, another version, a missing or altered file.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest

    @classmethod
    def open(cls, folder: str | Path) -> Bundle:
        if not isinstance(folder, str | PathLike):
            raise BundleError(
                "bundle is not a path",
                expected="the folder of a bundle, as str or Path",
                found=f"{folder!r}"[:80],
                fix="slipstream.load(slipstream.shipped_bundle())",
            )
        folder = Path(folder)
        manifest = _read_manifest(folder)
        _check_files(folder, manifest)
        return cls(folder, manifest)

    def graph_path(self, name: GraphName) -> Path:
        return self.folder / self.manifest.graphs[name].file

    @cached_property
    def key(self) -> str:
        """A short name of this bundle's content, for caches: changes whenever a graph does."""
        return sha256(self.folder / MANIFEST)[:16]


_EXPORT = "slipstream export TARGET --draft DRAFTER -o BUNDLE"


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not path.is_file():
        inside = folder / BUNDLE / MANIFEST  # of a planner's folder that has more than the bundle
        fix = f"name {inside.parent}" if inside.is_file() else _EXPORT
        raise BundleError(
            f"{folder} is no bundle", expected=f"a file {path}", found="none", fix=fix
        )
    try:
        text = path.read_bytes()
        raw = parsed(text)
    except (ValueError, OSError) as error:
        raise BundleError(
            f"{path} can't be read", expected="JSON text", found=str(error), fix=_EXPORT
        ) from error
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != BUNDLE_VERSION:
        raise BundleError(
            f"{path} has an unknown version",
            expected=f"version {BUNDLE_VERSION}",
            found=f"version {version!r}",
            fix=f"export the checkpoint again with this slipstream: {_EXPORT}",
        )
    try:
        return model_of(Manifest, text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file as a whole"
        raise BundleError(
            f"{path}: {where} is not valid",
            expected=first["msg"],
            found=repr(first.get("input"))[:120],
            fix=_EXPORT,
        ) from error


def _check_files(folder: Path, manifest: Manifest) -> None:
    wanted = dict(manifest.files)
    for graph in manifest.graphs.values():
        wanted[graph.file] = graph.sha256
        wanted.update(graph.external)
    markov = manifest.draft.markov if manifest.draft else None
    for named in (manifest.tokenizer, manifest.language, markov):
        if named and named not in wanted:
            raise BundleError(
                f"{folder / MANIFEST} lists no SHA-256 for {named}",
                expected="an entry under `files`",
                found="none",
                fix=_EXPORT,
            )
    root = folder.resolve()
    for name, digest in wanted.items():
        path = folder / name
        if not Path(os.path.realpath(path)).is_relative_to(root):
            raise BundleError(
                f"{name} points outside of the bundle {folder}",
                expected="files in the bundle's own folder",
                found=os.path.realpath(path),
                fix=f"copy the file itself there, or {_EXPORT}",
            )
        if not path.is_file():
            raise BundleError(
                f"{path} is missing",
                expected="the file the manifest names",
                found="none",
                fix=_EXPORT,
            )
        if (found := sha256(path)) != digest:
            raise BundleError(
                f"{path} was altered or cut short",
                expected=f"SHA-256 {digest}",
                found=f"{found} ({path.stat().st_size} bytes)",
                fix=f"copy the bundle again, or {_EXPORT}",
            )
