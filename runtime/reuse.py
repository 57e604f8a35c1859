"""What the trunks hold of the frame before, so that a frame passes only what differs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from runtime.bundle import VisionDims
from runtime.cache import BUCKET, TwoPartCache
from runtime.prompt import Patches, Prompt

LEAST = BUCKET  # rows; fewer are not worth keeping, and short text prompts stay as they always were
_CHUNK = 1 << 18  # numbers of a picture that are compared at once


@dataclass(frozen=True)
class _Held:
    """A frame's prompt, and how many leading rows of it the trunks hold.

    Attributes:
        limit: rows that this frame, decoded again, may keep at most.
    """

    prompt: Prompt
    frame: int
    limit: int
    target: int = 0
    draft: int = 0


class TrunkMemory:
    """Leading rows of a prompt that the next frame may keep.

    A row stays if all tokens and rotary positions up to it are the same, and so is every picture
    that stands there, number by number. A frame that is decoded again (by another decoder, or for
    another draw) keeps no more than what it had in common with the frame before, so that decoders
    are compared on the same work.

    Args:
        reads_ahead: tokens behind a row that the drafter's row depends on: 1 for a stepwise one,
            for which the target passes the last row that stays again, for its taps.
    """

    def __init__(self, vision: VisionDims | None, reads_ahead: int) -> None:
        self._vision, self._ahead = vision, reads_ahead
        self._held: _Held | None = None
        self._next: _Held | None = None

    def forget(self) -> None:
        """The next frame starts with empty trunks."""
        self._held = None

    def keep(
        self,
        prompt: Prompt,
        frame: int,
        most: int,
        target: TwoPartCache,
        draft: TwoPartCache | None,
    ) -> int:
        """How many leading rows of the trunks stay. A frame that ends before `remember` is
        forgotten, whatever it left in the caches.

        Args:
            most: rows that may stay at most; the frame has to pass one.
            draft: the drafter's cache, where this frame drafts with it.
        """
        held, self._held = self._held, None
        if held is None:
            self._next = _Held(prompt, frame, 0)
            return 0
        again = frame == held.frame
        common = self._common(held.prompt, prompt, held.limit if again else len(prompt))
        drafted = min(held.draft, max(0, common - self._ahead))
        self._next = _Held(prompt, frame, held.limit if again else common, draft=drafted)
        kept = min(common, most, held.target)
        kept = target.startable(kept if draft is None else draft.startable(min(kept, drafted)))
        return kept if kept >= LEAST else 0

    def remember(self, target: TwoPartCache, draft: TwoPartCache | None) -> None:
        """The frame is done: see what its prompt left in the trunks.

        Args:
            draft: as given to `keep`.
        """
        held = self._next
        assert held is not None, "a frame begins before it ends"
        most = len(held.prompt)
        drafted = held.draft if draft is None else min(draft.leading, most)
        self._held = replace(held, target=min(target.leading, most), draft=drafted)

    def _common(self, one: Prompt, other: Prompt, most: int) -> int:
        """Leading rows, up to `most`, in which two prompts read the same."""
        most = min(len(one), len(other), most)
        same = one.tokens[:most] == other.tokens[:most]
        turned = one.rotary(len(one)), other.rotary(len(other))
        if (turned[0] is None) != (turned[1] is None):
            return 0
        if turned[0] is not None and turned[1] is not None:
            if turned[0].ndim != turned[1].ndim:
                return 0
            equal = turned[0][..., :most] == turned[1][..., :most]
            same &= np.atleast_2d(equal).all(axis=0)
        common = most if same.all() else int(np.argmin(same))
        return self._cut_at_pictures(one, other, common)

    def _cut_at_pictures(self, one: Prompt, other: Prompt, common: int) -> int:
        """`common` rows, short of the first picture that is another one."""
        if self._vision is None or (one.patches is None and other.patches is None):
            return common
        rows = other.picture_rows(self._vision)[:common]
        patch = row = 0
        for camera, tokens in zip(self._vision.cameras, self._vision.tokens, strict=True):
            shown = np.flatnonzero((rows >= row) & (rows < row + tokens))
            t, h, w = camera.grid
            patches = slice(patch, patch + t * h * w)
            if len(shown) and not _equal(one.patches, other.patches, patches):
                return int(shown[0])
            row, patch = row + tokens, patches.stop
        return common


def _equal(one: Patches | None, other: Patches | None, rows: slice) -> bool:
    """Whether rows of two pictures are the same; looks no further than the first difference."""
    if one is None or other is None:
        return False
    a, b = one[rows].reshape(-1), other[rows].reshape(-1)
    chunks = range(0, len(a), _CHUNK)
    return one is other or all(
        np.array_equal(a[at : at + _CHUNK], b[at : at + _CHUNK]) for at in chunks
    )
