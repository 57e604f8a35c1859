"""Pictures are drawn whatever the environment says of matplotlib, or refused before the work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drives.canvas import _own_environment
from runtime.errors import SlipstreamError
from slipstream.commands import session
from tests.drives.conftest import ROOT

DRAW = "from drives.pictures import draw; print(draw(3, 2, lambda canvas: canvas.subplots())[:4])"
UNTOUCHED = ("MPLBACKEND", "MPLCONFIGDIR")


@pytest.mark.parametrize("name", ["MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"])
def test_a_loop_of_links_is_not_looked_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for each in ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(each, str(tmp_path / each))
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    if name != "MPLCONFIGDIR":
        monkeypatch.delenv("MPLCONFIGDIR")
    with _own_environment():
        assert "MPLBACKEND" not in os.environ
        assert os.environ.get("MPLCONFIGDIR") in (None, str(tmp_path / "MPLCONFIGDIR"))
    monkeypatch.setenv(name, str(tmp_path / "loop"))
    before = {each: os.environ.get(each) for each in UNTOUCHED}
    with _own_environment():
        spare = Path(os.environ["MPLCONFIGDIR"])
        assert spare.is_dir()
    assert not spare.exists()
    assert {each: os.environ.get(each) for each in UNTOUCHED} == before


def test_no_backend_and_no_folder_keep_it_from_drawing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    odd = {"MPLBACKEND": "nonsense", "MPLCONFIGDIR": str(tmp_path / "loop")}
    done = python(DRAW, odd)
    assert (done.stdout, done.stderr) == ("<svg\n", "")


def test_settings_that_are_no_text_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "rc").write_bytes(b"\xff\xfe")
    done = python(DRAW, {"MATPLOTLIBRC": str(tmp_path / "rc")})
    assert "SlipstreamError: matplotlib, which draws the pictures, can't be imported" in done.stderr
    assert "unset MATPLOTLIBRC" in done.stderr


def test_what_can_not_be_drawn_is_told_before_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_page() -> None:
        raise SlipstreamError("no matplotlib")

    monkeypatch.setattr(session, "check_page", check_page)
    nothing: Any = None
    with pytest.raises(SlipstreamError, match="no matplotlib"):
        session.replay_and_report(
            nothing, nothing, [], {}, "medoid", Path("out"), skipped={}, console=nothing
        )


def python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
