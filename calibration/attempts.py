"""Attempts: a candidate, what the gates say of it, and a better one where a group is to blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from calibration.candidate import Made, Maker
from calibration.driven import Driven
from calibration.gates import ADE_GATE, ERROR_GATE, TAU_GATE, Gates, judge
from calibration.recording import Recording
from calibration.results import Attempt, GroupEffect
from calibration.sensitivity import GroupCost, sensitivity
from drives.figures import known
from drives.windows import Window
from planners.planner import Planner
from runtime.bundle import Bundle, GraphName
from runtime.errors import EngineError

_DRAFTERS: tuple[GraphName, ...] = ("draft", "fuse", "draft_head")

# a line that stands while something is done, and the bar of planned frames
Say = Callable[[str], AbstractContextManager[object]]
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass
class Trial:
    """What every attempt of one calibration is judged by, and what the last one planned.

    Attributes:
        planner: the source; maker: of its graphs.
        frames: held-out windows, with their futures.
        unseen: passes of the source on some of them.
    """

    planner: Planner
    maker: Maker
    frames: Sequence[Window]
    unseen: Recording
    gates: Gates
    say: Say
    bar: Bar
    driven: Driven | None = None

    def run(
        self,
        made: dict[GraphName, Made],
        keep: dict[GraphName, tuple[str, ...]],
        *,
        retry: bool,
        report: bool,
    ) -> tuple[dict[GraphName, Made], list[Attempt], list[GroupEffect]]:
        """The candidate, or a better one; what was said of both; what groups cost.

        Args:
            keep: names of each graph's groups that stay as they are.
            retry: where a gate fails, keep the group that is to blame and judge once more.
            report: measure what groups cost, also where every gate passes.
        """
        first = self.attempt(made, keep)
        if not first.failed:
            return made, [first], self.sensitivity(made) if report else []
        effects = self.sensitivity(made)
        first = _blaming(first, effects)
        better = self.again(made, keep, first.blamed) if retry and first.blamed else {}
        if not better:
            return made, [first], effects
        second = self.attempt(better, keep)
        others = [each for each in effects if key_of(each) != first.blamed]
        return better, [first, _blaming(second, others)], effects

    def attempt(
        self, made: Mapping[GraphName, Made], keep: Mapping[GraphName, Sequence[str]]
    ) -> Attempt:
        with self.bar("held-out frames, planned by both", len(self.frames)) as done:
            attempt, self.driven = judge(
                self.planner,
                {graph: each.runs for graph, each in made.items()},
                [self.maker.described(each, keep[graph]) for graph, each in made.items()],
                self.frames,
                self.unseen,
                self.gates,
                timed=all(each.runs == each.path and each.way != "qdq" for each in made.values()),
                earlier=self.driven,
                done=done,
            )
        return attempt

    def again(
        self,
        made: Mapping[GraphName, Made],
        keep: dict[GraphName, tuple[str, ...]],
        blamed: str,
    ) -> dict[GraphName, Made]:
        """The candidate with one more group kept, which `keep` then says; empty where nothing
        would be left of it."""
        graph = next(name for name in made if blamed.startswith(f"{name}:"))
        group = blamed.partition(":")[2]
        with self.say(f"making {graph} again, {group} kept"):
            one = self.maker.one(graph, (*keep[graph], group), made[graph])
        found = {name: one if name == graph else each for name, each in made.items()}
        found = {name: each for name, each in found.items() if each.quantized}
        if found:
            keep[graph] = (*keep[graph], group)
        return found

    def sensitivity(self, made: Mapping[GraphName, Made]) -> list[GroupEffect]:
        """Of every graph of the candidate, with nothing kept; none of one that can't be run."""
        bundle, found = self.planner.bundle, list[GroupEffect]()
        for graph, each in made.items():
            with self.say(f"what each group of {graph} costs"), suppress(EngineError):
                whole = self.maker.whole(each)
                together, costs = sensitivity(
                    graph,
                    self.maker.plain(graph),
                    whole.runs,
                    whole.quantized,
                    self.unseen.passes.get(graph, ()),
                    _head_of(bundle, graph),
                    self.maker.folder,
                )
                parts = self.maker.parts(graph)
                for cost in costs:
                    inside = bool(set(parts[cost.group]) & set(each.quantized))
                    found.append(_effect(cost, inside, together.error))
        return found


def to_blame(attempt: Attempt, effects: Sequence[GroupEffect]) -> str:
    """GRAPH:GROUP of the quantized group whose quantization alone costs the most, or ''.

    Where drafts alone got worse, it is one of the drafter's; where only the plans did, one that the
    plans depend on.
    """
    failed = set(attempt.failed)
    found = [each for each in effects if each.quantized]
    if failed == {TAU_GATE}:
        found = [each for each in found if each.graph in _DRAFTERS] or found
    elif failed == {ERROR_GATE} or attempt.broken:
        errors = {each.graph: each.all for each in found}
        bad = [graph for graph, error in errors.items() if error is None]
        worst = bad or sorted(errors, key=lambda graph: errors[graph] or 0.0)[-1:]
        found = [each for each in found if each.graph in worst]
    elif ADE_GATE in failed or TAU_GATE not in failed:
        found = [each for each in found if each.graph not in _DRAFTERS] or found
    worst_one = max(found, key=_cost, default=None)
    return key_of(worst_one) if worst_one else ""


def _blaming(attempt: Attempt, effects: Sequence[GroupEffect]) -> Attempt:
    if not attempt.failed:
        return attempt
    return attempt.model_copy(update={"blamed": to_blame(attempt, effects)})


def key_of(effect: GroupEffect) -> str:
    """GRAPH:GROUP, as `--keep` takes it."""
    return f"{effect.graph}:{effect.group}"


def _cost(effect: GroupEffect) -> float:
    return float("inf") if effect.alone is None else effect.alone


def _effect(cost: GroupCost, quantized: bool, together: float) -> GroupEffect:
    likelihood = cost.alone.log_likelihood
    return GroupEffect(
        graph=cost.graph,
        group=cost.group,
        products=cost.products,
        quantized=quantized,
        alone=known(cost.alone.error),
        without=known(cost.without.error),
        all=known(together),
        log_likelihood=None if likelihood is None else known(likelihood),
    )


def _head_of(bundle: Bundle, graph: GraphName) -> Path | None:
    """The head behind a graph's hidden states."""
    if graph == "target":
        return bundle.graph_path("head")
    if graph == "draft":
        own = "draft_head" in bundle.manifest.graphs
        return bundle.graph_path("draft_head" if own else "head")
    return None
