"""The way from a GPU to its CPU: what limits it, the GPU's own link, its slot, or a bridge further up.

Both ends of a link report it, so a bridge may report the very link of the GPU below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from primus_machine.host import HostRoot
from primus_preflight.checks.check import Ask, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.gpu.links import needs_gpus, whole
from primus_preflight.machine import pci
from primus_preflight.machine.files import GPU_FOLDER

__all__ = ["reads", "speed", "width"]

Kind = Literal["speed", "width"]
_READS = (
    *(f"{GPU_FOLDER}/*/{name}" for name in ("power_state", "power/runtime_status", "pp_dpm_pcie", "gpu_busy_percent")),
    *pci.READS,
)
"""What is read beside `current_link_…` and `max_link_…`."""
_LOWEST_GT_S = 2.5
"""To this speed an idle link is lowered. A fault seldom goes below half of the full speed."""
_WAKE = (
    "check again under load: primus direct -- preflight --level perf in one shell, "
    "primus direct -- preflight --only {check} in another; "
    "or keep it awake: echo on > /sys/bus/pci/devices/{address}/power/control"
)


def reads(kind: Kind) -> tuple[str, ...]:
    """Return the patterns of the files that a check of one kind reads."""
    return (*(f"{GPU_FOLDER}/*/{name}_link_{kind}" for name in ("current", "max")), *_READS)


class End(NamedTuple):
    """One end of a link, as its device reports it."""

    address: str
    now: float
    most: float | None
    """What the device can do; None: it does not say."""


class Way(NamedTuple):
    """What the devices from a GPU to its CPU report of their links, the GPU first."""

    host: HostRoot
    rule: Rule
    ends: tuple[End, ...]

    @property
    def unit(self) -> str:
        """Return the unit, as a sentence has it."""
        return self.rule.unit

    def finding(self) -> Finding:
        """Return what limits the way, or that nothing does."""
        own, *above = self.ends
        if self.holds(own.now) and all(self.holds(one.now) for one in above):
            return self.rule.number(own.address, own.now)
        slow = [one for one in self.ends if not self.holds(one.now)]
        if why := next(filter(None, (_asleep(self.host, one, self.rule) for one in slow)), ""):
            fix = _WAKE.format(check=self.rule.check, address=slow[0].address)
            return replace(self.rule.unknown(own.address, why), fix=fix)
        found = self.rule.bad(own.address, f"{min(one.now for one in slow):g}", self._reason(slow))
        site_fix = self.rule.fix != packaged()[self.rule.check].fix
        return found if site_fix else replace(found, fix=self._remedy(slow) or found.fix)

    def holds(self, value: float) -> bool:
        """Return whether a value is good enough."""
        return self.rule.number("", value).status == "pass"

    def _limit(self, slow: list[End]) -> End | None:
        """Return the device that cannot do more, the nearest first; None: all could, so the link is at fault."""
        near = self.ends[:2] if slow[0] == self.ends[0] else slow
        return next((one for one in near if one.most is not None and not self.holds(one.most)), None)

    def _name(self, one: End) -> str:
        place = self.ends.index(one)
        return (
            "the GPU itself" if place == 0 else f"{'its slot' if place == 1 else 'a bridge above it'}, {one.address},"
        )

    def _reason(self, slow: list[End]) -> str:
        if limit := self._limit(slow):
            return f"{self._name(limit)} has {limit.most:g} {self.unit} at most"
        if slow[0] == self.ends[0]:
            return "GPU and slot can do more" if self.ends[0].most is not None else ""
        return f"the link of {self._name(slow[-1])} limits it: {slow[-1].now:g} {self.unit}; the GPU's own is good"

    def _remedy(self, slow: list[End]) -> str:
        limit = self._limit(slow)
        if limit and limit == self.ends[0]:
            return ""
        if limit:
            where = f"lspci -vv -s {limit.address} | grep LnkCap shows what it can do"
            return f"move the GPU to a slot that is as good, or set what is good here with --thresholds; {where}"
        if slow[0] != self.ends[0]:
            return f"reseat the board or riser of {slow[-1].address}; lspci -vv -s {slow[-1].address} | grep LnkSta"
        return ""


def _asleep(host: HostRoot, one: End, rule: Rule) -> str:
    """Return why a link is slower just now than when it works; empty: nothing says so."""
    folder = f"{GPU_FOLDER}/{one.address}"
    state, runtime = (host.text(f"{folder}/{name}") or "" for name in ("power_state", "power/runtime_status"))
    if runtime in ("suspended", "suspending") or state.startswith("D3"):
        return f"{one.address} sleeps ({state or runtime}), so its link shows nothing"
    if rule.check == "gpu.pcie-width" or (host.text(f"{folder}/gpu_busy_percent") or "0") != "0":
        return ""
    levels = (host.text(f"{folder}/pp_dpm_pcie") or "").splitlines()
    lowered = len(levels) > 1 and any(line.rstrip().endswith("*") for line in levels[:-1])
    can_more = one.most is not None and rule.number("", one.most).status == "pass"
    if lowered or (one.now == _LOWEST_GT_S and can_more):
        return f"{one.address} is idle, and its link is lowered to {one.now:g} {rule.unit}"
    return ""


def _asked(kind: Kind) -> Ask:
    @needs_gpus
    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        bus = pci.read(node.host)
        for gpu in whole(node.gpus):
            own, address = rule.of(gpu.model), gpu.pci_address
            if own.is_set:
                yield _judged(node.host, own, kind, address, bus)
            else:
                idle = "an idle NVIDIA GPU lowers it"
                yield own.skip(
                    idle if gpu.vendor == "nvidia" else "the expected value for this model is not known", address
                )

    return ask


def _judged(host: HostRoot, rule: Rule, kind: Kind, address: str, bus: pci.Bus) -> Finding:
    path = f"{GPU_FOLDER}/{address}/current_link_{kind}"
    now = _READERS[kind](host.text(path))
    if now is None:
        if why := _asleep(host, End(address, 0, None), rule):
            return replace(rule.unknown(address, why), fix=_WAKE.format(check=rule.check, address=address))
        unread = host.why_unread(path)
        empty = "the driver reports nothing in it: `lspci -vv -s ADDRESS` as root shows the link".replace(
            "ADDRESS", address
        )
        found = rule.unknown(address, f"current_link_{kind} {unread or 'holds no ' + kind}")
        return found if "denied" in unread else replace(found, fix=f"{empty}; or skip the check: --skip {rule.check}")
    above = [bridge.address for bridge in reversed(bus.above(address))]
    values = ((one, _READERS[kind](host.text(f"{GPU_FOLDER}/{one}/current_link_{kind}"))) for one in above)
    ends = (End(one, value, _most(host, kind, one)) for one, value in values if value is not None)
    return Way(host, rule, (End(address, now, _most(host, kind, address)), *ends)).finding()


def _most(host: HostRoot, kind: Kind, address: str) -> float | None:
    return _READERS[kind](host.text(f"{GPU_FOLDER}/{address}/max_link_{kind}"))


def _speed(text: str | None) -> float | None:
    """Read `32.0 GT/s PCIe`."""
    found = re.match(r"([0-9]{1,4}(?:\.[0-9]+)?) GT/s", text or "")
    return float(found[1]) if found else None


def _lanes(text: str | None) -> float | None:
    """Read a number of lanes. 0 and 255 are what the kernel writes where it does not know."""
    found = int(text) if re.fullmatch("[0-9]{1,3}", text or "") else 0  # type: ignore[arg-type]
    return float(found) if found in range(1, 33) else None


_READERS: dict[Kind, Callable[[str | None], float | None]] = {"speed": _speed, "width": _lanes}
speed, width = _asked("speed"), _asked("width")
