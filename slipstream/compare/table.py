"""The table of a comparison: one row a drafter, figures with their spread over the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from drives.bootstrap import Interval
from slipstream.compare.pooled import (
    Reading,
    change,
    passes,
    pooled,
    position_rates,
    section_tau,
    tau,
)
from slipstream.compare.results import Comparison, Entry, Shape, Study

_NOTHING = "-"
_FEW_S = 10.0  # below them, tenths are shown


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first column names the drafter."""

    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table as a Markdown section."""
        head = "| " + " | ".join(self.columns) + " |\n"
        head += "| " + " | ".join("---" for _ in self.columns) + " |\n"
        body = "".join("| " + " | ".join(row) + " |\n" for row in self.rows)
        return f"### {self.title}\n\n{self.note}\n\n{head}{body}"

    def filled(self) -> Table:
        """Without the columns that say nothing of any drafter."""
        kept = [i for i in range(len(self.columns)) if any(row[i] != _NOTHING for row in self.rows)]
        columns = tuple(self.columns[i] for i in kept)
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return replace(self, columns=columns, rows=rows)


def tables(comparison: Comparison) -> list[Table]:
    """Acceptance, cost, sections and positions of all entries, then one table a study."""
    found = [
        acceptance_table(comparison),
        cost_table(comparison),
        section_table(comparison),
        position_table(comparison),
        *(study_table(comparison, study) for study in comparison.studies),
    ]
    return [table.filled() for table in found]


def short_table(comparison: Comparison) -> Table:
    """What matters most, for a narrow terminal."""
    shape = comparison.entries[0].seeds[0].acceptance[0].shape
    heats = [each.temperature for each in comparison.entries[0].seeds[0].acceptance]
    heats = sorted(set(heats))
    rows = [
        (
            entry.name,
            *(f"{pooled(entry, tau(shape, heat)).value:.2f}" for heat in heats),
            f"{pooled(entry, lambda m: m.draft_ms).value:.2f}",
            f"{pooled(entry, lambda m: m.latency_ms).value:.0f}",
            f"{pooled(entry, lambda m: m.speedup).value:.2f}x",
            _proof(entry, short=True),
        )
        for entry in comparison.entries
    ]
    return Table(
        f"Acceptance length ({shape}) and cost",
        "",
        (
            "drafter",
            *(f"T={heat:g}" for heat in heats),
            "draft ms",
            "frame ms",
            "against ar",
            "proof",
        ),
        tuple(rows),
    )


def acceptance_table(comparison: Comparison) -> Table:
    measured = comparison.entries[0].seeds[0].acceptance
    shown = [(each.shape, each.temperature) for each in measured]
    columns = [f"{shape} T={heat:g}" for shape, heat in shown]
    rows = [
        (
            entry.name,
            *(text(pooled(entry, tau(*key))) for key in shown),
            *(text(pooled(entry, _tokens(key))) for key in shown[:1]),
        )
        for entry in comparison.entries
    ]
    return Table(
        "Acceptance length",
        "Tokens committed per verification round over the whole output, scaffold and the target's "
        f"own included; {_spread(comparison)}. "
        f"Blocks of {comparison.block}, trees of {comparison.nodes} nodes. Last column: output "
        "tokens a target pass.",
        ("drafter", *columns, f"tokens/pass, {columns[0]}"),
        tuple(rows),
    )


def cost_table(comparison: Comparison) -> Table:
    columns = (
        "drafter",
        "architecture",
        "layers",
        "parameters",
        "draft pass ms",
        "draft share",
        "KV MB",
        "graph MB",
        "frame ms",
        "against ar",
        "against ar-scaffold",
        "training s",
        "proof",
    )
    rows = [
        (
            entry.name,
            entry.kind,
            str(entry.layers or _NOTHING),
            _millions(entry.seeds[0].parameters),
            text(pooled(entry, lambda m: m.draft_ms)),
            text(pooled(entry, lambda m: 100 * m.draft_share), digits=0) + " %",
            f"{max(m.cache_mb for m in entry.seeds):.2f}",
            f"{entry.seeds[0].weights_mb:.1f}" if entry.seeds[0].weights_mb else _NOTHING,
            text(pooled(entry, lambda m: m.latency_ms), digits=0),
            text(pooled(entry, lambda m: m.speedup)) + "x",
            text(pooled(entry, lambda m: m.speedup_scaffold)) + "x",
            _training(entry),
            _proof(entry),
        )
        for entry in comparison.entries
    ]
    return Table(
        "Cost",
        "A chain at temperature 0, each frame in turn with ar and ar-scaffold; the ratios are "
        "medians of frames measured side by side. Proof: slipstream verify on the first seed.",
        columns,
        tuple(rows),
    )


def section_table(comparison: Comparison) -> Table:
    sections = list(comparison.entries[0].seeds[0].acceptance[0].by_section)
    heats = _ends(comparison)
    columns = [f"{name} T={heat:g}" for heat in heats for name in sections]
    rows = [
        (
            entry.name,
            *(
                text(pooled(entry, section_tau("chain", heat, name)))
                for heat in heats
                for name in sections
            ),
        )
        for entry in comparison.entries
    ]
    return Table(
        "Acceptance length by section of the output",
        "Chains. Sections before the fork are greedy at every temperature.",
        ("drafter", *columns),
        tuple(rows),
    )


def position_table(comparison: Comparison) -> Table:
    places = (1, 2, 3, 4, 6, 8, 12, 15)
    heats = _ends(comparison)
    rates = {
        (entry.name, heat): position_rates(entry, "chain", heat)
        for entry in comparison.entries
        for heat in heats
    }
    rows = [
        (
            entry.name,
            *(_percent(rates[entry.name, heat].get(place)) for heat in heats for place in places),
        )
        for entry in comparison.entries
    ]
    return Table(
        "Acceptance by place in the block",
        "Share of the value tokens drafted at a place that stood; 1 is the first behind the anchor."
        " A token stands only if all before it do.",
        ("drafter", *(f"{place} T={heat:g}" for heat in heats for place in places)),
        tuple(rows),
    )


def study_table(comparison: Comparison, study: Study) -> Table:
    base = comparison.entry(study.base)
    heats, section = _ends(comparison), _forked(comparison)
    readings: list[tuple[str, Reading]] = []
    for heat in heats:
        readings += [
            (f"tau T={heat:g}", tau("chain", heat)),
            (f"tau {section} T={heat:g}", section_tau("chain", heat, section)),
            (f"passes T={heat:g}", passes("chain", heat)),
        ]
    rows = [
        (name, *(_change(change(comparison.entry(name), base, read)) for _, read in readings))
        for name in study.entries
        if name != study.base
    ]
    return Table(
        study.name,
        f"{study.question} Change against {study.base}, {_paired(comparison)}.",
        ("drafter", *(label for label, _ in readings)),
        tuple(rows),
    )


def verdicts(comparison: Comparison) -> list[str]:
    """For each study, which entries differ from its base beyond the seeds' spread."""
    said = []
    for study in comparison.studies:
        base = comparison.entry(study.base)
        for heat in _ends(comparison):
            sure, settled = [], False
            for name in study.entries:
                if name == study.base:
                    continue
                found = change(comparison.entry(name), base, tau("chain", heat))
                settled = settled or isfinite(found.low)
                if found.excludes_zero:
                    sure.append(f"{name} {100 * found.value:+.1f} %")
            nothing = "no entry differs beyond the seeds' spread"
            what = ", ".join(sure) or (nothing if settled else "one seed: no interval")
            said.append(
                f"{study.name}, acceptance length at T = {heat:g} against {study.base}: {what}."
            )
    return said


