"""What machine a run had, for `env/system_info.json`: read through the facts' host, so that a capture holds it too."""

from __future__ import annotations

from typing import Any

from primus_machine.facts import Facts
from primus_machine.gpus.devices import Gpu
from primus_machine.host import HostRoot

__all__ = ["describe", "memory_bytes"]

_BEGINNING = 4096
"""Enough of `/proc/cpuinfo` for its first CPU: the whole of it takes milliseconds on a large machine."""
_FIRST_LINE = 40
"""Of `/proc/meminfo`: `MemTotal:       1583907172 kB`. What follows is of the moment, and no fact of the machine."""


def describe(facts: Facts) -> dict[str, Any]:
    """The machine as JSON values."""
    host = facts.host
    return {
        "host": facts.hostname,
        "kernel": host.text("/proc/sys/kernel/osrelease") or "",
        "os": _os(host),
        "cpu_model": _after(host.text("/proc/cpuinfo", _BEGINNING) or "", "model name", ":"),
        "cpu_count": facts.cpu_count,
        "memory_bytes": memory_bytes(host),
        "numa_cpus": {str(node): cpus for node, cpus in facts.numa_cpus.items()},
        "gpu_model": facts.gpu_model,
        "physical_gpus": facts.physical_gpus,
        "gpus": [_describe_gpu(gpu) for gpu in facts.gpus],
        "driver": facts.driver,
        "rocm": facts.rocm,
        "cuda": facts.cuda,
        "network_ports": [port._asdict() for port in facts.network.ports],
        "notes": list(facts.notes),
    }


def _describe_gpu(gpu: Gpu) -> dict[str, Any]:
    """Return what a GPU is. Which one it is, its number and its id, is no fact that two runs could share."""
    return {name: value for name, value in gpu._asdict().items() if name not in ("ordinal", "uuid")}


def _os(host: HostRoot) -> str:
    return _after(host.text("/etc/os-release") or "", "PRETTY_NAME", "=").strip("\"'")


def memory_bytes(host: HostRoot) -> int:
    """The machine's memory; 0: it is not known."""
    words = _after(host.text("/proc/meminfo", _FIRST_LINE) or "", "MemTotal", ":").split()
    return int(words[0]) * 1024 if words and words[0].isdecimal() else 0


def _after(text: str, key: str, separator: str) -> str:
    """The value on the first line that begins with `key`."""
    lines = (line.partition(separator) for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")
