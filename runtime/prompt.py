"""What a target reads before it speaks: tokens, rotary positions, and pictures cut into patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.bundle import Manifest, VisionDims
from runtime.errors import SlipstreamError

Ints = NDArray[np.int64]
Patches = NDArray[np.float32]

AXES = 3  # of multimodal rotary positions: time, height, width


@dataclass(frozen=True, eq=False)
class Prompt:
    """A frame's prompt. Its arrays are not changed once they are given.

    Attributes:
        tokens: [Lp]; a picture's rows are image (or video) tokens.
        positions: rotary positions, [Lp] or [3, Lp] (time, height, width); None: 0..Lp-1.
        patches: [rows, size] what the graph `vision` reads; None without pictures.
    """

    tokens: Ints
    positions: Ints | None = None
    patches: Patches | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, prompt: Prompt | NDArray[Any]) -> Prompt:
        """Plain tokens as a prompt."""
        return prompt if isinstance(prompt, Prompt) else cls(np.asarray(prompt, np.int64))

    def rotary(self, length: int) -> Ints | None:
        """[length] or [3, length] rotary positions of a sequence that begins with this prompt; None
        where they are 0..length-1.

        Behind the prompt every axis goes on by one from the largest position in it.
        """
        if self.positions is None:
            return None
        behind = int(self.positions.max()) + 1 + np.arange(length - len(self))
        behind = np.broadcast_to(behind, (*self.positions.shape[:-1], len(behind)))
        return np.concatenate([self.positions, behind], axis=-1)

    def followed_by(self, tokens: Ints) -> Prompt:
        """The prompt and tokens [n] behind it."""
        whole = np.concatenate([self.tokens, tokens])
        return Prompt(whole, self.rotary(len(whole)), self.patches)

    def short_of(self, tokens: int) -> Prompt:
        """The prompt without its last tokens, which are text."""
        positions = None if self.positions is None else self.positions[..., :-tokens]
        return Prompt(self.tokens[:-tokens], positions, self.patches)

    def picture_rows(self, vision: VisionDims | None) -> Ints:
        """[Lp] the row of the vision graph's output that stands in each place, -1 for text."""
        shown = self._shown(vision) if self.patches is not None else np.zeros(len(self), np.bool_)
        return np.where(shown, np.cumsum(shown) - 1, -1)

    def check(self, manifest: Manifest) -> None:
        """Refuse what a bundle can't read.

        Raises:
            SlipstreamError: pictures that the bundle has no graph for or in another size, as many
                picture tokens as there are no rows for, or positions of another shape.
        """
        vision, mrope = manifest.vision, manifest.target.mrope
        rows = int(self._shown(vision).sum())
        if self.patches is None:
            if rows:
                raise _bad("patches of the pictures", f"none, but {rows} picture tokens")
        elif vision is None:
            raise _bad("no pictures: the bundle has no graph `vision`", "patches")
        elif self.patches.shape != (vision.rows, vision.patch_size):
            wanted = f"patches of shape {[vision.rows, vision.patch_size]}"
            raise _bad(wanted, f"shape {list(self.patches.shape)}")
        elif rows != sum(vision.tokens):
            raise _bad(f"{sum(vision.tokens)} tokens that stand for picture rows", str(rows))
        shapes = [(len(self),), (AXES, len(self))][: 2 if mrope else 1]
        if self.positions is not None and self.positions.shape not in shapes:
            wanted = " or ".join(str(list(shape)) for shape in shapes)
            raise _bad(f"positions of shape {wanted}", f"shape {list(self.positions.shape)}")

    def _shown(self, vision: VisionDims | None) -> NDArray[np.bool_]:
        """[Lp] where a token stands for a row of a picture."""
        if vision is None:
            return np.zeros(len(self), np.bool_)
        video = -1 if vision.video_token is None else vision.video_token
        shown: NDArray[np.bool_] = np.isin(self.tokens, (vision.image_token, video))
        return shown


def _bad(expected: str, found: str) -> SlipstreamError:
    return SlipstreamError(
        "the prompt does not fit the bundle",
        expected=expected,
        found=found,
        fix="make the prompt with planners.cameras.CameraPrompts of this bundle",
    )
