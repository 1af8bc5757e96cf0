"""The adapters of a machine: RDMA devices port by port, and the other network interfaces that are hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from primus_machine.collectives import choose, selects
from primus_machine.facts import Facts, Port
from primus_machine.host import HostRoot
from primus_machine.interconnect import is_name
from primus_preflight.machine.files import integer

__all__ = ["READS", "Nic", "read"]

_IB = "/sys/class/infiniband"
_NET = "/sys/class/net"
READS = (
    f"{_IB}/*/device/uevent",
    f"{_IB}/*/device/net/*/mtu",
    *(f"{_NET}/*/{name}" for name in ("operstate", "speed", "device/uevent", "device/numa_node")),
)


@dataclass(frozen=True, slots=True)
class Nic:
    """One port."""

    name: str
    """`mlx5_0`, or `mlx5_0:2` of several; the interface where it has no RDMA."""
    kind: str
    """`InfiniBand`, `RoCE` or `Ethernet`."""
    address: str = ""
    """On the PCI bus; empty: not known."""
    numa: int = -1
    is_up: bool = False
    state: str = ""
    gbps: float = 0.0
    """0: not said."""
    driver: str = ""
    interfaces: tuple[str, ...] = ()
    is_used: bool = False
    """Whether it carries what GPUs say to other nodes: those that NCCL is told to use; without RDMA, any that is up."""


def read(facts: Facts) -> tuple[Nic, ...]:
    """RDMA ports first."""
    rdma = tuple(_rdma(facts))
    taken = {interface for nic in rdma for interface in nic.interfaces}
    others = tuple(_interfaces(facts.host, taken, alone=not rdma))
    return (*rdma, *others)


def _rdma(facts: Facts) -> Iterator[Nic]:
    ports = facts.network.ports
    chosen = choose(facts, has_gpus=True, nnodes=1, master_address="", user_environ={}).variables
    setting = next((variable.value for variable in chosen if variable.name == "NCCL_IB_HCA"), None)
    for port in ports:
        several = sum(other.device == port.device for other in ports) > 1
        folder = f"{_IB}/{port.device}"
        state = facts.host.text(f"{folder}/ports/{port.port}/state") or ""
        yield Nic(
            name=f"{port.device}:{port.port}" if several else port.device,
            kind="InfiniBand" if port.link_layer == "InfiniBand" else "RoCE",
            address=_address(facts.host, f"{folder}/device"),
            numa=port.numa_node,
            is_up=port.active,
            state=state.rpartition(": ")[2] or "not reported",
            gbps=port.rate_gbps,
            driver=port.driver,
            interfaces=facts.host.names(f"{folder}/device/net"),
            is_used=_carries(setting, port),
        )


def _carries(setting: str | None, port: Port) -> bool:
    return port.active and (setting is None or selects(setting, port))


def _interfaces(host: HostRoot, taken: set[str], *, alone: bool) -> Iterator[Nic]:
    """Those with a device behind them: no bridge, no loopback."""
    for name in host.names(_NET):
        folder = f"{_NET}/{name}/device"
        about = host.text(f"{folder}/uevent")
        if about is None or name in taken or not is_name(name):
            continue
        state, speed = host.text(f"{_NET}/{name}/operstate") or "not reported", integer(host, f"{_NET}/{name}/speed")
        numa = integer(host, f"{folder}/numa_node")
        driver = re.search(r"(?m)^DRIVER=(.*)$", about)
        yield Nic(
            name=name,
            kind="Ethernet",
            address=_address(host, folder),
            numa=-1 if numa is None else numa,
            is_up=state == "up",
            state=state,
            gbps=max(speed or 0, 0) / 1000,
            driver=driver[1] if driver else "",
            is_used=alone and state == "up",
        )


def _address(host: HostRoot, folder: str) -> str:
    found = re.search(r"(?m)^PCI_SLOT_NAME=([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$",
                      host.text(f"{folder}/uevent") or "")  # fmt: skip
    return found[1] if found else ""
