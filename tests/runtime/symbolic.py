"""Uniform random numbers that are only known by the comparisons they have been in.

A rule only ever compares its uniforms with thresholds. So it is run on symbolic ones: a comparison
that a uniform's interval leaves open splits the world in two, and every world weighs the product
of its intervals. Summed over all worlds, that is the integral over the uniforms, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
T = TypeVar("T")


@dataclass
class Interval:
    """What a world knows of one uniform."""

    world: World
    low: float = 0.0
    high: float = 1.0

    def below(self, threshold: float) -> bool:
        if threshold >= self.high or threshold <= self.low:
            return threshold >= self.high
        if self.world.decide():
            self.high = threshold
            return True
        self.low = threshold
        return False


@dataclass(frozen=True)
class Uniform:
    """factor * u, for a u of (0, 1) that is only known by the comparisons it has been in."""

    interval: Interval
    factor: float = 1.0

    def __mul__(self, factor: float) -> Uniform:
        return Uniform(self.interval, self.factor * float(factor))

    __rmul__ = __mul__

    def __lt__(self, other: float) -> bool:
        return self.interval.below(other / self.factor) if self.factor > 0 else other > 0

    def __le__(self, other: float) -> bool:
        return self.interval.below(other / self.factor) if self.factor > 0 else other >= 0

    def __rsub__(self, other: float) -> float:
        """A float: what computes with a uniform may only propose, and sees just its half."""
        return other - self.factor * (0.25 if self.interval.below(0.5) else 0.75)

    def __getitem__(self, _: object) -> Array:
        """`u[..., None]`, as of a numpy scalar."""
        array = np.empty(1, object)
        array[0] = self
        return array


@dataclass
class World:
    """One way in which all comparisons may turn out: `path`, and True from its end on.

    Attributes:
        factor: of the rule's uniforms: 1 / 0.9 has a rule accept 0.9 of what it should.
    """

    path: list[bool] = field(default_factory=list)
    factor: float = 1.0
    step: int = 0
    intervals: dict[tuple[int, ...], Interval] = field(default_factory=dict)

    def decide(self) -> bool:
        if self.step == len(self.path):
            self.path.append(True)
        self.step += 1
        return self.path[self.step - 1]

    @property
    def weight(self) -> float:
        return float(np.prod([i.high - i.low for i in self.intervals.values()]))

    def array(self, *shape: int) -> Array:
        """[rows, ...] uniforms."""
        array = np.empty(shape, object)
        for index in np.ndindex(*shape):
            array[index] = self.named(index) * self.factor
        return array

    def numbers(self, places: Array, word: int) -> Array:
        """Uniforms of rollout, row and place, as `runtime.draws.RoundDraws` gives them."""
        array = np.empty(places.shape, object)
        for index in np.ndindex(*places.shape):
            array[index] = self.named((word, *index[:2], int(places[index])))
        return array

    def named(self, name: tuple[int, ...]) -> Uniform:
        """The uniform of a name: the same object of chance whenever it is asked for."""
        return Uniform(self.intervals.setdefault(name, Interval(self)))


class Middle(World):
    """Plain floats from the middle of another world's intervals."""

    def array(self, *shape: int) -> Array:
        middles = [(i.low + i.high) / 2 for i in self.intervals.values()]
        return np.asarray(middles).reshape(shape)


def worlds(run: Callable[[World], T], factor: float = 1.0) -> Iterator[tuple[World, T]]:
    """Every world of a run, and what came of it."""
    path: list[bool] = []
    while True:
        world = World(path, factor)
        result = run(world)
        assert world.step == len(world.path)
        yield world, result
        path = world.path
        while path and not path[-1]:
            path.pop()
        if not path:
            return
        path[-1] = False
