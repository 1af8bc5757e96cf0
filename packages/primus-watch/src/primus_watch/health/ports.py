"""What has happened to the network of this node since the run began: links that went down, errors."""

from __future__ import annotations

from collections.abc import Iterator

from primus_machine import interconnect
from primus_machine.host import HostRoot
from primus_machine.interconnect import DOWNED, ERRORS, Port

__all__ = ["Ports"]

_NET = "/sys/class/net"


class Ports:
    """The RDMA ports and network interfaces, as they were at first."""

    def __init__(self, host: HostRoot) -> None:
        self._host = host
        self._active = {(port.device, port.port) for port in self._read() if port.active}
        self._counts = {(port.device, port.port): self._counters(port) for port in self._read()}
        self._up = {name for name in self._interfaces() if self._state(name) == "up"}

    def wrong(self) -> list[str]:
        """What is worse than it was."""
        interfaces = [f"interface {name} is {self._state(name) or 'gone'}" for name in sorted(self._up)
                      if self._state(name) != "up"]  # fmt: skip
        return [line for port in self._read() for line in self._worse(port)] + self._gone() + interfaces

    def _worse(self, port: Port) -> Iterator[str]:
        key, name = (port.device, port.port), f"port {port.device}:{port.port}"
        if key in self._active and not port.active:
            yield f"{name} has lost its link"
        before = self._counts.get(key, {})
        new = {kind: count - before[kind] for kind, count in self._counters(port).items() if kind in before}
        if counts := ", ".join(f"{kind} {count}" for kind, count in new.items() if count > 0):
            yield f"{name} has counted since the run began: {counts}"

    def _gone(self) -> list[str]:
        here = {(port.device, port.port) for port in self._read()}
        return [f"port {device}:{number} is gone" for device, number in sorted(self._active - here)]

    def _read(self) -> tuple[Port, ...]:
        return interconnect.read(self._host).ports

    def _counters(self, port: Port) -> dict[str, int]:
        found = {name: interconnect.counter(self._host, port, name) for name in (*ERRORS, DOWNED)}
        return {name: count for name, count in found.items() if count is not None}

    def _interfaces(self) -> tuple[str, ...]:
        return tuple(name for name in self._host.names(_NET) if "device" in self._host.names(f"{_NET}/{name}"))

    def _state(self, name: str) -> str:
        return self._host.text(f"{_NET}/{name}/operstate") or ""
