"""Reading files that may be absent, unreadable or odd, under a root that tests can lay out."""

from __future__ import annotations

import json
import re
from pathlib import Path

MOST = 64 << 20  # bytes read of one file; dpkg's status is the largest, a few MB


def whole(text: str | None) -> int | None:
    """A number of up to 18 plain digits; None for anything else."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None


class Files:
    """The files of a machine. Nothing here raises: what can't be read is None."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @property
    def is_this_machine(self) -> bool:
        return self.root == Path("/")

    def text(self, path: str) -> str | None:
        """A file's text without NUL bytes (the device tree ends strings with them)."""
        try:
            place = self.root / path.lstrip("/")
            if not place.is_file():  # a pipe would never end
                return None
            with place.open("rb") as file:
                raw = file.read(MOST)
        except (OSError, ValueError):
            return None
        return raw.decode("utf-8", errors="replace").replace("\0", "\n").strip()

    def match(self, path: str, pattern: str) -> str | None:
        """The first group of a pattern's first match in a file."""
        found = re.search(pattern, self.text(path) or "", re.MULTILINE)
        return found.group(1).strip() if found else None

    def number(self, path: str) -> int | None:
        return whole(self.text(path))

    def json(self, path: str, *keys: str) -> str | None:
        """A string at nested keys of a JSON file."""
        try:
            found = json.loads(self.text(path) or "null")
        except (ValueError, RecursionError):
            return None
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str) else None

    def glob(self, pattern: str) -> list[str]:
        """Paths that match, as seen from the root, in order."""
        try:
            found = sorted(self.root.glob(pattern.lstrip("/")))
        except (OSError, ValueError, RuntimeError):  # a loop of links is a RuntimeError
            return []
        return ["/" + str(path.relative_to(self.root)) for path in found]

    def packages(self) -> dict[str, str]:
        """Installed Debian packages -> version."""
        found = {}
        for entry in (self.text("/var/lib/dpkg/status") or "").split("\n\n"):
            fields = dict(re.findall(r"^(Package|Version|Status): (.+)$", entry, re.MULTILINE))
            if fields.get("Status", "").endswith(" installed") and "Version" in fields:
                found[fields.get("Package", "")] = fields["Version"]
        return found
