"""Run the command line as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def started(*arguments: str, cwd: Path, columns: int = 200) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "slipstream", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(columns)},
    )


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    process = started(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=240)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)
