"""The frames that a report shows in full: the worst, then the median and the best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drives.drive import Drive
from drives.metrics import ade
from drives.scene_results import Scene, Title
from drives.summary import Summary, points, trajectory
from drives.views import Paths, view_of

Floats = NDArray[np.float64]

WORST = 6  # frames
APART_S = 5.0  # s between two of them: as long as a plan, so that they aren't one event


def scenes(summary: Summary, drive: Drive) -> list[Scene]:
    """Frames of the featured (last) decoder, ordered by ADE@5s; each frame once.

    Frames without a plan have no error and are not among them.
    """
    name = list(summary.replay.settings)[-1]
    errors = ade(summary.decoder_distances[name], 5)
    times = np.array([window.observation.time for window in summary.replay.windows])
    return [
        _scene(summary, drive, name, title, place, index)
        for title, place, index in chosen(errors, times)
    ]


def chosen(errors: Floats, times: Floats) -> list[tuple[Title, int, int]]:
    """Which frames to show: title, place by error (1 is the worst), index.

    The worst are at most six, all worse than the median, and no two less than 5 s apart.

    Args:
        errors: [W] m; NaN where there is no plan.
        times: [W] s.
    """
    order = np.argsort(-errors, kind="stable")[: int(np.isfinite(errors).sum())]
    if not len(order):
        return []
    worst: list[int] = []
    for place, index in enumerate(order[: max(1, len(order) // 2)]):  # worse than the median
        if all(abs(times[index] - times[order[other]]) >= APART_S for other in worst):
            worst.append(place)
        if len(worst) == WORST:
            break
    shown: dict[int, Title] = dict.fromkeys(worst, "worst")
    shown.setdefault(len(order) // 2, "median")
    shown.setdefault(len(order) - 1, "best")
    return [(title, place + 1, int(order[place])) for place, title in shown.items()]


def _scene(
    summary: Summary, drive: Drive, name: str, title: Title, place: int, index: int
) -> Scene:
    observation = summary.replay.windows[index].observation
    plan = summary.replay.plans[name][index]
    rollouts = plan.rollouts[plan.valid]
    paths = Paths(trajectory(plan), summary.truth[index], rollouts)
    view, note = view_of(drive, observation, paths)
    errors = ade(summary.decoder_distances[name], 5)
    return Scene(
        title=title,
        place=place,
        of=int(np.isfinite(errors).sum()),
        decoder=name,
        frame=observation.frame,
        time=observation.time,
        intent=observation.intent.name.lower(),
        speed=float(observation.speeds[-1]),
        ade_5s=float(errors[index]),
        past=points(observation.positions),
        truth=points(paths.truth),
        plan=points(paths.plan),
        rollouts=[points(rollout) for rollout in rollouts],
        baselines={n: points(p[index]) for n, p in summary.baseline_trajectories.items()},
        text=summary.text(plan.tokens[0]),
        view=view,
        note=note,
    )
