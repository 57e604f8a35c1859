"""A bundle's graphs as typed passes: tokens and caches in, hidden states, taps and logits out."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import AttentionDims, Bundle, GraphName
from runtime.cache import TwoPartCache
from runtime.engines.base import Engine
from runtime.engines.device import HOST, Buffer, Device
from runtime.errors import EngineError
from runtime.markov import Markov
from runtime.prompt import AXES

Array = NDArray[Any]
Ints64 = NDArray[np.int64]


@dataclass(frozen=True)
class _KvNames:
    """Tensor names of one network's cache, key and value of each layer in turn."""

    trunk: list[str]
    branch: list[str]
    present: list[str]

    @classmethod
    def of(cls, dims: AttentionDims) -> _KvNames:
        ends = [f"{i}.{kind}" for i in range(dims.layers) for kind in ("key", "value")]
        return cls(
            [f"trunk.past_key_values.{end}" for end in ends],
            [f"branch.past_key_values.{end}" for end in ends],
            [f"present.{end}" for end in ends],
        )


@dataclass(frozen=True)
class Aside:
    """Rows of a cache's branches that were put aside: their columns [M], and a bias [N, S, M] that
    says which of a pass's S new rows see them."""

    columns: Ints64
    bias: Array


class Graphs:
    """The engines of one bundle. Returned buffers are valid until the same graph runs again.

    Args:
        open_engine: opens a graph's file.
        device: where its engines' memory is.

    Attributes:
        markov: the drafter's Markov head; None without one.

    Raises:
        EngineError: a graph's inputs or outputs don't fit the manifest.
    """

    def __init__(
        self, bundle: Bundle, open_engine: Callable[[Path], Engine], device: Device = HOST
    ) -> None:
        manifest = bundle.manifest
        self.manifest, self.device = manifest, device
        self.markov = _markov(bundle)
        self._engines: dict[GraphName, Engine] = {
            name: open_engine(bundle.graph_path(name)) for name in manifest.graphs
        }
        self._zeros: dict[int, Buffer] = {}
        self._target_kv = _KvNames.of(manifest.target)
        networks = manifest.networks[1:]
        self._draft_kv = _KvNames.of(networks[0]) if networks else None
        self._check(bundle)

    @property
    def nbytes(self) -> int:
        """Bytes held on an accelerator, by engines, caches and passes; 0 on a CPU."""
        return self.device.nbytes

    def engine(self, graph: GraphName) -> Engine:
        """The engine of a graph."""
        return self._engines[graph]

    def wrapped(self, wrap: Callable[[GraphName, Engine], Engine]) -> Graphs:
        """The same graphs through other engines, for instance ones that write down their feeds.

        Args:
            wrap: an engine in place of a graph's; both must not be at work at once.
        """
        other = copy(self)
        other._engines = {name: wrap(name, engine) for name, engine in self._engines.items()}
        return other

    def cache(self, dims: AttentionDims, trunk: int, branch: int) -> TwoPartCache:
        """An empty cache for the target or the drafter, on the engines' device."""
        draft = self.manifest.draft
        aside = branch if dims is draft and draft.stepwise else 1
        return TwoPartCache(dims, trunk, branch, self.device, self.cache_dtype(dims), aside)

    def cache_dtype(self, dims: AttentionDims) -> np.dtype[Any]:
        """In what the target's or the drafter's engine writes keys and values."""
        graph: GraphName = "target" if dims is self.manifest.target else "draft"
        return self._engines[graph].outputs["present.0.key"].dtype

    def embed(self, tokens: Array) -> Buffer:
        """[N, S] tokens -> [N, S, d]."""
        feeds = {"tokens": np.ascontiguousarray(tokens, np.int32)}
        embeddings: Buffer = self._engines["embed"].run(feeds, {})["embeddings"]
        return embeddings

    def embed_draft(self, tokens: Array) -> Buffer:
        """`embed` for a drafter, which may have an embedding of its own."""
        if "draft_embed" not in self._engines:
            return self.embed(tokens)
        feeds = {"tokens": np.ascontiguousarray(tokens, np.int32)}
        embeddings: Buffer = self._engines["draft_embed"].run(feeds, {})["embeddings"]
        return embeddings

    def vision(self, patches: Array) -> tuple[Buffer, Buffer | None]:
        """Patches [rows, size] of all cameras -> [1, M, d] rows that stand in the prompt, and
        [1, M, Ld*d] what the target adds behind its first blocks, or None."""
        out = self._engines["vision"].run({"patches": np.ascontiguousarray(patches)}, {})
        rows, deep = out["image_embeddings"], out.get("image_deepstack")
        view = self.device.view
        return view(rows, 0, (1, *rows.shape)), None if deep is None else view(
            deep, 0, (1, *deep.shape)
        )

    def no_deepstack(self, n: int) -> Buffer:
        """[n, 1, Ld*d] zeros: what text adds behind the target's first blocks."""
        if n not in self._zeros:
            spec = self._engines["target"].inputs["deepstack"]
            width = self.manifest.target.deepstack * self.manifest.target.width
            self._zeros[n] = self.device.zeros((n, 1, width), spec.dtype)
        return self._zeros[n]

    def target(
        self,
        embeddings: Buffer,
        positions: Array,
        rows_bias: Array,
        cache: TwoPartCache,
        deepstack: Buffer | None = None,
    ) -> tuple[Buffer, Buffer]:
        """One target pass; writes the new rows' keys and values into the cache's reserved rows.

        Args:
            embeddings: [N, S, d]
            positions: [N, S]; a target with multimodal positions takes [3, N, S] too.
            rows_bias: [N, S, S] or [S, S], among the new rows (causal, or a tree's ancestors).
            deepstack: [N, S, Ld*d] features of pictures; None for text alone.

        Returns:
            hidden [N, S, d], taps [N, S, K*d]
        """
        feeds, into = self._cached(self._target_kv, cache, rows_bias, embeddings.shape[:2])
        feeds["embeddings"] = embeddings
        if self.manifest.target.mrope and positions.ndim == 2:
            positions = np.broadcast_to(positions, (AXES, *positions.shape))
        feeds["positions"] = np.ascontiguousarray(positions, np.int32)
        if self.manifest.target.deepstack:
            text = self.no_deepstack(embeddings.shape[0])
            feeds["deepstack"] = text if deepstack is None else deepstack
        out = self._engines["target"].run(feeds, into)
        return out["hidden"], out["taps"]

    def draft(
        self,
        block: Buffer,
        block_positions: Array,
        taps: Buffer,
        tap_positions: Array,
        rows_bias: Array,
        cache: TwoPartCache,
    ) -> Buffer:
        """One drafter pass over a block; writes the context rows into the cache's reserved rows.

        Args:
            block: [N, B, d] embeddings, anchor first; block_positions: [N, B].
            taps: [N, C, K*d] of the newly verified rows; tap_positions: [N, C].
            rows_bias: [N, B, C + B], over those context rows and the block.

        Returns:
            hidden [N, B, d]; row k predicts the token at its own position.
        """
        assert self._draft_kv is not None, "the bundle has no drafter"
        feeds, into = self._cached(self._draft_kv, cache, rows_bias, block.shape[:2], taps.shape[1])
        feeds["block_embeddings"] = block
        feeds["block_positions"] = np.ascontiguousarray(block_positions, np.int32)
        feeds["taps"] = taps
        feeds["tap_positions"] = np.ascontiguousarray(tap_positions, np.int32)
        if "trunk_positions" in self._engines["draft"].inputs:  # layers with a window
            feeds["trunk_positions"], feeds["branch_positions"] = cache.places()
        hidden: Buffer = self._engines["draft"].run(feeds, into)["hidden"]
        return hidden

    def fuse(self, taps: Buffer) -> Buffer:
        """[N, C, K*d] taps of verified rows -> [N, C, d] their features, for a stepwise drafter."""
        features: Buffer = self._engines["fuse"].run({"taps": taps}, {})["features"]
        return features

    def step(
        self,
        embeddings: Buffer,
        features: Buffer,
        positions: Array,
        rows_bias: Array,
        cache: TwoPartCache,
        earlier: Aside | None = None,
    ) -> Buffer:
        """One pass of a stepwise drafter; the new rows' keys and values go to the reserved rows.

        Args:
            embeddings: [N, S, d] of the tokens at `positions` [N, S].
            features: [N, S, d] of the position before each, or what stands in for it.
            rows_bias: [N, S, S] among the new rows.
            earlier: rows put aside, and who sees them; the new rows then go behind them.

        Returns:
            hidden [N, S, d]
        """
        assert self._draft_kv is not None, "the bundle has no drafter"
        new = embeddings.shape[:2]
        feeds, into = self._cached(self._draft_kv, cache, rows_bias, new, earlier=earlier)
        feeds["embeddings"], feeds["features"] = embeddings, features
        feeds["positions"] = np.ascontiguousarray(positions, np.int32)
        hidden: Buffer = self._engines["draft"].run(feeds, into)["hidden"]
        return hidden

    def head(self, hidden: Buffer) -> Array:
        """[N, S, d] -> logits [N, S, V], on the host; -inf outside of the head's top k."""
        return self._logits("head", hidden, self.manifest.head_top_k)

    def draft_head(self, hidden: Buffer) -> Array:
        """`head` of the drafter; one of its own knows its own vocabulary, and is -inf outside."""
        draft = self.manifest.draft
        assert draft is not None, "the bundle has no drafter"
        if draft.head_top_k is None:
            return self.head(hidden)
        return self._logits("draft_head", hidden, draft.head_top_k)

    def _logits(self, graph: GraphName, hidden: Buffer, top_k: int) -> Array:
        out = self._engines[graph].run({"hidden": hidden}, {})
        logits: Array = np.asarray(self.device.to_host(out["top_logits"]), np.float32)
        if logits.size and np.isnan(logits.min()):  # a minimum carries NaN along
            raise EngineError(
                f"the logits of {graph} are not numbers",
                expected="finite logits",
                found=f"{int(np.isnan(logits).sum())} NaN among {logits.size}",
                fix="look for NaN in the checkpoint, or for overflow in a reduced precision, and "
                "export it again: slipstream export TARGET --draft DRAFTER -o BUNDLE",
            )
        if top_k == self.manifest.target.vocab:
            return logits
        tokens = self.device.to_host(out["top_tokens"]).astype(np.int64)
        full = np.full((*logits.shape[:2], self.manifest.target.vocab), -np.inf, np.float32)
        np.put_along_axis(full, tokens, logits, axis=-1)
        return full

    def head_at(self, hidden: Buffer, at: tuple[Ints64, ...]) -> Array:
        """[M, V] logits of M rows of hidden [N, S, d], as `np.nonzero` names them."""
        logits: Array = self.head(self.rows_at(hidden, at))[0]
        return logits

    def draft_head_at(self, hidden: Buffer, at: tuple[Ints64, ...]) -> Array:
        """`head_at` for the drafter's head."""
        logits: Array = self.draft_head(self.rows_at(hidden, at))[0]
        return logits

    def rows_at(self, hidden: Buffer, at: tuple[Ints64, ...]) -> Buffer:
        """[1, M, d] the M rows of hidden [N, S, d] that `np.nonzero` names."""
        rows = at[0] * hidden.shape[1] + at[1]
        gathered: Buffer = self.device.gather([(hidden, rows[None])])
        return gathered

    def _cached(
        self,
        names: _KvNames,
        cache: TwoPartCache,
        rows_bias: Array,
        new: tuple[int, ...],
        appended: int | None = None,
        earlier: Aside | None = None,
    ) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
        """The cache's part of a pass: feeds, and where its presents go."""
        n, s = new
        rows = s if appended is None else appended
        presents = cache.reserve(rows, earlier is not None)  # first: it may compact
        trunk, trunk_bias, branch, seen = cache.feeds()
        bias = np.empty((n, s, seen.shape[1] + rows_bias.shape[-1]), np.float32)
        bias[:, :, : seen.shape[1]] = seen[:, None]
        bias[:, :, seen.shape[1] :] = rows_bias
        if earlier is not None:
            bias[:, :, earlier.columns] = earlier.bias
        feeds: dict[str, Buffer] = dict(zip(names.trunk, trunk, strict=True))
        feeds.update(zip(names.branch, branch, strict=True))
        feeds["trunk_bias"], feeds["branch_bias"] = trunk_bias, bias
        return feeds, dict(zip(names.present, presents, strict=True))

    def _check(self, bundle: Bundle) -> None:
        target, draft = self.manifest.target, self.manifest.draft
        row = (target.kv_heads, target.head_dim)
        wanted: list[tuple[GraphName, str, tuple[int, ...]]] = [
            ("embed", "embeddings", (target.width,)),
            ("target", "hidden", (target.width,)),
            ("target", "taps", (len(target.taps) * target.width,)),
            ("head", "top_logits", (self.manifest.head_top_k,)),
            *(("target", name, row) for name in self._target_kv.present),
        ]
        if self.manifest.vision:
            rows = sum(self.manifest.vision.tokens)
            wanted += [("vision", "image_embeddings", (rows, target.width))]
            if target.deepstack:
                deep = (rows, target.deepstack * target.width)
                wanted += [("vision", "image_deepstack", deep)]
        if draft and self._draft_kv:
            row = (draft.kv_heads, draft.head_dim)
            wanted += [("draft", "hidden", (target.width,))]
            wanted += [("draft", name, row) for name in self._draft_kv.present]
            if draft.stepwise:
                wanted += [("fuse", "features", (target.width,))]
            if "draft_embed" in self._engines:
                wanted += [("draft_embed", "embeddings", (target.width,))]
            if draft.head_top_k is not None:
                wanted += [("draft_head", "top_logits", (draft.head_top_k,))]
        for graph, output, ending in wanted:
            spec = self._engines[graph].outputs.get(output)
            shape = spec.shape[-len(ending) :] if spec else None
            if shape != ending:
                raise EngineError(
                    f"{bundle.graph_path(graph)} does not fit {bundle.folder / 'bundle.json'}",
                    expected=f"an output {output} whose shape ends in {list(ending)}",
                    found=f"{list(spec.shape)}" if spec else "no such output",
                    fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
                )
        known = {(graph, output) for graph, output, _ in wanted}
        for graph, engine in self._engines.items():
            presents = [name for name in engine.outputs if name.startswith("present.")]
            if more := [name for name in presents if (graph, name) not in known]:
                raise EngineError(
                    f"{bundle.graph_path(graph)} does not fit {bundle.folder / 'bundle.json'}",
                    expected=f"{len(presents) - len(more)} outputs present.*, two a layer",
                    found=f"{len(presents)}",
                    fix="slipstream export TARGET --draft DRAFTER -o BUNDLE",
                )


def _markov(bundle: Bundle) -> Markov | None:
    draft = bundle.manifest.draft
    if draft is None or draft.markov is None:
        return None
    target = bundle.manifest.target
    width = target.width if draft.markov_gated else None
    return Markov.load(bundle.folder / draft.markov, target.vocab, width)
