"""A run says which report it will replace before it begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from drives.report import write_report
from drives.results import Report
from slipstream.commands.run import announce
from slipstream.commands.screen import Screen


def test_an_earlier_report_is_named(
    report: Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announce(tmp_path / "new", Screen())
    assert capsys.readouterr().out == ""
    write_report(report, tmp_path / "out")
    announce(tmp_path / "out", Screen())
    told = capsys.readouterr().out
    assert f"the report of {report.drive.name}" in told
    assert all(decoder.name in told for decoder in report.decoders)
    (tmp_path / "out" / "report.json").write_text("{")
    announce(tmp_path / "out", Screen())
    assert capsys.readouterr().out == ""
