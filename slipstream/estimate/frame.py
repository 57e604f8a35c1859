"""A frame's estimated stages, and the most rollouts that fit a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slipstream.estimate.roofline import Pass, Roofline

USABLE = 0.85  # of the module's memory: the rest is the system's


@dataclass(frozen=True)
class Work:
    """What a frame has to do.

    Attributes:
        prompt: rows of the prefill.
        prefix: output tokens before the fork; tail: behind it, of every rollout.
        acceptance_length: tokens committed per round; 1 with `block` 1 is plain decoding.
        block: rows that a round drafts and verifies; 1 drafts nothing.
    """

    prompt: int
    prefix: int
    tail: int
    acceptance_length: float = 1.0
    block: int = 1


@dataclass(frozen=True)
class Frame:
    """Estimated seconds by stage for N rollouts, and bytes of memory."""

    rollouts: int
    acceptance_length: float
    prefill: float
    draft: float
    verify: float
    head: float
    rounds: float
    weights: float
    cache: float
    workspace: float

    @property
    def seconds(self) -> float:
        return self.prefill + self.draft + self.verify + self.head

    @property
    def memory(self) -> float:
        return self.weights + self.cache + self.workspace


def estimate_frame(roofline: Roofline, work: Work, rollouts: int) -> Frame:
    """One frame: the prompt, then rounds for the prefix alone, then rounds for all rollouts."""
    model, block = roofline.model, work.block
    parts = (  # rollouts, tokens of each, rows of branch and trunk on average
        (1, work.prefix, 0.0, work.prompt + work.prefix / 2),
        (rollouts, work.tail, work.tail / 2, float(work.prompt + work.prefix)),
    )
    draft = verify = head = total = 0.0
    for n, tokens, branch, trunk in parts:
        rounds = tokens / work.acceptance_length
        total += rounds
        verify += rounds * roofline.network(model.target, Pass(n, block, trunk, branch))
        head += rounds * roofline.head(n * block)
        if model.draft and block > 1:
            drafting = Pass(n, block, trunk, branch, context=work.acceptance_length)
            draft += rounds * roofline.network(model.draft, drafting)
            head += rounds * roofline.head(n * block)
    return Frame(
        rollouts=rollouts,
        acceptance_length=work.acceptance_length,
        prefill=roofline.network(model.target, Pass(1, work.prompt, 0.0, 0.0)),
        draft=draft,
        verify=verify,
        head=head,
        rounds=total,
        weights=roofline.weights(),
        cache=roofline.cache(rollouts),
        workspace=roofline.workspace(rollouts, work.prompt),
    )


def fits(frame: Frame, memory: float, deadline: float | None) -> bool:
    """Whether a frame fits the module's memory and the deadline in s."""
    return frame.memory <= USABLE * memory and (deadline is None or frame.seconds <= deadline)


def most_rollouts(roofline: Roofline, work: Callable[[int], Work], deadline: float) -> int:
    """The largest N up to the model's own limit that fits; 0 if not even one does.

    Args:
        work: of a frame with that many rollouts.
    """
    fitting = [
        n
        for n in range(1, roofline.model.most_rollouts + 1)
        if fits(estimate_frame(roofline, work(n), n), roofline.device.memory, deadline)
    ]
    return max(fitting, default=0)


def break_even(roofline: Roofline, plain: Work, rollouts: int, block: int) -> float | None:
    """The acceptance length from which drafting a block is faster than plain decoding.

    None where a drafted block never pays, not even when all of it stands.
    """
    bound = estimate_frame(roofline, plain, rollouts).seconds

    def seconds(length: float) -> float:
        work = Work(plain.prompt, plain.prefix, plain.tail, length, block)
        return estimate_frame(roofline, work, rollouts).seconds

    if seconds(float(block)) >= bound:
        return None
    low, high = 1.0, float(block)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if seconds(middle) < bound else (middle, high)
    return high
