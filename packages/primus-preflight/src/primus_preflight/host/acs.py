"""ACS of PCI bridges: with it on, what a GPU says to an adapter beside it goes up to the root complex and down again.

Only root sees the part of a bridge's configuration that says so, and a capture does not hold it.
"""

from __future__ import annotations

from collections.abc import Iterator

from primus_machine.units import counted
from primus_preflight.checks.check import Node, no_gpu
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule

__all__ = ["READS", "ask"]

_DEVICES = "/sys/bus/pci/devices"
READS = (f"{_DEVICES}/*/class",)
_BRIDGE = "0x0604"
_FIRST, _SIZE = 0x100, 4096
"""Where extended capabilities begin, and where the configuration ends (PCI Express Base Specification, 7.6)."""
_ACS = 0x000D
_REDIRECTS = 0b1101
"""Source validation, redirection of requests and of completions, in the control register."""


def ask(node: Node, rule: Rule) -> Iterator[Finding]:
    """One finding for all bridges."""
    host = node.host
    bridges = [
        name for name in host.names(_DEVICES) if (host.text(f"{_DEVICES}/{name}/class") or "").startswith(_BRIDGE)
    ]
    if not node.facts.gpus:
        yield no_gpu(node, rule)
    elif not bridges:
        yield rule.unknown("", f"no bridge is seen in {_DEVICES}")
    else:
        yield _judged(rule, {name: _control(host.data(f"{_DEVICES}/{name}/config", _SIZE)) for name in bridges})


def _judged(rule: Rule, found: dict[str, int | None]) -> Finding:
    on = [name for name, control in found.items() if control is not None and control & _REDIRECTS]
    closed = [name for name, control in found.items() if control is None]
    if on:
        return rule.bad("", "on", f"{len(on)} of {len(found)} bridges: {', '.join(on[:4])}{' …' * (len(on) > 4)}")
    if closed:
        return rule.unknown("", f"the configuration of {len(closed)} of {len(found)} bridges is readable by root only")
    return rule.good("", f"off on {counted(len(found), 'bridge')}")


def _control(config: bytes) -> int | None:
    """The ACS control register; 0: the bridge has none; None: not all of the configuration is shown."""
    if len(config) < _SIZE:
        return None
    offset, seen = _FIRST, set[int]()
    while offset >= _FIRST and offset not in seen:
        seen.add(offset)
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20 & ~3
    return 0
