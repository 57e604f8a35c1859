"""A bundle's prompt, written once in a process of its own: a checkpoint's templates are programs.

jinja's sandbox keeps them from files and from Python's insides, but not from loops without an end
or texts that fill the memory. Here a process with limits of its own finds that out.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np

from planners.cameras import CameraPrompts
from planners.observation import Observation
from planners.tokens import SpecialNames, Tokenizer
from runtime.bundle import MANIFEST, Bundle, Manifest
from runtime.errors import BundleError, SlipstreamError

SECONDS = 1  # of computing; a prompt takes some milliseconds
MEMORY = 1 << 30  # bytes more than the process began with
_PATIENCE = 120.0  # s, on a machine that is busy with other things
_RUN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from planners.prompt_trial import main; main()"
)
_FIX = "save the VLM's own chat template beside its weights (see docs/cameras.md)"


def try_prompt(folder: Path, rows: int, home: Path) -> None:
    """Write the prompt of a vehicle at rest, with a bundle's templates and cameras.

    Args:
        folder: of a bundle that is whole but for its name.
        rows: that the cache has for it.
        home: of the templates, where they are to be mended.

    Raises:
        SlipstreamError: the templates can't write it, don't show the cameras, take too long or too
            much memory, or the prompt doesn't fit.
    """
    command = [sys.executable, "-I", "-c", _RUN, json.dumps(sys.path), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise _endless(f"no end within {_PATIENCE:.0f} s") from error
    if done.returncode:
        raise _endless(f"it was stopped with {done.returncode} {done.stderr[-200:].strip()}")
    found = json.loads(done.stdout)
    if "what" in found:
        raise BundleError(found.pop("what").replace(str(folder), str(home)), **found)
    if found["rows"] >= rows:
        raise SlipstreamError(
            "the prompt does not fit the cache",
            expected=f"--trunk and --max-position above {found['rows']}, and room for the output",
            found=str(rows),
            fix="raise both, or make the pictures smaller with --max-pixels",
        )


def main() -> None:
    """Print the prompt's rows, or what is wrong with it, as JSON."""
    folder = Path(sys.argv[2])
    bundle = Bundle(folder, Manifest.model_validate_json((folder / MANIFEST).read_bytes()))
    manifest = bundle.manifest
    special = SpecialNames(manifest.null_token, manifest.mask_token, manifest.eos_token)
    tokenizer = Tokenizer.load(folder / manifest.tokenizer, special, vocab=manifest.target.vocab)
    still = Observation(np.zeros((16, 2)), *np.zeros((4, 16)))
    _limit()
    try:
        found = {"rows": len(CameraPrompts(bundle, tokenizer).prompt(still, None))}
    except SlipstreamError as error:
        found = {key: getattr(error, key) for key in ("what", "expected", "found", "fix")}
    print(json.dumps(found))


def _limit() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with suppress(OSError, ValueError):  # not Linux: time alone is limited
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _endless(found: str) -> SlipstreamError:
    return SlipstreamError(
        "the chat template or prompt.json does not write a prompt",
        expected=f"a text within {SECONDS} s and {MEMORY >> 20} MB",
        found=found,
        fix=_FIX,
    )
