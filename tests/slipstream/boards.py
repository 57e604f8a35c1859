"""Files of a Jetson Orin Nano (JetPack 6.2) and a Thor (JetPack 7.0), laid out under a folder.

Contents are as NVIDIA documents them and as users print them; nothing was recorded by us.
"""

from __future__ import annotations

from pathlib import Path

ORIN = {
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, "
    "EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"
    "TARGET_USERSPACE_LIB_DIR=nvidia\n"
    "TARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n",
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0",
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0"
    "nvidia,tegra234\0",
    "etc/nvpmodel.conf": "# comments: < POWER_MODEL ID=9 NAME=NONE >\n"
    "< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n"
    "< POWER_MODEL ID=1 NAME=25W >\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"
    "< POWER_MODEL ID=3 NAME=7W >\n< PM_CONFIG DEFAULT=1 >\n",
    "var/lib/nvpmodel/status": "pmode:0001 fmode:fan_mode_quiet\n",
    "sys/class/devfreq/17000000.gpu/min_freq": "306000000\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "918000000\n",
    "sys/class/devfreq/15340000.vic/min_freq": "1\n",
    "sys/class/devfreq/15340000.vic/max_freq": "1\n",
    "proc/meminfo": "MemTotal:        7802976 kB\nMemFree:          403032 kB\n"
    "MemAvailable:    5121660 kB\n",
    "proc/cpuinfo": "".join(f"processor\t: {i}\nBogoMIPS\t: 62.50\n\n" for i in range(6)),
    "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\n',
    "usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "12.6.11"}}',
    "var/lib/dpkg/status": "Package: libnvinfer10\nStatus: install ok installed\n"
    "Architecture: arm64\nVersion: 10.3.0.30-1+cuda12.5\n\n"
    "Package: nvidia-jetpack\nStatus: install ok installed\nVersion: 6.2+b77\n\n"
    "Package: python3-libnvinfer\nStatus: install ok installed\nVersion: 10.3.0.30-1+cuda12.5\n\n"
    "Package: libnvinfer8\nStatus: deinstall ok config-files\nVersion: 8.6.2.3-1+cuda12.2\n",
}

THOR = {
    "etc/nv_tegra_release": "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, "
    "EABI: aarch64, DATE: Fri Aug 22 00:55:42 UTC 2025\n# KERNEL_VARIANT: oot\nINSTALL_TYPE=\n",
    "proc/device-tree/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "proc/device-tree/compatible": "nvidia,p3971-0080+p3834-0008\0nvidia,p3834-0008\0"
    "nvidia,tegra264\0",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=120W >\n"
    "< POWER_MODEL ID=2 NAME=90W >\n< POWER_MODEL ID=3 NAME=70W >\n",
    "var/lib/nvpmodel/status": "pmode:0000\n",
    "sys/class/devfreq/gpu-gpc-0/min_freq": "1575000000\n",
    "sys/class/devfreq/gpu-gpc-0/max_freq": "1575000000\n",
    "proc/meminfo": "MemTotal:       128824740 kB\nMemAvailable:   120112344 kB\n",
    "proc/cpuinfo": "".join(f"processor\t: {i}\n\n" for i in range(14)),
    "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\n',
    "usr/local/cuda-13.0/version.json": '{"cuda": {"name": "CUDA SDK", "version": "13.0.48"}}',
    "usr/lib/aarch64-linux-gnu/libnvinfer.so.10.13.3": "",
}


def lay(files: dict[str, str], root: Path) -> Path:
    """Write a board's files under a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return root
