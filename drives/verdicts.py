"""What a report's figures say, in sentences that claim no more than the intervals allow."""

from __future__ import annotations

from dataclasses import dataclass

from drives.bootstrap import LEAST_SEGMENTS
from drives.costs import LEAST_FOR_P99, OUTLIER
from drives.results import Decoder, Report
from drives.table import estimate, merged
from runtime.settings import UNVERIFIED


@dataclass(frozen=True)
class Headline:
    """One large figure of the page: what it is, its value, and a line below it."""

    label: str
    value: str
    unit: str
    note: str


def featured(report: Report) -> Decoder:
    """The decoder that the headline and the scenes speak of: the last one."""
    return report.decoders[-1]


def headlines(report: Report) -> list[Headline]:
    """The featured decoder's speed-up, latency, acceptance, error and soundness."""
    decoder = featured(report)
    latency, ade = decoder.latency_ms, estimate(decoder.accuracy.ade[5], "{:.2f}")
    p99 = "too few frames for p99" if latency.p99 is None else f"p99 {latency.p99:,.1f}"
    speedup = estimate(decoder.speedup, "{:.2f}")
    usable = decoder.rollouts - sum(decoder.unusable.values())
    cards = [
        Headline(
            "p50 latency",
            f"{latency.p50.value or 0.0:,.1f}",
            "ms",
            f"p90 {latency.p90:,.1f}, {p99}",
        ),
        Headline(
            "acceptance length",
            f"{decoder.acceptance_length:.2f}",
            "tokens",
            f"{decoder.target_passes:.1f} target passes a frame",
        ),
        Headline("ADE@5s", ade.text, "m", _interval(ade.interval)),
        Headline(
            "usable rollouts",
            f"{100 * usable / decoder.rollouts:.4g}",
            "%",
            f"{usable} of {decoder.rollouts}",
        ),
    ]
    if decoder.name != decoder.reference:
        note = f"over {decoder.reference}; {_interval(speedup.interval)}"
        cards.insert(0, Headline("speed-up", speedup.text, "×", note))
    return cards


def verdicts(report: Report) -> list[str]:
    """What must be known first, then speed, sameness and accuracy of the featured decoder."""
    decoder = featured(report)
    sentences = [*_training(report), *_stalls(report)]
    if decoder.name != decoder.reference:
        sentences += [_speed(decoder), *_faster_peer(report, decoder), _sameness(decoder)]
    sentences += _in_time(report, decoder)
    sentences += [_accuracy(report, decoder), *_compared(report)]
    return [*sentences, *_parting(report), *_few(report)]


def replayed(report: Report) -> str:
    """How many frames, and of how many windows."""
    known = report.drive.windows
    if known is not None and known >= report.frames:
        return f"{report.frames:,} of {known:,} windows"
    return "1 frame" if report.frames == 1 else f"{report.frames:,} frames"


def intervals(report: Report) -> str:
    """How the intervals were made, or why there are none."""
    made = report.intervals
    segments = "1 segment" if made.segments == 1 else f"{made.segments} contiguous segments"
    if made.segments < LEAST_SEGMENTS:
        return (
            f"None: {segments} of {made.segment_s:g} s; it takes {LEAST_SEGMENTS}. Neighbouring "
            "windows overlap, so frames are not resampled one by one."
        )
    return (
        f"95 %, block bootstrap: {segments} of {made.segment_s:g} s, {made.resamples} resamples, "
        f"seed {made.seed}. Neighbouring windows overlap, so frames are not resampled one by one."
    )


def to_beat(report: Report) -> str:
    """The best kinematic baseline at each horizon that the differences are read at."""
    last, near = report.best_kinematic(5), report.best_kinematic(3)
    named = f"{last.name.upper()} ({last.label})"
    if near.name == last.name:
        return f"{named} at 3 and at 5 s"
    return f"{named} at 5 s, {near.name.upper()} ({near.label}) at 3 s"


def training_frames(report: Report) -> int:
    """Replayed frames that the bundle was trained on, by its own record."""
    return report.training.frames if report.training else 0


def _training(report: Report) -> list[str]:
    known = report.training
    if known is None:
        return []
    if known.match == "data set":
        return [
            f"The bundle was trained on recordings of this data set ({known.entry}); whether this "
            "one is among them, its record does not say."
        ]
    if not known.frames:
        return [f"The bundle was trained on another part of this drive ({known.entry})."]
    return [
        f"Training data: {known.frames} of {report.frames} frames lie in what the bundle was "
        f"trained on ({known.entry}); their errors say nothing about other roads."
    ]


def _stalls(report: Report) -> list[str]:
    """Frames in which the machine stood still: named, and where they count."""
    stalled = {d.name: d.latency_ms for d in report.decoders if d.latency_ms.outliers}
    if not stalled:
        return []
    told = "; ".join(
        f"{name}: {_frames(latency.outliers)}, up to {latency.longest:,.0f} ms"
        for name, latency in stalled.items()
    )
    return [
        f"Slower than {OUTLIER:g} times the median ({told}). The means hold these frames; medians "
        "and speed-ups hardly feel them."
    ]


