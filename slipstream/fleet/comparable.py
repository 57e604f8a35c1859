"""What of a report must be the same when the same replay runs again, wherever and beside whatever.

Times are not. Nor is what the cost gate decides by times, where it decides: how wide blocks are, so
how many passes there were and how many drafts stood. With a given block (and a given tree) nothing
depends on times, and all of it is compared.
"""

from __future__ import annotations

from typing import Any

from drives.results import Report, Settings
from runtime.settings import DRAFTING

Json = dict[str, Any]

_RUN = ("created", "command", "machine", "wall_s")
_TIMES = (
    "latency_ms",
    "speedup",
    "stages_ms",
    "host_share",
    "ttft_ms",
    "tpot_ms",
    "tokens_per_s",
)
_GATED = (
    "target_passes",
    "draft_passes",
    "tokens_per_pass",
    "acceptance_length",
    "acceptance_rate",
    "by_position",
    "by_section",
    "cache_mb",
    "device_mb",
)


def comparable(report: Report) -> Json:
    """A report without its times, nor what depends on them; equal for equal replays."""
    everything: Json = report.model_dump(mode="json")
    gated = {each.name for each in report.decoders if by_the_gate(each.settings)}
    for row in everything["rows"]:
        _drop(row, row["decoder"] in gated)
    for decoder in everything["decoders"]:
        _drop(decoder, decoder["name"] in gated)
    return {name: value for name, value in everything.items() if name not in _RUN}


def by_the_gate(settings: Settings) -> bool:
    """Whether the cost gate chooses widths by what passes took."""
    if settings.method not in DRAFTING:
        return False
    return settings.block is None or (settings.method == "ddtree" and settings.nodes is None)


def _drop(figures: Json, gated: bool) -> None:
    for name in (*_TIMES, *(_GATED if gated else ())):
        figures.pop(name, None)
