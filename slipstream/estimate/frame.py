"""A frame's estimated stages, and the most rollouts that fit a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from runtime.decode import batches
from runtime.fits import SLACK
from slipstream.estimate.roofline import Pass, Roofline
from slipstream.estimate.schema import Blocks

USABLE = 0.85  # of the module's memory: the rest is the system's


@dataclass(frozen=True)
class Work:
    """What a frame has to do.

    Attributes:
        prompt: rows of the prefill.
        prefix: output tokens before the fork; tail: behind it, of every rollout.
        acceptance_length: tokens committed per round; 1 with `block` 1 is plain decoding.
        block: rows that a round drafts and verifies; 1 drafts nothing.
        blocks: of the schema, where rounds end with them; then no round is wider than what is left
            of its block. A target that drafts for itself verifies and drafts them in one pass.
        batch: most rollouts that are decoded at once; None for all of them.
    """

    prompt: int
    prefix: int
    tail: int
    acceptance_length: float = 1.0
    block: int = 1
    blocks: Blocks | None = None
    batch: int | None = None

    @property
    def drafts(self) -> bool:
        return self.block > 1 or self.blocks is not None

    def rounds(self, *, behind: bool) -> Iterator[tuple[float, float]]:
        """Rounds of one rollout before or behind the fork: how many, and rows of each."""
        if self.blocks is None:
            tokens = self.tail if behind else self.prefix
            yield tokens / self.acceptance_length, float(self.block)
            return
        widest = self.blocks.widest or self.blocks.longest
        for tokens in self.blocks.tail if behind else self.blocks.prefix:
            # what is left of the block: all of it at first, and a round's tokens fewer each time
            left = (tokens + min(self.acceptance_length, tokens)) / 2
            yield tokens / self.acceptance_length, min(left, widest)


@dataclass(frozen=True)
class Frame:
    """Estimated seconds by stage for N rollouts, and bytes of memory."""

    rollouts: int
    acceptance_length: float
    encode: float
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
        return self.encode + self.prefill + self.draft + self.verify + self.head

    @property
    def memory(self) -> float:
        return self.weights + self.cache + self.workspace


def estimate_frame(roofline: Roofline, work: Work, rollouts: int) -> Frame:
    """One frame: pictures, prompt, rounds for the prefix alone, then rounds for the rollouts of
    each batch."""
    model = roofline.model
    at_once = [len(ids) for ids in batches(rollouts, work.batch)]
    trunk = work.prompt + work.prefix
    parts = [  # behind the fork, rollouts, rows of branch and trunk on average
        (False, 1, 0.0, work.prompt + work.prefix / 2),
        *((True, n, work.tail / 2, float(trunk)) for n in at_once),
    ]
    draft = verify = head = total = 0.0
    for behind, n, branch, seen in parts:
        for rounds, rows in work.rounds(behind=behind):
            total += rounds
            verify += rounds * roofline.network(model.target, Pass(n, rows, seen, branch))
            head += rounds * roofline.head(n * rows)
            if model.draft and work.drafts and not (model.drafts_itself and work.blocks):
                context = 0.0 if model.drafts_itself else work.acceptance_length
                drafting = Pass(n, rows, seen, branch, context)
                draft += rounds * roofline.network(model.draft, drafting)
                head += rounds * roofline.head(n * rows)
    return Frame(
        rollouts=rollouts,
        acceptance_length=work.acceptance_length,
        encode=roofline.vision(),
        prefill=roofline.network(model.target, Pass(1, work.prompt, 0.0, 0.0)),
        draft=draft,
        verify=verify,
        head=head,
        rounds=total,
        weights=roofline.weights(),
        # a chain's branch is as long as what it writes; one rollout stays in the trunk
        cache=roofline.cache(at_once[0], work.tail + SLACK if rollouts > 1 else 1),
        workspace=roofline.workspace(at_once[0], work.prompt),
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


def break_even(roofline: Roofline, drafted: Work, rollouts: int) -> float | None:
    """The acceptance length from which drafting is faster than plain decoding.

    None where it never pays, not even when all of every block stands.

    Args:
        drafted: whatever its acceptance length.
    """
    plain = replace(drafted, acceptance_length=1.0, block=1, blocks=None)
    bound = estimate_frame(roofline, plain, rollouts).seconds
    most = float(drafted.blocks.longest if drafted.blocks else drafted.block)

    def seconds(length: float) -> float:
        work = replace(drafted, acceptance_length=length)
        return estimate_frame(roofline, work, rollouts).seconds

    if seconds(most) >= bound:
        return None
    low, high = 1.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if seconds(middle) < bound else (middle, high)
    return high
