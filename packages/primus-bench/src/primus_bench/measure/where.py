"""Where it was measured, for the result: machine, clocks, power, versions."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypedDict

from primus_bench.measure import machine
from primus_machine.gpus import state
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_bench.measure.device import Device

__all__ = ["Measured", "clocks", "described", "measured", "of_machine", "of_python", "of_ranks", "timer", "versions"]

_FREQUENCY = "/sys/devices/system/cpu/cpu0/cpufreq"


class Measured(TypedDict):
    """The parts of a result that every benchmark has alike."""

    machine: dict[str, Any]
    device: dict[str, Any]
    clocks: dict[str, Any]
    versions: dict[str, str]


def measured(device: Mapping[str, Any], hosts: Sequence[str], more: Mapping[str, str] | None = None) -> Measured:
    """Those parts, after the measurement. `hosts`: by rank; `more`: versions of what only one benchmark uses."""
    return {
        "machine": of_ranks(hosts),
        "device": dict(device),
        "clocks": clocks(),
        "versions": versions() | dict(more or {}),
    }


def described(device: Device) -> dict[str, Any]:
    """The device."""
    return {
        "kind": device.kind, "name": device.name, "architecture": device.architecture,
        "compute_units": device.compute_units, "model": device.model.name if device.model else None,
    }  # fmt: skip


def of_machine(host: HostRoot | None = None) -> dict[str, Any]:
    """The machine that this process runs on."""
    host = host or HostRoot()
    return {
        "host": host.hostname(), "cpu": machine.cpu_name(host), "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(), "last_level_cache_bytes": machine.last_level_cache(host),
        "memory_bytes": machine.total_memory(host),
    }  # fmt: skip


def of_ranks(hosts: Sequence[str]) -> dict[str, Any]:
    """This machine, and the job: its ranks, its nodes, and the node of each rank."""
    return {**of_machine(), "ranks": len(hosts), "nodes": list(dict.fromkeys(hosts)), "hosts": list(hosts)}


def timer(kind: str) -> str:
    """What timed the iterations on a device of that kind."""
    return "events on the device" if kind == "cuda" else "time.perf_counter_ns"


def clocks(host: HostRoot | None = None) -> dict[str, Any]:
    """What the machine says of its processor's clock, and of the GPU just now; None: it says nothing, as most virtual
    machines.
    """
    host = host or HostRoot()
    governor = host.text(f"{_FREQUENCY}/scaling_governor")
    kilohertz = {name: host.text(f"{_FREQUENCY}/{name}") or "" for name in ("scaling_cur_freq", "cpuinfo_max_freq")}
    megahertz = {name: int(text) / 1000 if text.isdigit() else None for name, text in kilohertz.items()}
    return {
        "cpu_governor": governor,
        "cpu_mhz": megahertz["scaling_cur_freq"],
        "cpu_max_mhz": megahertz["cpuinfo_max_freq"],
        **(_gpu(host, place) if (place := _own_gpu()) else {}),
    }


def _own_gpu() -> str:
    """The address of the GPU that this process measured on; empty: it used none, or no torch."""
    if "torch" not in sys.modules:
        return ""
    from primus_bench.measure.device import address

    return address()


def _gpu(host: HostRoot, place: str) -> dict[str, float | None]:
    """Clock, power and temperature of the GPU at that address."""
    now = state.read(host, place)
    found = {"gpu_mhz": now.mhz, "gpu_watts": now.watts, "gpu_celsius": now.celsius}
    return found if any(value is not None for value in found.values()) else _of_nvml()


def _of_nvml() -> dict[str, float | None]:
    """What NVIDIA's library says, if the package that binds it is here."""
    import torch

    try:
        nvml: Any = import_module("pynvml")
    except ImportError:
        return {}
    try:
        return {"gpu_mhz": torch.cuda.clock_rate(), "gpu_watts": torch.cuda.power_draw() / 1000,
                "gpu_celsius": torch.cuda.temperature()}  # fmt: skip
    except (RuntimeError, nvml.NVMLError):  # a virtual GPU tells nothing
        return {}


def of_python() -> dict[str, str]:
    """What ran, and when, where torch may not be installed."""
    return {"python": platform.python_version(), "measured": time.strftime("%Y-%m-%dT%H:%M:%S%z")}


def versions() -> dict[str, str]:
    """Of what measured, and when."""
    import torch  # a training with another framework is measured without it

    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.hip or torch.version.cuda:
        found |= {"rocm": torch.version.hip} if torch.version.hip else {"cuda": str(torch.version.cuda)}
    return found | of_python()
