"""What a report's figures say, in sentences that claim no more than the intervals allow."""

from __future__ import annotations

from dataclasses import dataclass

from drives.results import Decoder, Report
from drives.table import estimate


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
    speedup = estimate(decoder.speedup, "{:.2f}")
    usable = decoder.rollouts - sum(decoder.unusable.values())
    cards = [
        Headline(
            "p50 latency",
            f"{latency.p50:,.1f}",
            "ms",
            f"p90 {latency.p90:,.1f}, p99 {latency.p99:,.1f}",
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
    """Speed, sameness and accuracy of the featured decoder, each as a sentence."""
    decoder = featured(report)
    sentences = []
    if decoder.name != decoder.reference:
        sentences += [_speed(decoder), *_faster_peer(report, decoder), _sameness(decoder)]
    sentences.append(_accuracy(report, decoder))
    return sentences


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


def _faster_peer(report: Report, decoder: Decoder) -> list[str]:
    """A decoder under the same conditions that beats the featured one must not go unsaid."""
    peers = [d for d in report.decoders if d.reference == decoder.reference]
    best = min(peers, key=lambda d: d.latency_ms.mean.value or 0.0)
    if best is decoder:
        return []
    figures = [f"{d.latency_ms.mean.value or 0.0:,.1f} ms" for d in (best, decoder)]
    return [f"{best.name} has the lowest mean latency here: {figures[0]}, against {figures[1]}."]


def _sameness(decoder: Decoder) -> str:
    identity = decoder.identity
    assert identity is not None
    counts = f"{identity.identical} of {identity.rollouts}"
    if not identity.expected:
        return (
            f"{counts} outputs equal those of {identity.reference}; the rule "
            f"'{decoder.settings.accept}' promises the same distribution, not the same draws."
        )
    if identity.identical == identity.rollouts:
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
