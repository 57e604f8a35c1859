"""The report's page: what it shows, that it needs nothing else, and how it is written."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

import drives.page
from drives.page import page
from drives.pictures import METHOD
from drives.replay import Replay
from drives.report import PAGE, check_output, write_report
from drives.results import Report
from drives.verdicts import headlines, verdicts
from drives.windows import windows
from runtime.errors import SlipstreamError
from runtime.settings import DecodeSettings, Method
from slipstream.commands.terminal import show_report
from tests.drives.kinematic_planner import KinematicPlanner
from tests.drives.kinematic_report import DRIVE, SETTINGS, replayed, reported


def test_every_decoder_has_a_colour_by_day_and_by_night() -> None:
    styles = (Path(drives.page.__file__).parent / "templates" / "report.css").read_text("utf-8")
    assert set(METHOD) == set(get_args(Method))
    for method in METHOD:
        assert len(re.findall(rf"--{method}: #", styles)) == 2


class Outside(HTMLParser):
    """Collects what a page would load from elsewhere, and its element stack."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]


def test_the_page_needs_nothing_outside_of_it(report: Report) -> None:
    html = page(report)
    parser = Outside()
    parser.feed(html)
    assert parser.links == []
    assert "script" not in parser.tags
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert parser.tags.count("svg") == 5 + len(report.scenes)
    assert not re.search(r"#0101[0-9a-f]{2}", html)  # stand-in colours all became variables
    for name in (
        *SETTINGS,
        "CTRA",
        "constant turn rate and acceleration",
        "Best",
        "SYNTHETIC DRIVE",
    ):
        assert name.lower() in html.lower()
    assert "prefers-color-scheme: dark" in html


def test_text_from_outside_is_escaped(result: Replay) -> None:
    report = reported(result, replace(DRIVE, name="<script>x</script>", synthetic=False))
    html = page(report)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "SYNTHETIC DRIVE" not in html


def test_a_planner_that_never_plans_still_gets_its_report(tmp_path: Path) -> None:
    class Mute(KinematicPlanner):
        def problems(self, n: int, frame: int) -> tuple[str, ...]:
            return ("parse: number",) * n

    report = reported(replayed(Mute(), ar=DecodeSettings(method="ar")))
    assert report.decoders[0].accuracy.ade[5].value is None
    assert report.decoders[0].frames_without_plan == 60
    assert report.scenes == []
    assert "Worst frames first" not in write_report(report, tmp_path / "r").read_text()
    assert headlines(report)[-1].value == "0"


def test_an_older_report_is_replaced_and_nothing_else_is(report: Report, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_report(report, folder)
    (folder / PAGE).write_text("old")
    write_report(report, folder)
    assert (folder / PAGE).read_text() != "old"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(SlipstreamError, match="not replaced"):
        write_report(report, folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(SlipstreamError, match="a file"):
        check_output(file)
    (folder / "notes.txt").unlink()
    (folder / "..01234567-1.abc.tmp").mkdir()  # another machine fills this mount
    check_output(folder)
    (folder / PAGE).unlink()
    with pytest.raises(SlipstreamError, match="half of a report"):
        check_output(folder)


def test_a_failed_write_leaves_nothing(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.write_text

    def full(self: Path, *args: Any, **kwargs: Any) -> int:
        if self.name == PAGE:
            raise OSError(28, "No space left on device")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(SlipstreamError, match="No space left"):
        write_report(report, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_flags_of_the_plans_are_told(result: Replay) -> None:
    parted = [
        replace(plan, flags=("two modes",)) if place % 3 == 0 else plan
        for place, plan in enumerate(result.plans["ar ×4"])
    ]
    report = reported(replace(result, plans={**result.plans, "ar ×4": parted}))
    told = [sentence for sentence in verdicts(report) if "two modes" in sentence]
    assert any("of 60 frames" in sentence and "two modes in 20" in sentence for sentence in told)
    assert "two modes (20)" in page(report)
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert "two modes in 20" in console.file.getvalue()


def test_frames_stand_beside_the_windows_that_there_are(report: Report) -> None:
    cut = len(windows(DRIVE))
    assert report.drive.windows == cut
    assert f"60 of {cut} windows" in page(report)
    console = Console(width=200, file=io.StringIO())
    show_report(report, console)
    assert f"60 of {cut} windows of {DRIVE.name}" in console.file.getvalue()  # type: ignore[attr-defined]
    uncounted = report.drive.model_copy(update={"windows": None})
    assert "60 frames" in page(report.model_copy(update={"drive": uncounted}))


def test_conventions_can_be_opened_without_a_pointer(report: Report) -> None:
    html = page(report)
    assert html.count('<details class="columns">') == html.count('<div class="scroll"><table>')
    assert "What the columns mean" in html
