"""Small readers of the kernel's files: each says None where it could not read, and never a number that nobody wrote."""

from __future__ import annotations

import re

from primus_machine.host import HostRoot, integer

__all__ = ["GIB", "GPU_FOLDER", "bracketed", "cpus", "integer", "is_shown", "meminfo", "shows_gpus", "shows_network"]

GIB = 2**30
GPU_FOLDER = "/sys/bus/pci/devices"
_GPU_LISTS = (GPU_FOLDER, "/sys/class/kfd/kfd/topology/nodes", "/proc/driver/nvidia/gpus")


def is_shown(host: HostRoot, folder: str) -> bool:
    """Return whether the machine says what a folder holds, if only that it is missing: a capture may not."""
    above, _, name = folder.rpartition("/")
    return host.is_here or name in host.names(above) or bool(host.access(folder))


def shows_gpus(host: HostRoot) -> bool:
    """Return whether the machine would show a GPU if it had one."""
    return any(is_shown(host, folder) for folder in _GPU_LISTS)


def shows_network(host: HostRoot) -> bool:
    """Return whether the machine shows its adapters. Each has an interface, `lo`: where none is seen, none is shown."""
    return bool(host.names("/sys/class/net")) or is_shown(host, "/sys/class/infiniband")


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
