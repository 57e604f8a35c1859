"""What the command line makes of odd streams, arguments and signals, before any command begins."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time

import pytest

from runtime.errors import SlipstreamError
from slipstream.cli import process
from tests.slipstream.command import ROOT

WAITING = """
import sys, time
from slipstream.cli import process
process.settle_signals()
try:
    print("waiting", flush=True)
    time.sleep(30)
finally:
    print("left", flush=True)
"""


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_a_stream_cannot_encode_is_replaced(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding=encoding))
    process.settle_streams()
    print("• ━ done", flush=True)
    print("• no", file=sys.stderr, flush=True)
    assert raw.getvalue() == b"? ? done\n\\u2022 no\n"


def test_streams_that_are_closed_or_full_take_no_exit_code_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    process.settle_streams()
    print("nobody reads this")
    process.complain("nor this")
    for closed in ("2>&-", ">&- 2>&-", "2>/dev/full"):
        line = f'"{sys.executable}" -m slipstream inspect nowhere {closed}'
        assert subprocess.run(["sh", "-c", line], cwd=ROOT, check=False).returncode == 2


def test_arguments_that_are_no_text_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from slipstream import cli

    bad = os.fsdecode(b"dr\xff/poses/04.txt")
    process.check_arguments(["run", "Fahrt-über-Land", "--drive", "運転"])
    with pytest.raises(SlipstreamError, match=r"the argument 'dr\\xff/poses/04.txt' is no text"):
        process.check_arguments(["run", "--drive", bad])
    monkeypatch.setattr(process, "settle_signals", lambda: None)
    monkeypatch.setattr(sys, "argv", ["slipstream", "run", "b", "--drive", bad, "-o", "out"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "is no text" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_an_asked_for_end_leaves_through_every_finally(number: signal.Signals) -> None:
    with waiting() as running:
        running.send_signal(number)
        assert running.communicate(timeout=30)[0] == "left\n"
        assert running.returncode == 128 + number


def test_a_hangup_that_is_ignored_stays_so() -> None:
    with waiting("trap '' HUP; ") as running:
        running.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert running.poll() is None
        running.terminate()
        assert running.communicate(timeout=30)[0] == "left\n"
        assert running.returncode == 128 + signal.SIGTERM


def waiting(before: str = "") -> subprocess.Popen[str]:
    """A process that waits for a signal."""
    line = f'{before}exec "$@"'
    running = subprocess.Popen(
        ["sh", "-c", line, "sh", sys.executable, "-c", WAITING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "waiting\n"
    return running
