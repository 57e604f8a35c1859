"""Figures over seeds, and the table, picture and page that show them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from runtime.errors import SlipstreamError
from slipstream.compare.agreement import agreements, read_comparison
from slipstream.compare.page import page
from slipstream.compare.picture import _behind_first, picture
from slipstream.compare.pooled import change, over_seeds, pooled, position_rates, section_tau, tau
from slipstream.compare.results import Comparison, Entry
from slipstream.compare.table import short_table, tables, verdicts


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_students_interval(count: int) -> None:
    values = np.random.default_rng(count).normal(8.0, 2.0, count)
    found = over_seeds(values.tolist())
    low, high = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-3)


def test_one_seed_has_no_interval() -> None:
    found = over_seeds([3.0])
    assert found.value == 3.0
    assert np.isnan([found.low, found.high]).all()


def test_changes_are_paired_by_seed(comparison: Comparison) -> None:
    base, better = comparison.entries
    doubled = change(better, base, tau("chain", 0.0))
    # the seeds differ a lot, their ratios not at all
    assert (doubled.value, doubled.low, doubled.high) == pytest.approx((1.0, 1.0, 1.0))
    assert pooled(base, tau("chain", 0.0)).high > 8.0
    assert pooled(base, section_tau("chain", 1.0, "trajectory")).value == pytest.approx(4.0)
    assert np.isnan(pooled(base, section_tau("chain", 1.0, "unknown")).value)
    assert position_rates(base, "chain", 0.0) == {1: 0.9, 2: 0.8}


def test_table_says_what_differs_and_what_failed(comparison: Comparison) -> None:
    text = "\n".join(table.markdown() for table in tables(comparison))
    assert "| base | 6.00 ±2.48 |" in text
    assert "+100.0 % [+100.0, +100.0]" in text
    assert "passed (9 checks; 2 of 3 faults told)" in text
    assert "FAILED: greedy" in text
    assert verdicts(comparison)[0].endswith("against base: better +100.0 %.")


def test_one_seed_says_so(comparison: Comparison) -> None:
    raw = json.loads(comparison.model_dump_json())
    raw["budget"]["seeds"] = [0]
    for entry in raw["entries"]:
        entry["seeds"] = entry["seeds"][:1]
    one = Comparison.model_validate(raw)
    assert verdicts(one)[0] == (
        "both, acceptance length at T = 0 against base: one seed: no interval."
    )
    notes = " ".join(table.note for table in tables(one))
    assert "Student" not in notes
    assert "`" not in notes
    shown = page(one, b"")
    assert "2 drafters, 1 seed<" in shown
    assert "none: one seed" in shown


def test_a_target_that_drafts_for_itself_has_no_sizes_of_a_drafter(comparison: Comparison) -> None:
    raw = json.loads(comparison.model_dump_json())
    raw["entries"][0] |= {"kind": "self", "layers": 0}
    for seed in raw["entries"][0]["seeds"]:
        seed |= {"parameters": 0, "weights_mb": 0.0}
    cost = tables(Comparison.model_validate(raw))[1]
    shown = {row[0]: dict(zip(cost.columns, row, strict=True)) for row in cost.rows}
    sizes = ("layers", "parameters", "graph MB")
    assert [shown["base"][name] for name in sizes] == ["-", "-", "-"]
    assert [shown["better"][name] for name in sizes] == ["3", "1.50 M", "6.5"]


def test_columns_that_say_nothing_are_left_out(comparison: Comparison) -> None:
    cost, sections = tables(comparison)[1:3]
    assert "training s" in cost.columns
    raw = json.loads(comparison.model_dump_json())
    for entry in raw["entries"]:
        for seed in entry["seeds"]:
            seed["train_s"] = 0.0 if entry["name"] == "base" else 2.34
            for each in seed["acceptance"]:
                each["by_section"]["motion"]["tau"] = None
    changed = Comparison.model_validate(raw)
    cost, shorter = tables(changed)[1:3]
    assert [row[cost.columns.index("training s")] for row in cost.rows] == ["-", "2.3 ±0.0"]
    assert shorter.columns == tuple(name for name in sections.columns if "motion" not in name)
    assert all(len(row) == len(shorter.columns) for row in shorter.rows)


def test_a_narrow_terminal_gets_what_matters(comparison: Comparison) -> None:
    table = short_table(comparison)
    assert table.columns == ("drafter", "T=0", "T=1", "draft ms", "frame ms", "against ar", "proof")
    assert table.rows[0] == ("base", "6.00", "5.00", "2.00", "100", "3.00x", "passed")
    assert table.rows[1][-1] == "FAILED"


def test_picture_and_page(comparison: Comparison) -> None:
    drawn = picture(comparison)
    assert drawn.startswith(b"\x89PNG")
    shown = page(comparison, drawn)
    assert "<h2>Acceptance length</h2>" in shown
    assert "http" not in shown.replace("http-equiv", "").replace("www.w3.org", "")


def test_names_of_many_drafters_do_not_cover_each_other(comparison: Comparison) -> None:
    few = _behind_first(comparison)
    assert [entry.name for entry, color in few if color] == ["base", "better"]
    entries = [
        entry.model_copy(update={"name": f"{entry.name} {kind} {i}", "kind": kind})
        for kind in ("dflash", "dflare")
        for i in range(5)
        for entry in comparison.entries
    ]
    shown = [entry for entry, color in _behind_first(_with(comparison, entries)) if color]
    assert len(shown) == 3
    assert shown[0] == entries[0]
    assert {(entry.kind, entry.name.split()[0]) for entry in shown[1:]} == {
        ("dflash", "better"),
        ("dflare", "better"),
    }


def _with(comparison: Comparison, entries: list[Entry]) -> Comparison:
    return comparison.model_copy(update={"entries": entries})


def test_agreement_within_both_intervals(comparison: Comparison, tmp_path: Path) -> None:
    (tmp_path / "compare.json").write_text(comparison.model_dump_json(), "utf-8")
    same = read_comparison(tmp_path / "compare.json")
    assert all(pair.agrees for pair in agreements(comparison, same))
    raw = json.loads(comparison.model_dump_json())
    for seed in raw["entries"][1]["seeds"]:
        seed["acceptance"][0]["tau"] = 30.0
    moved = agreements(comparison, Comparison.model_validate(raw))
    assert [(p.drafter, p.figure) for p in moved if not p.agrees] == [("better", "tau, chain T=0")]


def test_a_file_that_is_no_comparison(tmp_path: Path) -> None:
    path = tmp_path / "compare.json"
    for content in (None, "", "[]", '{"version": 9}'):
        if content is not None:
            path.write_text(content, "utf-8")
        with pytest.raises(SlipstreamError, match="is no comparison"):
            read_comparison(path)
