"""Device, clocks, power, versions and method of a document as text: every form of a report shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from primus_bench.report.document import Document
from primus_machine.units import counted

__all__ = ["of", "place"]

_UNKNOWN = "not known: the machine does not report it"
_CLOCKS = (
    ("cpu_governor", "CPU governor {}"),
    ("cpu_mhz", "CPU {:.0f} MHz"),
    ("cpu_max_mhz", "CPU at most {:.0f} MHz"),
    ("gpu_mhz", "GPU {:.0f} MHz after the last iteration"),
)
_POWER = (("gpu_watts", "GPU {:.0f} W after the last iteration"), ("gpu_celsius", "{:.0f} °C"))


def of(found: Document) -> dict[str, str]:
    """One text for each."""
    return {
        "measured": f"on {found.machine.get('host') or _UNKNOWN}, {found.versions.get('measured') or _UNKNOWN}",
        "steady": _steady(found.steadiness),
        "device": ", ".join(_device(found.device)) or _UNKNOWN,
        "clocks": _listed(found.clocks, _CLOCKS),
        "power": _listed(found.clocks, _POWER),
        "versions": ", ".join(f"{name} {value}" for name, value in found.versions.items() if name != "measured"),
        "method": "; ".join(f"{name}: {value}" for name, value in found.method.items()),
    }


def _steady(found: Mapping[str, Any]) -> str:
    if found["steady"] is None:
        return f"not known: {found['why']}"
    return "yes, by the samples" if found["steady"] else f"no: {found['why']}"


def place(found: Document) -> str:
    """The device, the ranks and their nodes, for the heading of a table."""
    device, nodes = found.device["name"] or "unknown device", ", ".join(found.machine["nodes"])
    return f"{device}; {counted(found.machine['ranks'], 'rank')} on {nodes}"


def _device(device: Mapping[str, Any]) -> Iterator[str]:
    unit = "thread" if device.get("kind") == "cpu" else "compute unit"
    yield from (str(device[name]) for name in ("name", "architecture") if device.get(name))
    yield from [counted(device["compute_units"], unit)] if device.get("compute_units") else []


def _listed(values: Mapping[str, Any], forms: tuple[tuple[str, str], ...]) -> str:
    known = [form.format(values[name]) for name, form in forms if values.get(name) is not None]
    return ", ".join(known) or _UNKNOWN