def text(interval: Interval, digits: int = 2) -> str:
    """`7.42 ±0.31`; without the half-width where there is one seed."""
    if not isfinite(interval.value):
        return _NOTHING
    half = (interval.high - interval.low) / 2
    return f"{interval.value:.{digits}f}" + (f" ±{half:.{digits}f}" if isfinite(half) else "")


def _change(interval: Interval) -> str:
    if not isfinite(interval.value):
        return _NOTHING
    value = f"{100 * interval.value:+.1f} %"
    if not isfinite(interval.low):
        return value
    return f"{value} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"


def _millions(parameters: int) -> str:
    """Of the drafter's own; a target that drafts for itself has none."""
    return f"{parameters / 1e6:.2f} M" if parameters else _NOTHING


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{100 * value:.0f} %"


def _training(entry: Entry) -> str:
    """Wall time, s; a checkpoint from elsewhere took none here."""
    took = pooled(entry, lambda m: m.train_s)
    if took.value == 0:
        return _NOTHING
    return text(took, digits=0 if took.value >= _FEW_S else 1)


def _spread(comparison: Comparison) -> str:
    if len(comparison.budget.seeds) == 1:
        return "one seed: no interval"
    return "mean over the seeds ± half of Student's 95 % interval"


def _paired(comparison: Comparison) -> str:
    if len(comparison.budget.seeds) == 1:
        return _spread(comparison)
    return "paired by seed, with Student's 95 % interval"


def _proof(entry: Entry, *, short: bool = False) -> str:
    if entry.proof is None:
        return "not run"
    proof = entry.proof
    if not proof.passed:
        return "FAILED" if short else "FAILED: " + ", ".join(proof.failed)
    if short:
        return "passed"
    told = f"{proof.faults - len(proof.missed)} of {proof.faults} faults told"
    return f"passed ({proof.checks} checks; {told})"


def _ends(comparison: Comparison) -> Sequence[float]:
    """The coldest and the hottest temperature that was measured."""
    heats = sorted({each.temperature for each in comparison.entries[0].seeds[0].acceptance})
    return heats if len(heats) == 1 else (heats[0], heats[-1])


def _forked(comparison: Comparison) -> str:
    """The output's last section: the one that is sampled."""
    return list(comparison.entries[0].seeds[0].acceptance[0].by_section)[-1]


def _tokens(key: tuple[Shape, float]) -> Reading:
    return lambda measured: measured.of(*key).tokens_per_pass
