"""Output folders that hold somebody else's files, and lists of drives that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.errors import SlipstreamError
from slipstream.fleet.drives import named
from slipstream.fleet.finished import check_folder, with_finished
from tests.slipstream.fleet.small import HAS_BUNDLE, items, job


@pytest.mark.parametrize("name", ["index.html", "summary.json", "notes.txt"])
def test_files_of_somebody_else_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(SlipstreamError, match="can't take the reports") as caught:
        check_folder(tmp_path)
    assert name in caught.value.found


@pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")
def test_a_report_of_another_slipstream_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "synthetic" / "report.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 99}))
    with pytest.raises(SlipstreamError, match="another slipstream") as caught:
        with_finished(items("synthetic"), tmp_path, job())
    assert "version 99" in caught.value.found


@pytest.mark.skipif(not HAS_BUNDLE, reason="no shipped bundle")
@pytest.mark.parametrize("text", ["", '{"version": 3', "[]", "{}", "[" * 100_000])
def test_a_damaged_report_is_made_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "synthetic" / "report.json"
    path.parent.mkdir()
    path.write_text(text)
    assert [item.finished for item in with_finished(items("synthetic"), tmp_path, job())] == [""]


def test_a_list_may_begin_with_a_mark_of_its_encoding(tmp_path: Path) -> None:
    path = tmp_path / "drives.txt"
    path.write_text("synthetic:1\nsynthetic:2\n", "utf-8-sig")
    assert named([f"@{path}"]) == ["synthetic:1", "synthetic:2"]


@pytest.mark.parametrize("content", [b"a\0b\n", b"\xff\xfe", b"", b"# none\n"])
def test_what_is_no_list_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "drives.txt"
    path.write_bytes(content)
    with pytest.raises(SlipstreamError, match="is no list of drives") as caught:
        named([f"@{path}"])
    assert "drives.txt" in caught.value.fix
