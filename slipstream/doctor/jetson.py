"""A Jetson's board, JetPack, power mode and clocks, from files that need no root and no tool.

`nvpmodel -q` prints what is in /var/lib/nvpmodel/status and /etc/nvpmodel.conf; `jetson_clocks` is
seen at the GPU's devfreq node, whose lowest frequency it raises to the highest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.doctor.files import Files, whole

# SoC in the device tree -> compute capability of its GPU
CAPABILITY = {"tegra194": "7.2", "tegra234": "8.7", "tegra264": "11.0"}
# Jetson Linux release -> JetPack (NVIDIA's JetPack archive); others by their major number
JETPACK = {
    "36.2.0": "6.0 DP",
    "36.3.0": "6.0",
    "36.4.0": "6.1",
    "36.4.3": "6.2",
    "36.4.4": "6.2.1",
    "36.4.7": "6.2.1",
    "38.2.0": "7.0",
    "38.2.2": "7.0",
    "38.4.0": "7.1",
    "39.2.0": "7.2",
}
# releases that run on one SoC alone: a container does not see the device tree
_ONLY_SOC = {"36": "tegra234", "38": "tegra264"}
JETPACK_MAJOR = {"32": 4, "34": 5, "35": 5, "36": 6, "38": 7, "39": 7}


@dataclass(frozen=True)
class PowerMode:
    """A mode of nvpmodel."""

    number: int
    name: str

    @property
    def watts(self) -> float:
        """Its budget; unlimited for MAXN, and a little more than that for MAXN_SUPER."""
        if self.name.upper().startswith("MAXN"):
            return float("inf")
        found = re.search(r"(\d+)\s*W", self.name.upper())
        return float(found.group(1)) if found else 0.0

    @property
    def rank(self) -> tuple[float, bool]:
        return self.watts, self.name.upper().endswith("SUPER")


@dataclass(frozen=True)
class Jetson:
    """What is known of the board; None is unknown.

    Attributes:
        model: from the device tree. soc: tegra234 is Orin, tegra264 Thor.
        l4t: Jetson Linux release, 36.4.3. jetpack: its release; jetpack_major: 6 or 7.
        mode, fastest_mode: of nvpmodel. clocks_pinned: whether jetson_clocks is in effect.
    """

    model: str | None
    soc: str | None
    l4t: str | None
    jetpack: str | None
    jetpack_major: int | None
    mode: PowerMode | None
    fastest_mode: PowerMode | None
    clocks_pinned: bool | None

    @property
    def compute_capability(self) -> str | None:
        return CAPABILITY.get(self.soc or "")


def probe_jetson(files: Files, packages: Mapping[str, str]) -> Jetson | None:
    """The board, or None on any other machine."""
    model = files.text("/proc/device-tree/model")
    soc = files.match("/proc/device-tree/compatible", r"nvidia,(tegra\d+)$")
    l4t = _l4t(files)
    if l4t is None and soc is None and "jetson" not in (model or "").lower():
        return None
    modes = _modes(files)
    active = whole(files.match("/var/lib/nvpmodel/status", r"pmode:\s*(\d+)"))
    jetpack, major = _jetpack(l4t, packages)
    return Jetson(
        model=model.splitlines()[0] if model else None,
        soc=soc or _ONLY_SOC.get((l4t or "").split(".")[0]),
        l4t=l4t,
        jetpack=jetpack,
        jetpack_major=major,
        mode=None if active is None else modes.get(active),
        fastest_mode=max(modes.values(), key=lambda mode: mode.rank, default=None),
        clocks_pinned=_pinned(files),
    )


def _l4t(files: Files) -> str | None:
    text = files.text("/etc/nv_tegra_release") or ""
    found = re.search(r"R(\d+)\s*\([^)]*\),\s*REVISION:\s*([\d.]+)", text)
    if not found:
        return None
    parts = [found.group(1), *found.group(2).strip(".").split(".")]
    return ".".join([*parts, "0", "0"][:3])


def _jetpack(l4t: str | None, packages: Mapping[str, str]) -> tuple[str | None, int | None]:
    installed = re.match(r"([0-9]+)[0-9.]*", packages.get("nvidia-jetpack", ""))
    major = whole(installed.group(1)) if installed else None
    if installed and major is not None:
        return installed.group().strip("."), major
    if l4t is None:
        return None, None
    major = JETPACK_MAJOR.get(l4t.split(".")[0])
    return JETPACK.get(l4t) or (f"{major}.x" if major else None), major


def _modes(files: Files) -> dict[int, PowerMode]:
    """Modes declared as `< POWER_MODEL ID=2 NAME=MAXN_SUPER >`; comment lines start with #."""
    text = files.text("/etc/nvpmodel.conf") or ""
    found = re.findall(r"^<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=([^\s>]+)", text, re.MULTILINE)
    numbered = ((whole(number), name) for number, name in found)
    return {number: PowerMode(number, name) for number, name in numbered if number is not None}


def _pinned(files: Files) -> bool | None:
    for node in files.glob("/sys/class/devfreq/*"):
        if not re.search(r"gpu|ga10b|gv11b|gpc", node.rsplit("/", 1)[-1]):
            continue
        low, high = files.number(f"{node}/min_freq"), files.number(f"{node}/max_freq")
        if low is not None and high is not None:
            return low == high
    return None
