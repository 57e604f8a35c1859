"""What one frame cost: seconds by stage, passes, and what verification accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

STAGES = ("patches", "encode", "prefill", "draft", "verify", "head", "embed")


@dataclass
class FrameStats:
    """Counters of one decoded frame.

    Attributes:
        seconds: engine time by stage (STAGES); everything else of `total` is host time. On an
            accelerator passes are queued: the wait for them counts where the host next needs a
            result, which is the head. `encode` is the vision graph's;
            `patches`, host work, is cutting the pictures for it.
        total: s, from the prompt's tokens (or its pictures) to the last token.
        first_token: s until the first output token was known (TTFT, from the prompt's tokens).
        target_passes, draft_passes: engine calls, the prefill excluded. Section diffusion drafts
            nothing: its passes, those that fill too, are the target's.
        rounds: verification rounds, summed over rollouts: each round of each unfinished rollout.
            Of section diffusion every pass, those that fill and those that cache.
        committed: output tokens committed in those rounds, summed over rollouts, scaffold included.
            Fixed tokens that need no round are in none: before the first value, at the fork, and
            behind the last value.
        proposed, accepted: drafted value tokens, and those of them that verification kept.
        by_position: [2, W] drafted and accepted value tokens by place in the block (1 is the
            first after the anchor); the last place also counts those further behind.
        by_section: section name -> (rounds, committed, proposed, accepted).
        cache_bytes: most key/value memory held, target and drafter: trunk + N * branch of each.
        device_bytes: most memory held on an accelerator, weights included; 0 on a CPU.
        prompt_rows: rows of the prompt's prefill.
        kept_rows: those of them that were left in the trunk by the frame before.
        asked, rollouts: rollouts that were asked for, and those that were decoded: fewer where the
            budget had no time for more.
        budget: s, the frame's; None without one.
        met: whether the plan stood within it; None without one, or without a plan yet.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    total: float = 0.0
    first_token: float = 0.0
    target_passes: int = 0
    draft_passes: int = 0
    rounds: int = 0
    committed: int = 0
    proposed: int = 0
    accepted: int = 0
    by_position: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, 64), np.int64))
    by_section: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    cache_bytes: int = 0
    device_bytes: int = 0
    prompt_rows: int = 0
    kept_rows: int = 0
    asked: int = 1
    rollouts: int = 1
    budget: float | None = None
    met: bool | None = None

    @property
    def host(self) -> float:
        """s outside of engine calls."""
        return self.total - sum(self.seconds.values())

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per verification round, the bonus included."""
        return self.committed / self.rounds if self.rounds else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / proposed value tokens."""
        return self.accepted / self.proposed if self.proposed else 0.0

    def count_round(
        self, depth: Ints, drafted: Bools, holds: Bools, section: Ints, names: list[str]
    ) -> None:
        """Count a verification round.

        Args:
            depth, drafted, holds: [N, W] of the block's rows; see `runtime.propose.Block`.
            section: [N] number of the section each rollout was in.
            names: of the sections.
        """
        stood, committed = drafted & holds, holds.sum(axis=1)
        self.rounds += len(committed)
        self.committed += int(committed.sum())
        self.proposed += int(drafted.sum())
        self.accepted += int(stood.sum())
        places = self.by_position.shape[1]
        depth = np.minimum(depth, places - 1)
        self.by_position[0] += np.bincount(depth[drafted], minlength=places)
        self.by_position[1] += np.bincount(depth[stood], minlength=places)
        for i in set(section.tolist()):
            here = section == i
            row = self.by_section.setdefault(names[i], np.zeros(4, np.int64))
            row += (here.sum(), committed[here].sum(), drafted[here].sum(), stood[here].sum())

    def count_filling(self, section: str, rounds: int, committed: int) -> None:
        """Count a pass of section diffusion as a round of `rounds` rollouts; nothing verifies."""
        self.rounds += rounds
        self.committed += committed
        row = self.by_section.setdefault(section, np.zeros(4, np.int64))
        row += (rounds, committed, 0, 0)

    def add_before(self, stage: str, seconds: float) -> None:
        """Count what was done for the frame before it was decoded."""
        self.seconds[stage] += seconds
        self.total += seconds
        self.first_token += seconds

    @contextmanager
    def stage(self, name: str) -> Iterator[Any]:
        start = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - start
