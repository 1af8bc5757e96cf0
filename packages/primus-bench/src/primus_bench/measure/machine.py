"""What a benchmark must know of the machine and torch does not say, read through the kernel's one door to it."""

from __future__ import annotations

import platform

from primus_machine.host import HostRoot

__all__ = ["available_memory", "cpu_name", "last_level_cache", "pci_ids", "total_memory"]

_CPUS = "/sys/devices/system/cpu"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_level_cache(host: HostRoot) -> int | None:
    """Bytes of last-level cache, all sockets together; None where the kernel does not say."""
    cpus = [name for name in host.names(_CPUS) if name[3:].isdigit()]
    caches = {cache for cpu in cpus for cache in _caches(host, f"{_CPUS}/{cpu}/cache")}
    last = max((level for level, _, _ in caches), default=0)
    return sum(size for level, _, size in caches if level == last) or None


def _caches(host: HostRoot, folder: str) -> list[tuple[int, str, int]]:
    """Level, CPUs that share it, and bytes of each cache of one CPU. The sharing tells one cache from the next."""
    found = []
    for index in host.names(folder):
        level, shared, size = (host.text(f"{folder}/{index}/{name}") for name in ("level", "shared_cpu_list", "size"))
        if level and size and host.text(f"{folder}/{index}/type") != "Instruction":
            found.append((int(level), shared or "", _bytes(size)))
    return found


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdigit() else 0


def available_memory(host: HostRoot) -> int | None:
    """Bytes that a process can still take: what the machine has left, or a container's limit if that is less."""
    left = _of_meminfo(host, "MemAvailable:")
    limit, used = (host.text(f"/sys/fs/cgroup/memory.{name}") or "" for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        left.append(max(0, int(limit) - int(used)))
    return min(left, default=None)


def total_memory(host: HostRoot) -> int | None:
    """Bytes of memory that the machine has."""
    return next(iter(_of_meminfo(host, "MemTotal:")), None)


def _of_meminfo(host: HostRoot, name: str) -> list[int]:
    lines = (line.split() for line in (host.text("/proc/meminfo") or "").splitlines())
    return [int(words[1]) * 1024 for words in lines if words[:1] == [name]]


def cpu_name(host: HostRoot) -> str:
    """The processor's name as the kernel has it, or else its architecture."""
    for line in (host.text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()


def pci_ids(host: HostRoot, address: str) -> tuple[int, int] | None:
    """Vendor and device id of the PCI device at `address` (`0000:05:00.0`)."""
    vendor, device = (host.text(f"/sys/bus/pci/devices/{address}/{name}") for name in ("vendor", "device"))
    return (int(vendor, 16), int(device, 16)) if vendor and device else None
