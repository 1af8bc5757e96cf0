"""What a GPU does just now, by the files of AMD's driver: clock, power, temperatures, memory errors, load.

NVIDIA's driver tells these through its library alone, which is not asked.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from primus_machine.gpus.devices import PCI
from primus_machine.host import HostRoot, integer

__all__ = ["Sensor", "State", "errors", "read"]


class Sensor(NamedTuple):
    """One thermometer."""

    name: str
    """`junction`, `mem`; empty: not said."""
    celsius: float
    critical: float | None
    """At which the driver slows the GPU down; None: not said."""


class State(NamedTuple):
    """One GPU at one moment. None: the driver does not say it."""

    mhz: float | None
    watts: float | None
    sensors: tuple[Sensor, ...]
    busy_percent: int | None

    @property
    def celsius(self) -> float | None:
        """The hottest place that the driver tells of."""
        return max((sensor.celsius for sensor in self.sensors), default=None)


def read(host: HostRoot, address: str) -> State:
    """The GPU at a PCI address."""
    gpu = f"{PCI}/{address}"
    folder = next(iter(host.paths(f"{gpu}/hwmon/hwmon*")), f"{gpu}/hwmon/none")
    watts = (_scaled(host, f"{folder}/power1_{name}", 1e6) for name in ("average", "input"))
    return State(
        mhz=_scaled(host, f"{folder}/freq1_input", 1e6),
        watts=next((value for value in watts if value is not None), None),
        sensors=tuple(filter(None, (_sensor(host, path) for path in host.paths(f"{folder}/temp*_input")))),
        busy_percent=integer(host, f"{gpu}/gpu_busy_percent"),
    )


def errors(host: HostRoot, address: str) -> dict[str, tuple[int | None, int | None]]:
    """Uncorrected and corrected errors by block: memory (`umc`, which all have), caches, engines."""
    folder = f"{PCI}/{address}/ras"
    blocks = {"umc_err_count", *(name for name in host.names(folder) if name.endswith("_err_count"))}
    texts = {block: host.text(f"{folder}/{block}") for block in sorted(blocks)}
    return {block: (_counted(text, "ue"), _counted(text, "ce")) for block, text in texts.items()}


def _scaled(host: HostRoot, path: str, unit: float) -> float | None:
    value = integer(host, path)
    return None if value is None else value / unit


def _sensor(host: HostRoot, path: str) -> Sensor | None:
    celsius, stem = _scaled(host, path, 1e3), path.removesuffix("_input")
    if celsius is None:
        return None
    return Sensor(host.text(f"{stem}_label") or "", celsius, _scaled(host, f"{stem}_crit", 1e3) or None)


def _counted(text: str | None, kind: str) -> int | None:
    """5 of `ue: 0` and `ce: 5`."""
    found = re.search(rf"(?m)^{kind}:\s*([0-9]{{1,18}})\s*$", text or "")
    return int(found[1]) if found else None
