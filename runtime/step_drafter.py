"""The stepwise drafter: a pass for every further token, each reading the hidden state before it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.cache import MASKED, TwoPartCache
from runtime.engines.device import Buffer
from runtime.graphs import Aside, Graphs
from runtime.inputs import Inputs
from runtime.sampling import restrict
from runtime.script import Rollouts, Script
from runtime.taps import PendingTaps
from runtime.telemetry import FrameStats

Array = NDArray[Any]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class StepDrafter:
    """EAGLE-3 (arXiv 2503.01840): row j pairs the token at j with the feature of j - 1.

    Features of verified positions are the target's taps, fused; behind them the drafter's own
    hidden states stand in. Its cache holds rows with the target's features only: what a round
    drafted is forgotten, and passed again with taps once it is verified.
    """

    def __init__(self, graphs: Graphs, cache: TwoPartCache, inputs: Inputs | None = None) -> None:
        draft = graphs.manifest.draft
        assert draft is not None
        self.graphs, self.cache, self.dims = graphs, cache, draft
        self.inputs = inputs  # pictures of the prompt; None: text alone
        self.pending = PendingTaps(graphs.device)

    def observe(self, taps: Buffer, positions: Ints, holds: Bools) -> None:
        """Take the taps [N, S, K*d] of a target pass; `holds` [N, S] says which rows stand."""
        self.pending.observe(taps, positions, holds)

    def absorb(self, rollouts: Rollouts, script: Script, stats: FrameStats) -> None:
        """Before a fork: put what waits into the trunk, unless it is about what a round leaves.

        The last row goes on waiting: a draft starts from it.
        """
        if len(self.pending) <= self.dims.block:
            return
        newest = self.pending.hold_back()
        _, mark = self.pass_verified(rollouts, script, np.zeros(len(rollouts), np.int64), stats)
        self.cache.rewind(mark)
        self.pending.put_back(newest)

    def fork(self, n: int) -> None:
        self.cache.fork(n)
        self.pending.fork(n)

    def keep(self, rows: Ints) -> None:
        self.cache.keep(rows)
        self.pending.keep(rows)

    def next_place(self, script: Script, positions: Ints) -> Ints:
        """[...] the next position behind each that takes a draft of its own."""
        if self.dims.scaffold_in_block:
            return script.next_value[positions]
        return np.minimum(positions + 1, len(script))

    def free_rows(self, script: Script, start: Ints) -> int:
        """Rows that a round may put aside, beside what it passes first."""
        held = int((self.cache.branches.bias == 0.0).sum(axis=1).max())
        run = self.next_place(script, start) - start
        return self.cache.branches.capacity - held - len(self.pending) - int(run.max())

    def pass_verified(
        self, rollouts: Rollouts, script: Script, run: Ints, stats: FrameStats
    ) -> tuple[Buffer, tuple[int, int]]:
        """Pass what waits, and `run` [N] known tokens behind it with the last one's feature.

        Returns:
            hidden [N, 1, d] of each rollout's last row, and where to rewind the cache to.
        """
        taps, positions, holds = self.pending.take()
        positions = positions + 1
        n, c = holds.shape
        r = int(run.max())
        last = c - 1 - holds[:, ::-1].argmax(axis=1)
        rows = np.concatenate(
            [np.tile(np.arange(c), (n, 1)), np.repeat(last[:, None], r, axis=1)], axis=1
        )
        ahead = rollouts.start[:, None] + 1 + np.arange(r)
        positions = np.concatenate([positions, ahead], axis=1)
        real = np.concatenate([holds, np.arange(r) < run[:, None]], axis=1)
        known = np.minimum(positions, len(script) - 1)
        tokens = np.maximum(rollouts.tokens[np.arange(n)[:, None], known], 0)
        with stats.stage("embed"):
            read = self.inputs
            embeddings = (
                read.embed(tokens, known, draft=True) if read else self.graphs.embed_draft(tokens)
            )
        with stats.stage("draft"):
            features = self.graphs.fuse(taps)
            if r:
                features = self.rows_at(features, rows)
            bias = _among(np.tril(np.ones((c + r, c + r), np.bool_)) & real[:, None])
            hidden = self.graphs.step(embeddings, features, known, bias, self.cache)
        stats.draft_passes += 1
        mark = self.cache.commit(real, loose=r)
        end = np.where(run > 0, c + run - 1, last)
        return self.rows_at(hidden, end[:, None]), mark

    def rows_at(self, buffer: Buffer, rows: Ints) -> Buffer:
        """A copy of rows [N, M] of a buffer [N, S, d]."""
        n, s = buffer.shape[:2]
        gathered: Buffer = self.graphs.device.gather([(buffer, np.arange(n)[:, None] * s + rows)])
        return gathered


class Walk:
    """One round's drafts. F nodes of each rollout are at the front, one step from the next place.

    Attributes:
        place: [N] position of the next draft.
    """

    def __init__(
        self,
        drafter: StepDrafter,
        rollouts: Rollouts,
        script: Script,
        ends: Ints,
        room: int,
        stats: FrameStats,
    ) -> None:
        """Pass what was verified, up to the token in front of the first place.

        Args:
            ends: [N, D] behind the rows that are passed with the draft of each place.
            room: the most rows that the steps will put aside.
        """
        self.drafter, self.script, self.stats = drafter, script, stats
        self._ends = iter(ends.T)
        self.place = drafter.next_place(script, rollouts.start)
        run = np.minimum(self.place, len(script)) - rollouts.start - 1
        drafter.cache.make_room(room + len(drafter.pending) + int(run.max()))
        self._hidden, self._mark = drafter.pass_verified(rollouts, script, run, stats)
        n = len(rollouts)
        self._columns = np.zeros(0, np.int64)
        self._sees = np.zeros((n, 1, 0), np.bool_)  # [N, F, rows put aside]

    def logits(self) -> Array:
        """[N, F, V] restricted logits of the token at `place`, behind each node at the front."""
        at = np.minimum(self.place, len(self.script) - 1)
        with self.stats.stage("head"):
            logits = self.drafter.graphs.draft_head(self._hidden)
        return restrict(logits, self.script.bias_at(at)[:, None])

    def step(self, tokens: Ints, parents: Ints) -> None:
        """Pass tokens [N, F'] at `place`, and the fixed tokens behind them: they are the new front.

        Args:
            parents: [N, F'] which node at the front each follows.
        """
        drafter, script = self.drafter, self.script
        unit = np.maximum(next(self._ends) - self.place, 1)  # [N] a token and what follows it
        n, f, u = *tokens.shape, int(unit.max())
        offsets = np.minimum(self.place[:, None] + np.arange(u), len(script) - 1)
        rows = np.repeat(script.tokens[offsets][:, None], f, axis=1)  # [N, F', U]
        rows[..., 0] = tokens
        real = np.repeat((np.arange(u) < unit[:, None])[:, None], f, axis=1).reshape(n, f * u)
        owner = np.repeat(np.arange(f), u)
        own = (owner[:, None] == owner) & np.tril(np.ones((f * u, f * u), np.bool_))
        sees = np.take_along_axis(self._sees, parents[..., None], axis=1)
        with self.stats.stage("embed"):
            embeddings = drafter.graphs.embed_draft(np.maximum(rows, 0).reshape(n, f * u))
        with self.stats.stage("draft"):
            features = drafter.rows_at(self._hidden, parents[:, owner])
            earlier = Aside(self._columns, _bias(sees[:, owner]))
            hidden = drafter.graphs.step(
                embeddings,
                features,
                np.tile(offsets, (1, f)),
                _among(own & real[:, None]),
                drafter.cache,
                earlier,
            )
        self.stats.draft_passes += 1
        self._columns = np.append(self._columns, drafter.cache.put_aside(f * u))
        theirs = (owner == np.arange(f)[:, None]) & real[:, None]
        self._sees = np.concatenate([sees, theirs], axis=2)
        self._hidden = drafter.rows_at(hidden, np.arange(f) * u + unit[:, None] - 1)
        self.place = drafter.next_place(script, np.minimum(self.place, len(script) - 1))

    def close(self) -> None:
        """Forget what was drafted."""
        self.drafter.cache.rewind(self._mark)


def _bias(sees: Bools) -> NDArray[np.float32]:
    return np.asarray(np.where(sees, np.float32(0.0), MASKED))


def _among(sees: Bools) -> NDArray[np.float32]:
    """Bias [N, S, S] among new rows; each sees itself, so that no softmax is empty."""
    return _bias(sees | np.eye(sees.shape[-1], dtype=np.bool_))
