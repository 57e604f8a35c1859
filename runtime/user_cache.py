"""The folder in which slipstream keeps what can be made again: costs, engines, fetched drives."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.errors import SlipstreamError


def user_cache(part: str) -> Path:
    """`$XDG_CACHE_HOME/slipstream/PART`, by default under `~/.cache`.

    The XDG specification has relative paths ignored.

    Raises:
        SlipstreamError: no such variable, and a user without a home, as in some containers. What
            can do without the cache goes on without it, as where it can't be written.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):  # nothing says where this user's home is
        raise SlipstreamError(
            "this user has no cache folder",
            expected="a home, or an absolute path in XDG_CACHE_HOME",
            found="HOME is not set to a folder, and the system knows none of this user",
            fix="export XDG_CACHE_HOME=/tmp/cache, or any folder that this user may write to",
        )
    return Path(base) / "slipstream" / part