def _frames(numbers: list[int]) -> str:
    named = ", ".join(str(number) for number in numbers[:5])
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"{'frame' if len(numbers) == 1 else 'frames'} {named}{more}"


def _parting(report: Report) -> list[str]:
    """How often the rollouts parted or none was usable, and why some were left out."""
    sentences = []
    for group in report.same_plans():
        counts = [f"{flag} in {n}" for flag, n in group[0].flags.items()]
        if counts:
            sentences.append(f"{merged(group)}, of {report.frames} frames: {', '.join(counts)}.")
        if why := [f"{reason} ({n})" for reason, n in group[0].unusable.items()]:
            left_out = f"{sum(group[0].unusable.values())} of {group[0].rollouts} rollouts"
            sentences.append(f"{merged(group)} left out {left_out}: {', '.join(why)}.")
    return sentences


def _compared(report: Report) -> list[str]:
    """Which frames the errors leave out, and for whose sake."""
    lacking = report.leaderboards.without_plan
    mute = [name for name, count in lacking.items() if count == report.frames]
    sentences = [f"{name} has no plan on any frame, and no error figures." for name in mute]
    if report.leaderboards.frames < report.frames:
        asked = ", ".join(f"{n} lacks {count}" for n, count in lacking.items() if n not in mute)
        sentences.append(
            f"Errors, the baselines' too, are over the {report.leaderboards.frames} of "
            f"{report.frames} frames on which every decoder has a plan ({asked})."
        )
    return sentences


def _few(report: Report) -> list[str]:
    if report.frames >= LEAST_FOR_P99:
        return []
    return [f"No p99: with fewer than {LEAST_FOR_P99} frames it would be the slowest one."]


def _speed(decoder: Decoder) -> str:
    figure = decoder.speedup
    pair = f"{decoder.name} against {decoder.reference}"
    if figure.low is None or figure.high is None:
        return f"{pair}: too few segments of the drive for an interval of the speed-up."
    if figure.low > 1:
        return f"{pair}: faster, {figure.low:.2f} to {figure.high:.2f} times."
    if figure.high < 1:
        return f"{pair}: slower, {figure.low:.2f} to {figure.high:.2f} times as fast."
    return f"{pair}: no difference in latency that these frames can show."


def _in_time(report: Report, decoder: Decoder) -> list[str]:
    """Whether the deadline was kept, and with how many rollouts."""
    deadline, asked = decoder.deadline, decoder.settings.rollouts
    if deadline is None:
        return []
    kept = f"{deadline.frames_in_time} of {report.frames} frame{'s' if report.frames > 1 else ''}"
    told = f"{decoder.name} met the deadline of {deadline.budget_ms:g} ms on {kept}"
    if asked == 1:
        return [f"{told}."]
    taken = f"{deadline.rollouts.value or 0.0:.1f} of {asked} rollouts a frame"
    return [f"{told}, with {taken} ({deadline.fewest} to {deadline.most})."]


def _faster_peer(report: Report, decoder: Decoder) -> list[str]:
    """A decoder under the same conditions that beats the featured one must not go unsaid."""
    peers = [d for d in report.decoders if d.reference == decoder.reference]
    best = min(peers, key=lambda d: d.latency_ms.p50.value or 0.0)
    if best is decoder:
        return []
    figures = [f"{d.latency_ms.p50.value or 0.0:,.1f} ms" for d in (best, decoder)]
    return [f"{best.name} has the lowest median latency here: {figures[0]}, against {figures[1]}."]


def _sameness(decoder: Decoder) -> str:
    identity = decoder.identity
    assert identity is not None
    counts = f"{identity.identical} of {identity.rollouts}"
    if decoder.settings.method in UNVERIFIED:
        return (
            f"{decoder.settings.method} is not lossless: nothing verifies what it fills, and "
            f"{counts} outputs are those of {identity.reference}."
        )
    if not identity.expected:
        return (
            f"{counts} outputs equal those of {identity.reference}; the rule "
            f"'{decoder.settings.accept}' promises the same distribution, not the same draws."
        )
    if identity.identical == identity.rollouts:
        if identity.rollouts == 1:
            return f"The output equals that of {identity.reference}, token for token."
        return (
            f"All {identity.rollouts} outputs equal those of {identity.reference}, token for token."
        )
    return (
        f"Only {counts} outputs equal those of {identity.reference}, though they should: "
        "near ties of logits, or a fault."
    )


def _accuracy(report: Report, decoder: Decoder) -> str:
    best = report.best_kinematic(5)
    figure, label = decoder.versus_kinematic[best.name].ade_5s, best.label
    if figure.value is None:
        return f"{decoder.name} made no plan that could be compared with {label}."
    if figure.low is None or figure.high is None:
        return f"ADE@5s against {label}: too few segments of the drive for an interval."
    size = f"{figure.low:+.2f} to {figure.high:+.2f} m".replace("-", "−")
    if not figure.excludes_zero:
        return f"ADE@5s can't be told from that of {label}, the best kinematic baseline ({size})."
    word = "lower" if figure.value < 0 else "higher"
    return f"ADE@5s is {word} than that of {label}, the best kinematic baseline here ({size})."


def _interval(text: str) -> str:
    return f"95 %: {text}" if text else "too few segments for an interval"
