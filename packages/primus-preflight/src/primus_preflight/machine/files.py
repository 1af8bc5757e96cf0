"""Small readers of the kernel's files: each says None where it could not read, and never a number that nobody wrote."""

from __future__ import annotations

import re

from primus_machine.host import HostRoot, integer

__all__ = ["GIB", "GPU_FOLDER", "bracketed", "cpus", "integer", "meminfo"]

GIB = 2**30
GPU_FOLDER = "/sys/bus/pci/devices"


def bracketed(text: str | None) -> str | None:
    """The word in brackets, which is the one that holds: `always [madvise] never`."""
    found = re.search(r"\[(\w+)\]", text or "")
    return found[1] if found else None


def meminfo(host: HostRoot, name: str) -> int | None:
    """A line of `/proc/meminfo`: bytes, or a count where it has no unit."""
    found = re.search(rf"(?m)^{name}:\s+([0-9]{{1,18}})( kB)?$", host.text("/proc/meminfo") or "")
    return int(found[1]) * (1024 if found[2] else 1) if found else None


def cpus(text: str | None) -> set[int]:
    """The CPUs in a list of the kernel: `0-3,8`."""
    found: set[int] = set()
    for first, last in re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text or ""):
        found |= set(range(int(first), int(last or first) + 1))
    return found
